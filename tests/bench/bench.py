#!/usr/bin/env python3
"""make bench: stackpulse beside perf and samply, in one run, on this machine.

    make bench BENCH='[--runs N] [--only file,any,live,symbols] [--targets cc1plus,deep,demo] [--slow] [--keep]'

file: a perf.data file of cc1plus (999 Hz, 60 KB stacks), to stacks and to folded text; sizes.
any:  perf.data files of about 300 MB of cc1plus and tsc (60 KB stacks) and of deep (16 KiB, 4999 Hz), to
      stacks and to folded text, beside cat | wc, samply and perf script | inferno-collapse-perf.
symbols: sp-sym --exe beside llvm-symbolizer, addr2line and eu-addr2line, for addresses of one file; sp-sym
      beside the crate and perf script with inlines, for a recording.
live: recorders at 999 and 4999 Hz: CPU of all their processes, the target's slowdown, losses.

All commands of a table run in turns, --runs rounds of them (5); the figures are medians. CPU is
user + system time with all descendants. samply is built once with cargo into build/bench; where
there is no cargo its rows are left out, and this is said; so are inferno (of cargo) and TypeScript
(of npm). Nothing is asserted.
"""
import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys

from symbols import bench_symbols

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("SP_BUILD", os.path.join(TOP, "build"))
WORK = os.path.join(BUILD, "bench")
HERE = os.path.join(TOP, "tests", "bench")
os.environ["PATH"] = os.path.join(BUILD, "bin") + ":" + os.environ["PATH"]
os.environ.pop("DEBUGINFOD_URLS", None)
os.environ["PERF_CONFIG"] = "/dev/null"
os.environ["XDG_CACHE_HOME"] = os.path.join(WORK, "cache")
STACK = 60000


def say(*text):
    print(*text, file=sys.stderr, flush=True)


def path(name):
    return os.path.join(WORK, name)


def sh(command, check=True):
    return subprocess.run(["bash", "-c", "set -o pipefail; " + command], check=check, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=WORK)


class Cost:
    def __init__(self, name):
        with open(path(name)) as f:
            self.user, self.system, self.wall, self.rss = map(float, f.read().split())
        self.cpu = self.user + self.system


def measure(command):
    """Run a shell command; its Cost, with all its processes."""
    run = subprocess.run([path("cpu"), path("outer"), "bash", "-c", "set -o pipefail; " + command], cwd=WORK,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        say("  %s\n  ended with %d: %s" % (command, run.returncode, run.stderr.strip()[-300:]))
    return Cost("outer")


def median(values):
    return statistics.median(values) if values else float("nan")


def rounds(commands, runs):
    """Each command in turn, `runs` times: {name: [Cost]}. A command with a limit runs fewer times."""
    costs = {name: [] for name, _, _ in commands}
    for n in range(runs):
        for name, command, limit in commands:
            if n < (limit or runs):
                costs[name].append(measure(command))
    return costs


def prepare():
    os.makedirs(WORK, exist_ok=True)
    for source, name, compiler in (("cpu.c", "cpu", "gcc -O2"), ("deep.c", "deep", "gcc -O2")):
        subprocess.run([*compiler.split(), "-o", path(name), os.path.join(HERE, source)], check=True)
    subprocess.run(["make", "-s", "--no-print-directory", "-C", TOP, "build/tests/prog/demo"], check=True)
    # The compiler proper on a preprocessed file: one process, no driver, no assembler.
    sh("g++ -O2 -std=c++17 -E -o big.ii %s/big.cc" % HERE)
    cc1plus = sh("g++ -print-prog-name=cc1plus").stdout.strip()
    return {"cc1plus": "%s -quiet -fpreprocessed big.ii -O2 -std=c++17 -o /dev/null" % cc1plus,
            "deep": "./deep 2",
            "demo": "%s/build/tests/prog/demo 3" % TOP}


def crate(name, program):
    """The path of a crate's program, built when need be, or None."""
    tool = path("%s/bin/%s" % (name, program))
    if not os.access(tool, os.X_OK):
        if not shutil.which("cargo"):
            say("There is no cargo here: the rows of %s are left out." % name)
            return None
        say("Building %s with cargo into %s (once; minutes) …" % (name, path(name)))
        run = subprocess.run(["cargo", "install", name, "--locked", "-j2", "--root", path(name),
                              "--target-dir", path(name + "-target")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             text=True)
        shutil.rmtree(path(name + "-target"), ignore_errors=True)
        if run.returncode != 0:
            say("%s was not built: %s" % (name, run.stderr.strip()[-300:]))
            return None
    return tool


def typescript():
    """The command that compiles TypeScript's own declarations under node with a perf map, or None."""
    if not os.path.exists(path("tsc/package/lib/tsc.js")):
        if not shutil.which("npm") or sh("npm pack --silent typescript@5.6.3 && mkdir -p tsc && "
                                         "tar xzf typescript-5.6.3.tgz -C tsc", check=False).returncode != 0:
            say("npm gave no TypeScript: the rows of tsc are left out.")
            return None
    lib = "tsc/package/lib"
    return "node --perf-basic-prof %s/tsc.js --noEmit %s/typescript.d.ts %s/tsserverlibrary.d.ts" % (lib, lib, lib)


class Paranoid:
    """samply wants kernel.perf_event_paranoid at 1 or lower, of root too: lowered for the run, put back."""

    FILE = "/proc/sys/kernel/perf_event_paranoid"

    def __enter__(self):
        with open(self.FILE) as f:
            self.level = int(f.read())
        self.write(min(self.level, 1))

    def __exit__(self, *_):
        self.write(self.level)

    def write(self, level):
        try:
            with open(self.FILE, "w") as f:
                f.write("%d\n" % level)
        except OSError:
            say("kernel.perf_event_paranoid cannot be set: samply may refuse to record.")


def samply_samples(name):
    with gzip.open(path(name)) as f:
        profile = json.load(f)
    return sum(t["samples"]["length"] for t in profile["threads"])


def our_stats(spool):
    return json.loads(sh("sp-sym --format=stats-json " + spool).stdout)


def perf_counts(name):
    """Samples and lost records of a perf.data file."""
    samples = int(sh("perf script --no-inline -F tid -G -i %s 2>/dev/null | grep -c ." % name, check=False).stdout or 0)
    lost = 0
    for line in sh("perf script --no-inline --show-lost-events -F tid,event -i %s 2>/dev/null | grep PERF_RECORD_LOST" % name,
                   check=False).stdout.splitlines():
        lost += int(line.rsplit(" ", 1)[-1])
    return samples, lost


def table(head, rows):
    print()
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(c) for c in row) + " |")
    print(flush=True)


