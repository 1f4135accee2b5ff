#!/usr/bin/env python3
"""The spool: its bytes per sample beside the Rust crate's, its speed and memory.

    make bench-spool SPOOL='[--runs N] [--only sizes,speed,views] [--targets steady,fork,cc1plus,clang,tsc,python]'

sizes: commands recorded at 4999 Hz by sp-capture | sp-unwind | sp-spool, and by the crate's recorder
(tests/bench/crate, built with cargo into build/bench). The two don't get the same samples, so bytes
per sample are compared. speed: streams of made samples (tests/prog/stream.c). views: 10 million samples of 100,000 stacks of 40 frames to each format of
sp-sym, of 4 threads that all have all stacks, and of 5,000 that have 200 each; the first line is 200,000
samples of the same stacks, which costs the names and little else.
Nothing is asserted.
"""
import argparse
import os
import shutil
import subprocess

import bench as b
import live

HZ = 4999


def workloads(names):
    """{name: command}; what cannot be had is left out."""
    commands = {"steady": "./steady 3", "fork": "bash -c 'for i in {1..600}; do /bin/true; done'",
                "python": "python3 %s/spool_python.py" % b.HERE}
    if "cc1plus" in names:
        commands["cc1plus"] = b.prepare()["cc1plus"]
    if shutil.which("clang++"):
        commands["clang"] = "clang++ -fno-integrated-cc1 -std=c++17 -O2 -c -o /dev/null %s/big.cc" % b.HERE
    tsc = b.typescript() if "tsc" in names else None
    if tsc:
        commands["tsc"] = tsc
    return {name: commands[name] for name in names if name in commands}


def zstd19(name):
    b.sh("zstd -q -f -19 %s -o %s.zst" % (name, name))
    return os.path.getsize(b.path(name + ".zst"))


def sizes(names):
    crate = live.crate()
    head = ["4999 Hz, 60000 bytes of stack", "samples", "ours", "ours, 1us", "ours, ended 1/s"]
    rows = []
    if crate:
        head += ["crate's samples", "crate", "crate + zstd -19", "ours / crate + zstd -19"]
    for name, command in workloads(names).items():
        b.say("Spool sizes: %s …" % name)
        b.sh("sp-capture -q -F %d -s %d -- %s 2>capture.log | sp-unwind -q 2>unwind.log >size.stream" %
             (HZ, b.STACK, command), check=False)
        b.sh("sp-spool -q -o size.spool size.stream 2>spool.log; sp-spool -q --time-resolution 1us -o size.us.spool size.stream",
             check=False)
        # What a live recording writes: blocks end each second.
        b.sh("sp-capture -q -F %d -s %d -- %s 2>capture.log | sp-unwind -q 2>unwind.log | sp-spool -q -o live.spool" %
             (HZ, b.STACK, command), check=False)
        n, n_live = b.our_stats("size.spool")["samples"], b.our_stats("live.spool")["samples"]
        ours = os.path.getsize(b.path("size.spool")) / n
        row = [name, n, "%.2f" % ours, "%.2f" % (os.path.getsize(b.path("size.us.spool")) / n),
               "%.2f" % (os.path.getsize(b.path("live.spool")) / n_live)]
        if crate:
            b.sh("%s %d %d 0 crate.spool %s 2>crate.log >/dev/null" % (crate, HZ, b.STACK, command), check=False)
            with open(b.path("crate.log")) as f:
                out = f.read().splitlines()[-1:] or [""]
            theirs = int(out[0].split(" ")[0]) if out[0][:1].isdigit() else 0
            if theirs:
                size, packed = os.path.getsize(b.path("crate.spool")) / theirs, zstd19("crate.spool") / theirs
                row += [theirs, "%.1f" % size, "%.1f" % packed, "%.2f" % (ours / packed)]
            else:
                row += ["-"] * 4
        rows.append(row)
    b.table(head, rows)


