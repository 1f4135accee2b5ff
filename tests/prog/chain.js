// A JavaScript chain that is known: runJs, midJs, leafJs. Spends the CPU milliseconds of its
// argument (default 2000). Each is called so often that it is compiled soon: interpreted functions
// have no names in a perf map. Run with --no-turbo-inlining, so that the optimizer keeps them apart.
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

function runJs(n) {
  let x = 0;
  for (let i = 0; i < 4; i++) x += midJs(n + i);
  return x;
}

const ms = Number(process.argv[2] || 2000);
let sum = 0;
while (process.cpuUsage().user / 1000 < ms) sum += runJs(2000);