def ratio(a, b):
    return "%.2f" % (a / b) if b else "-"


def bench_file(args, targets, samply_tool):
    say("Recording cc1plus with perf at 999 Hz, %d bytes of stack …" % STACK)
    sh("perf record -q -F 999 -k mono --call-graph dwarf,%d -m 32M -o cc1plus.data -- %s" % (STACK, targets["cc1plus"]))
    samples, lost = perf_counts("cc1plus.data")
    size = os.path.getsize(path("cc1plus.data"))
    sh("cat cc1plus.data > /dev/null")
    commands = [("cat (the floor: reading the file)", "cat cc1plus.data >/dev/null", None),
                ("sp-unwind &#124; sp-spool", "sp-unwind cc1plus.data 2>unwind.log | sp-spool -o cc1plus.spool 2>spool.log", None),
                ("perf script --no-inline -F comm,tid,time,ip", "perf script --no-inline -F comm,tid,time,ip -i cc1plus.data "
                 ">/dev/null 2>perf.log", None)]
    if samply_tool:
        commands.append(("samply import", "%s import -s -n -o cc1plus.json.gz cc1plus.data >/dev/null 2>samply.log"
                         % samply_tool, None))
    costs = rounds(commands, args.runs)
    stats = our_stats("cc1plus.spool")
    ours = median([c.cpu for c in costs[commands[1][0]]])
    print("## From a perf.data file: cc1plus, 999 Hz, %d bytes of stack, %d samples, %.0f MB, %d lost" %
          (STACK, samples, size / 1e6, lost))
    table(["to stacks", "user s", "sys s", "CPU s", "µs per sample", "wall s", "MB", "CPU, ours = 1"],
          [[name, "%.3f" % median([c.user for c in costs[name]]), "%.3f" % median([c.system for c in costs[name]]),
            "%.3f" % median([c.cpu for c in costs[name]]), "%.1f" % (1e6 * median([c.cpu for c in costs[name]]) / samples),
            "%.3f" % median([c.wall for c in costs[name]]), "%.0f" % (median([c.rss for c in costs[name]]) / 1024),
            ratio(median([c.cpu for c in costs[name]]), ours)] for name, _, _ in commands])
    frames = int(sh("sp-sym --format=raw cc1plus.spool | grep -c '^\t'").stdout)
    print("Ours: %d samples, %d frames (%.0f ns each), %d stacks stopped before their root." %
          (stats["samples"], frames, 1e9 * ours / frames, stats["truncated_frame_markers"]))

    commands = [("sp-unwind &#124; sp-spool, sp-sym --format=folded (lines, inlines)",
                 "sp-unwind cc1plus.data 2>/dev/null | sp-spool -o cc1plus.spool 2>/dev/null && "
                 "sp-sym --no-cache --format=folded %s cc1plus.spool >cc1plus.folded 2>/dev/null" % args.lines, None),
                ("of it sp-sym", "sp-sym --no-cache --format=folded %s cc1plus.spool >cc1plus.folded 2>/dev/null" % args.lines, None),
                ("perf script --no-inline (names)", "perf script --no-inline -i cc1plus.data >/dev/null 2>perf.log", None),
                ("perf script (names, inlines), once", "perf script -i cc1plus.data >/dev/null 2>perf.log", 1)]
    if not args.slow:
        commands.pop()
    costs = rounds(commands, args.runs)
    ours = median([c.cpu for c in costs[commands[0][0]]])
    table(["to names", "CPU s", "µs per sample", "wall s", "MB", "CPU, ours = 1"],
          [[name, "%.3f" % median([c.cpu for c in costs[name]]), "%.1f" % (1e6 * median([c.cpu for c in costs[name]]) / samples),
            "%.3f" % median([c.wall for c in costs[name]]), "%.0f" % (median([c.rss for c in costs[name]]) / 1024),
            ratio(median([c.cpu for c in costs[name]]), ours)] for name, _, _ in commands])
    spool = os.path.getsize(path("cc1plus.spool"))
    rows = [["spool", spool, "%.1f" % (spool / stats["samples"])],
            ["perf.data", size, "%.1f" % (size / samples)]]
    if samply_tool:
        gz = os.path.getsize(path("cc1plus.json.gz"))
        rows.insert(1, ["samply json.gz", gz, "%.1f" % (gz / samply_samples("cc1plus.json.gz"))])
    table(["written", "bytes", "bytes per sample"], rows)
    if not args.keep:
        os.unlink(path("cc1plus.data"))


