#!/usr/bin/env python3
"""The recorders side by side: our whole pipeline into a spool, perf record, samply record, and the
Rust crate stackpulse (tests/bench/crate), each with its default ring and with 32 MB (samply's cannot
be set); ours by its perf engine too.

    make bench-live LIVE='[--runs N] [--hz 99,999,4999] [--targets deep,cpp,cc1plus,tsc,rustc]
                          [--tools stackpulse,"stackpulse 32M",…] [--more]'

Without options it runs the whole matrix; each option takes a part of it. CPU is that of all the
recorder's processes, user + system: the whole command's less the target's. Target: its own CPU
against that without a recorder. The slope between two rates leaves start-up out. All commands run
in turns; the figures are medians. Each run is kept in build/bench/live.runs: --more adds to what is
there, so that a matrix can be made in parts, and the tables show all of it. samply and the crate are
built with cargo into build/bench, TypeScript comes by npm; what cannot be had is left out, and this
is said. Nothing is asserted.
"""
import argparse
import glob
import json
import os
import shutil
import subprocess

import bench
from bench import BUILD, HERE, STACK, WORK, Cost, measure, median, path, say, sh, table

RATES = [99, 999, 4999]
TARGETS = ["deep", "cpp", "cc1plus", "tsc", "rustc"]
TOOLS = ["stackpulse", "stackpulse 32M", "stackpulse perf engine", "crate", "crate 32M", "perf", "perf 32M", "samply"]
ALONE = "nothing"
RING = "32M"
RING_STACKS = 512  # of 64 KiB, as the crate counts


