// A JavaScript chain that is known: runJs, midJs, leafJs. Spends the CPU milliseconds of its
// argument (default 1500). Run with --no-turbo-inlining, so that the optimizer keeps them apart.
'use strict';

function leafJs(n) {
  let x = 0;
  for (let i = 0; i < n; i++) x = (Math.imul(x, 1664525) + i) | 0;
  return x;
}

function midJs(n) {
  let x = 0;
  for (let i = 0; i < 4; i++) x += leafJs(n + i);
  return x;
}

function runJs(ms) {
  let x = 0;
  while (process.cpuUsage().user / 1000 < ms) x += midJs(200000);
  return x;
}

runJs(Number(process.argv[2] || 1500));