def speed(runs):
    stream = "%s/build/tests/prog/stream" % b.TOP
    b.sh("%s samples=1000000 stacks=100000 depth=40 >hot.stream" % stream)
    b.sh("cat hot.stream >/dev/null")
    commands = [("sp-spool: 1 million samples, 40 frames, 100,000 stacks", "sp-spool -q -o hot.spool hot.stream", None),
                ("sp-spool --check (read all samples and frames)", "sp-spool --check hot.spool >/dev/null", None)]
    if not os.path.exists(b.path("long.spool")):
        b.say("Making 10 million samples (once) …")
        b.sh("%s samples=10000000 stacks=10000 depth=20 | sp-spool -q -o long.spool" % stream)
    commands.append(("open 10 million samples of 10,000 stacks", "./spool-open long.spool", None))
    commands.append(("sp-spool: 3 million samples of 10,000 stacks through a pipe",
                     "%s samples=3000000 stacks=10000 depth=20 | sp-spool -q -o many.spool" % stream, 1))
    costs = b.rounds(commands, runs)
    b.table(["", "CPU s", "wall s", "MB"],
            [[name, "%.2f" % b.median([c.cpu for c in costs[name]]), "%.2f" % b.median([c.wall for c in costs[name]]),
              "%.0f" % (max(c.rss for c in costs[name]) / 1024)] for name, _, _ in commands])
    os.unlink(b.path("hot.stream"))


FORMATS = ("top", "tree", "text", "raw", "folded", "flamegraph", "json", "pprof", "firefox", "speedscope", "callgrind",
           "lines", "jsonl", "jsonl --table=stacks", "otlp", "stats", "stats-json")


def views(runs):
    stream = "%s/build/tests/prog/stream" % b.TOP
    for name, n, threads in (("names.spool", 200000, ""), ("views.spool", 10000000, ""),
                             ("threads.spool", 10000000, "threads=5000 own=200")):
        if not os.path.exists(b.path(name)):
            b.say("Making %d samples (once) …" % n)
            b.sh("%s samples=%d stacks=100000 depth=40 %s | sp-spool -q -o %s" % (stream, n, threads, name))
    views_of(runs, "views.spool", "4 threads")
    views_of(runs, "threads.spool", "5,000 threads")


def views_of(runs, spool, threads):
    commands = [("names (stats of 200,000 samples)", "sp-sym -q -j1 -f stats names.spool", None)]
    commands += [(f, "sp-sym -q -j1 -f %s %s" % (f, spool), None) for f in FORMATS]
    costs = b.rounds(commands, runs)
    names = min(c.cpu for c in costs[commands[0][0]])
    print("## 10 million samples, 100,000 stacks, %s, to /dev/null: the least of %d rounds "
          "(text and raw write 25 and 17 GB)" % (threads, runs))
    rows = []
    for name, _, _ in commands:
        least = min(costs[name], key=lambda c: c.cpu)
        rows.append([name, "%.2f" % least.user, "%.2f" % least.system, "%.2f" % max(0, least.cpu - names),
                     "%.0f" % (max(c.rss for c in costs[name]) / 1024)])
    b.table(["format", "user s", "sys s", "CPU s besides names", "MB"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="sizes,speed,views")
    parser.add_argument("--targets", default="steady,fork,cc1plus,clang,tsc,python")
    args = parser.parse_args()
    os.makedirs(b.WORK, exist_ok=True)
    for source, name in (("cpu.c", "cpu"), ("steady.c", "steady")):
        subprocess.run(["gcc", "-O2", "-pthread", "-o", b.path(name), os.path.join(b.HERE, source)], check=True)
    print("# The spool: kernel %s, %d processors, load %.1f" % (os.uname().release, os.cpu_count(), os.getloadavg()[0]))
    if "sizes" in args.only:
        sizes(args.targets.split(","))
    if "speed" in args.only:
        speed(args.runs)
    if "views" in args.only:
        views(args.runs)


if __name__ == "__main__":
    main()