def crate():
    """The path of the crate's recorder, built when need be, or None."""
    tool = path("crate/release/crate-recorder")
    if os.access(tool, os.X_OK) and os.access(path("crate/release/crate-fold"), os.X_OK):
        return tool
    if not shutil.which("cargo"):
        say("There is no cargo here: the rows of the crate are left out.")
        return None
    say("Building the crate's recorder with cargo into %s (once; minutes) …" % path("crate"))
    run = subprocess.run(["cargo", "build", "-q", "--release", "-j2", "--target-dir", path("crate")],
                         cwd=os.path.join(HERE, "crate"), stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        say("The crate's recorder was not built: " + run.stderr.strip()[-300:])
        return None
    return tool


def rustc():
    """rustc on the largest crate of cargo's folder that needs no other."""
    home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    sources = sorted(glob.glob(home + "/registry/src/*/regex-syntax-0.8.*/src/lib.rs"))
    if not shutil.which("rustc") or not sources:
        return None
    # The compiler itself, not rustup's launcher.
    real = os.path.join(sh("rustc --print sysroot").stdout.strip(), "bin", "rustc")
    return ("%s --crate-name regex_syntax --edition 2021 --crate-type lib --emit metadata --cap-lints allow "
            "--cfg 'feature=\"std\"' --cfg 'feature=\"unicode\"' --cfg 'feature=\"unicode-perl\"' --out-dir . %s" %
            (real, sources[-1]))


def targets(wanted):
    found = bench.prepare()
    if "cpp" in wanted and not os.path.exists(path("cpp")):
        subprocess.run(["g++", "-O2", "-g", "-pthread", "-o", path("cpp"), os.path.join(HERE, "cpp.cc")], check=True)
    found["cpp"] = "./cpp 2"
    for name, get in (("tsc", bench.typescript), ("rustc", rustc)):
        found[name] = get() if name in wanted else None
        if name in wanted and not found[name]:
            say("%s cannot be had here: left out." % name)
    return {name: found[name] for name in wanted if found.get(name)}


def commands(hz, target, samply, harness):
    """(name, command, output) of each recorder."""
    inner = "./cpu inner " + target
    rest = "2>capture.log | sp-unwind 2>unwind.log | sp-spool -o live.spool 2>spool.log"
    all_of = [(name, "sp-capture %s -F %d -s %d -- %s %s" % (options, hz, STACK, inner, rest), "live.spool")
              for name, options in (("stackpulse", ""), ("stackpulse 32M", "--ring " + RING),
                                    ("stackpulse perf engine", "--engine=perf"))]
    if harness:
        for name, stacks in (("crate", 0), ("crate 32M", RING_STACKS)):
            all_of.append((name, "%s %d %d %d crate.spool %s 2>crate.log" % (harness, hz, STACK, stacks, inner), "crate.spool"))
    for name, ring in (("perf", ""), ("perf 32M", "-m " + RING)):
        all_of.append((name, "perf record -q -F %d -k mono %s --call-graph dwarf,%d -o live.data -- %s 2>perf.log" %
                       (hz, ring, STACK, inner), "live.data"))
    if samply:
        all_of.append(("samply", "%s record -s -n -r %d -o live.json.gz -- %s >/dev/null 2>samply.log" % (samply, hz, inner),
                       "live.json.gz"))
    return all_of


def counts(output):
    """Samples and lost ones of what was just recorded; None = its recorder does not tell."""
    if output == "live.spool":
        stats = bench.our_stats(output)
        return stats["samples"], stats["lost_events"]
    if output == "crate.spool":
        with open(path("crate.log")) as f:
            samples, lost = f.read().split()[-2:]
        return int(samples), int(lost)
    if output == "live.data":
        return bench.perf_counts(output)
    return bench.samply_samples(output), None


def one(command, output):
    """(recorder's CPU, target's CPU, samples, lost), or None when it failed."""
    for old in ("inner", output):
        if os.path.exists(path(old)):
            os.unlink(path(old))
    outer = measure(command)
    if not os.path.exists(path("inner")) or not os.path.exists(path(output)):
        return None
    inner = Cost("inner")
    n, lost = counts(output)
    os.unlink(path(output))
    return outer.cpu - inner.cpu, inner.cpu, n, lost


class Runs:
    """What was measured, by (target, Hz, recorder): lists of (recorder's CPU, target's CPU, samples, lost)."""

    def __init__(self, more):
        self.got = {}
        self.path = path("live.runs")
        if more and os.path.exists(self.path):
            with open(self.path) as f:
                for line in f:
                    target, hz, tool, *values = json.loads(line)
                    self.got.setdefault((target, hz, tool), []).append(values)
        else:
            open(self.path, "w").close()

    def add(self, target, hz, tool, values):
        self.got.setdefault((target, hz, tool), []).append(values)
        with open(self.path, "a") as f:
            f.write(json.dumps([target, hz, tool, *values]) + "\n")

    def of(self, target, hz, tool):
        return [r for r in self.got.get((target, hz, tool), []) if r[2]]

    def middle(self, target, hz, tool, i):
        return median([r[i] for r in self.of(target, hz, tool)])

    def each(self, target, hz, tool):
        """Microseconds of CPU per sample."""
        return sorted(1e6 * r[0] / r[2] for r in self.of(target, hz, tool))

    def cost(self, target, hz, tool):
        """Their median, or None."""
        each = self.each(target, hz, tool)
        return median(each) if each else None

    def alone(self, target):
        return median([r[1] for r in self.got.get((target, 0, ALONE), [])])

    def slope(self, target, low, high, tool):
        """Microseconds per further sample; None when it was not run at both rates."""
        if not self.of(target, low, tool) or not self.of(target, high, tool):
            return None
        cpu, samples = (self.middle(target, high, tool, i) - self.middle(target, low, tool, i) for i in (0, 2))
        return 1e6 * cpu / samples if samples > 0 else None


def run_target(runs, name, target, rates, tools, rounds, samply, harness):
    for n in range(rounds):
        measure("./cpu inner " + target)
        runs.add(name, 0, ALONE, (0, Cost("inner").cpu, 0, 0))
        for hz in rates:
            say("%s, %d Hz, round %d of %d …" % (name, hz, n + 1, rounds))
            for tool, command, output in commands(hz, target, samply, harness):
                result = one(command, output) if tool in tools else None
                if result:
                    runs.add(name, hz, tool, result)


def peer(tool, of):
    """The row that a recorder is compared with: of the same ring, where there are several."""
    return of + (" 32M" if tool.endswith(" 32M") and of != "samply" else "")


def against(own, other):
    return "%.2f" % (own / other) if own and other else "-"


def micros(value):
    return "%.1f" % value if value else "-"


def show_target(runs, name):
    rates = sorted({hz for target, hz, _ in runs.got if target == name and hz})
    rows = []
    for hz in rates:
        for tool in TOOLS:
            each = runs.each(name, hz, tool)
            if not each:
                continue
            lost = [r[3] for r in runs.of(name, hz, tool) if r[3] is not None]
            own = runs.cost(name, hz, tool)
            ratios = [against(own, runs.cost(name, hz, peer(tool, of))) for of in ("crate", "samply")]
            rows.append([hz, tool, len(each), "%.0f" % runs.middle(name, hz, tool, 2), "%.3f" % runs.middle(name, hz, tool, 0),
                         micros(own), "%.1f–%.1f" % (each[0], each[-1]), *ratios,
                         "%+.1f %%" % (100 * (runs.middle(name, hz, tool, 1) / runs.alone(name) - 1)),
                         "%d in %d of %d" % (sum(lost), sum(1 for n in lost if n), len(lost)) if lost else "-"])
    print("\n## %s, %.2f CPU seconds alone" % (name, runs.alone(name)))
    table(["Hz", "recorder", "runs", "samples", "CPU s", "µs per sample", "lowest–highest", "crate = 1", "samply = 1",
           "target's CPU", "lost, in how many runs"], rows)
    if len(rates) > 1:
        low, high = min(rates, key=lambda hz: abs(hz - 999)), max(rates)
        slopes = {tool: runs.slope(name, low, high, tool) for tool in TOOLS}
        table(["recorder", "µs per further sample, %d to %d Hz" % (low, high), "crate = 1", "samply = 1"],
              [[tool, micros(slopes[tool]), *(against(slopes[tool], slopes[peer(tool, of)]) for of in ("crate", "samply"))]
               for tool in TOOLS if slopes[tool]])


def show_all(runs):
    """µs per sample of every cell, ours first."""
    cells = [(target, hz) for target in TARGETS for hz in RATES if any((target, hz, t) in runs.got for t in TOOLS)]
    rows = []
    for target, hz in cells:
        rows.append([target, hz, *(micros(runs.cost(target, hz, tool)) for tool in TOOLS)])
    print("\n## µs of CPU per sample")
    table(["target", "Hz", *TOOLS], rows)


def chosen(text, of):
    picked = [x.strip() for x in text.split(",")] if text else [str(x) for x in of]
    unknown = [x for x in picked if x not in map(str, of)]
    if unknown:
        raise SystemExit("unknown: %s; known: %s" % (", ".join(unknown), ", ".join(map(str, of))))
    return picked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="rounds; 0 with --more: only the tables")
    parser.add_argument("--hz", default="", help="rates, commas between them")
    parser.add_argument("--targets", default="")
    parser.add_argument("--tools", default="", help="rows")
    parser.add_argument("--more", action="store_true", help="go on with what build/bench/live.runs has")
    args = parser.parse_args()
    rates = [int(hz) for hz in args.hz.split(",")] if args.hz else RATES
    wanted, tools = chosen(args.targets, TARGETS), chosen(args.tools, TOOLS)
    os.makedirs(WORK, exist_ok=True)
    runs = Runs(args.more)
    load = os.getloadavg()[0]
    if args.runs:
        found = targets(wanted)
        harness = crate() if any(tool.startswith("crate") for tool in tools) else None
        samply = bench.crate("samply", "samply") if "samply" in tools else None
        with bench.Paranoid():
            for name, target in found.items():
                run_target(runs, name, target, rates, tools, args.runs, samply, harness)
    print("# Recorders live: kernel %s, %d processors, load %.1f to %.1f, %d bytes of stack (samply: 32000), medians" %
          (os.uname().release, os.cpu_count(), load, os.getloadavg()[0], STACK))
    for name in TARGETS:
        if any(target == name for target, _, _ in runs.got):
            show_target(runs, name)
    show_all(runs)


if __name__ == "__main__":
    main()