def bench_any(args, targets, samply_tool):
    inferno = crate("inferno", "inferno-collapse-perf")
    files = [("cc1plus", targets["cc1plus"], 999, STACK), ("tsc", typescript(), 999, STACK),
             ("deep", "./deep 4", 4999, 16384)]
    print("## Large perf.data files: CPU, and the ratio to cat FILE &#124; wc -c")
    for name, command, hz, stack in files:
        if not command:
            continue
        say("Recording %s at %d Hz, %d bytes of stack …" % (name, hz, stack))
        data = name + ".any.data"
        sh("perf record -q -F %d -k mono --call-graph dwarf,%d -m 32M -o %s -- %s" % (hz, stack, data, command),
           check=False)  # it ends as its command does, and tsc finds faults in what it is given
        size = os.path.getsize(path(data))
        sh("cat %s > /dev/null" % data)
        ours = "sp-unwind %s 2>unwind.log | sp-spool -o any.spool 2>spool.log" % data
        commands = [("cat &#124; wc -c", "cat %s | wc -c" % data, None), ("sp-unwind &#124; sp-spool", ours, None),
                    ("sp-unwind &#124; sp-spool, sp-sym --format=folded",
                     ours + " && sp-sym --no-cache --format=folded --no-inline any.spool 2>sym.log", None),
                    ("the same, its cache full",
                     ours + " && sp-sym --format=folded --no-inline any.spool 2>sym.log", None)]
        if samply_tool:
            commands.append(("samply import", "%s import -s -n -o any.json.gz %s 2>samply.log" % (samply_tool, data), None))
        commands.append(("perf script --no-inline -F comm,tid,time,ip",
                         "perf script --no-inline -F comm,tid,time,ip -i %s 2>perf.log" % data, 3))
        if inferno:
            commands.append(("perf script --no-inline &#124; inferno-collapse-perf",
                             "perf script --no-inline -i %s 2>perf.log | %s" % (data, inferno), 3))
        costs = rounds(commands, args.runs)
        cpu = {label: median([c.cpu for c in costs[label]]) for label, _, _ in commands}
        samples = our_stats("any.spool")["samples"]
        print("\n%s: %d Hz, %d bytes of stack, %d samples, %.0f MB" % (name, hz, stack, samples, size / 1e6))
        table(["", "user s", "sys s", "CPU s", "µs per sample", "wall s", "largest process MB", "cat &#124; wc = 1"],
              [[label, "%.3f" % median([c.user for c in costs[label]]), "%.3f" % median([c.system for c in costs[label]]),
                "%.3f" % cpu[label], "%.1f" % (1e6 * cpu[label] / samples), "%.3f" % median([c.wall for c in costs[label]]),
                "%.0f" % (median([c.rss for c in costs[label]]) / 1024), ratio(cpu[label], cpu[commands[0][0]])]
               for label, _, _ in commands])
        if not args.keep:
            os.unlink(path(data))


def recorders(samply_tool, hz, target):
    inner = "./cpu inner " + target
    all_of = [("nothing", inner, None, None)]
    all_of.append(("stackpulse", "sp-capture -F %d -s %d -- %s 2>capture.log | sp-unwind 2>unwind.log | sp-spool -o live.spool "
                   "2>spool.log" % (hz, STACK, inner), "live.spool", None))
    all_of.append(("perf record", "perf record -q -F %d -k mono --call-graph dwarf,%d -o live.data -- %s 2>perf.log" %
                   (hz, STACK, inner), "live.data", None))
    if samply_tool:
        all_of.append(("samply record", "%s record -s -n -r %d -o live.json.gz -- %s >/dev/null 2>samply.log" %
                       (samply_tool, hz, inner), "live.json.gz", None))
    return all_of


def bench_live(args, targets, samply_tool):
    print("## Live: CPU of the recorder with all its stages, slowdown of the target, losses")
    for hz in (999, 4999):
        rows = []
        for target in args.targets.split(","):
            command = targets[target]
            say("Recording %s at %d Hz, %d rounds …" % (target, hz, args.runs))
            tools = recorders(samply_tool, hz, command)
            own = {t[0]: [] for t in tools}
            cost, samples, lost, size, memory = ({t[0]: [] for t in tools} for _ in range(5))
            for _ in range(args.runs):
                for name, line, output, _ in tools:
                    outer = measure(line)
                    inner = Cost("inner")
                    own[name].append(inner.cpu)
                    if not output or not os.path.exists(path(output)):
                        continue
                    cost[name].append(outer.cpu - inner.cpu)
                    memory[name].append(outer.rss / 1024)
                    size[name].append(os.path.getsize(path(output)))
                    if output.endswith(".spool"):
                        stats = our_stats(output)
                        samples[name].append(stats["samples"])
                        lost[name].append(stats["lost_events"])
                    elif output.endswith(".data"):
                        n, gone = perf_counts(output)
                        samples[name].append(n)
                        lost[name].append(gone)
                        os.unlink(path(output))
                    else:
                        samples[name].append(samply_samples(output))
                        os.unlink(path(output))
            alone = median(own["nothing"])
            for name, _, output, _ in tools[1:]:
                if not samples[name]:
                    continue
                n = median(samples[name])
                gone = median(lost[name]) if lost[name] else None
                rows.append([target, name, "%.0f" % n, "%.3f" % median(cost[name]), "%.1f" % (1e6 * median(cost[name]) / n),
                             "%+.1f %%" % (100 * (median(own[name]) / alone - 1)),
                             "-" if gone is None else "%.0f (%.2f %%)" % (gone, 100 * gone / (n + gone)),
                             "%.1f" % (100 * n / (median(own[name]) * hz)),
                             "%.1f" % (median(size[name]) / n), "%.0f" % max(memory[name])])
        print("\n%d Hz, %d bytes of stack (samply: 32000, its constant)" % (hz, STACK))
        table(["target", "recorder", "samples", "recorder CPU s", "µs per sample", "target", "lost", "samples, % of CPU × Hz",
               "bytes per sample", "largest process MB"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="file,any,live,symbols")
    parser.add_argument("--lines", default="--lines", help="options of sp-sym for the folded text")
    parser.add_argument("--slow", action="store_true", help="also perf script with inlines (a minute)")
    parser.add_argument("--targets", default="cc1plus,deep,demo", help="what is recorded live")
    parser.add_argument("--keep", action="store_true", help="keep the recordings in build/bench")
    args = parser.parse_args()
    targets = prepare()
    tool = crate("samply", "samply")
    version = sh("perf --version").stdout.strip()
    print("# make bench: %s, %s, %d processors, kernel %s, medians of %d rounds" %
          (version, sh(tool + " --version").stdout.strip() if tool else "no samply", os.cpu_count(), os.uname().release,
           args.runs))
    if "file" in args.only:
        bench_file(args, targets, tool)
    if "any" in args.only:
        bench_any(args, targets, tool)
    if "symbols" in args.only:
        import live
        recorder = live.crate()
        bench_symbols(args.runs, live.bench, recorder and (recorder, path("crate/release/crate-fold")))
    if "live" in args.only:
        with Paranoid():
            bench_live(args, targets, tool)


if __name__ == "__main__":
    main()
