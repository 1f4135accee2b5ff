#!/usr/bin/env python3
"""The recorders side by side: our whole pipeline into a spool, perf record, samply record, and the
Rust crate stackpulse (tests/bench/crate), each with its default ring and with 32 MB.

    make bench-live LIVE='[--runs N] [--hz 99,999,4999] [--targets deep,cpp,cc1plus,tsc,rustc] [--tools …]'

CPU is that of all the recorder's processes, user + system: the whole command's less the target's.
Target: its own CPU against that without a recorder. The slope between two rates leaves start-up
out. All commands run in turns; the figures are medians. samply and the crate are built with cargo
into build/bench, TypeScript comes by npm; what cannot be had is left out, and this is said. Nothing
is asserted.
"""
import argparse
import glob
import os
import shutil
import subprocess

import bench
from bench import BUILD, HERE, STACK, WORK, Cost, measure, median, path, say, sh, table

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
    all_of = [("stackpulse", "sp-capture -F %d -s %d -- %s %s" % (hz, STACK, inner, rest), "live.spool"),
              ("stackpulse 32M", "sp-capture --ring %s -F %d -s %d -- %s %s" % (RING, hz, STACK, inner, rest), "live.spool")]
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


def run_target(name, target, args, samply, harness):
    got, alone, names = {}, [], []
    rates = [int(hz) for hz in args.hz.split(",")]
    for n in range(args.runs):
        measure("./cpu inner " + target)
        alone.append(Cost("inner").cpu)
        for hz in rates:
            say("%s, %d Hz, round %d of %d …" % (name, hz, n + 1, args.runs))
            for tool, command, output in commands(hz, target, samply, harness):
                if args.tools and tool not in args.tools.split(","):
                    continue
                if tool not in names:
                    names.append(tool)
                result = one(command, output)
                if result:
                    got.setdefault((hz, tool), []).append(result)
    rows, middle = [], {}
    for hz in rates:
        for tool in names:
            runs = [r for r in got.get((hz, tool), []) if r[2]]
            if not runs:
                continue
            cpu, own, samples = (median([r[i] for r in runs]) for i in range(3))
            lost = [r[3] for r in runs if r[3] is not None]
            middle[hz, tool] = cpu, samples
            each = sorted(1e6 * r[0] / r[2] for r in runs)
            rows.append([hz, tool, "%.0f" % samples, "%.3f" % cpu, "%.1f" % median(each), "%.1f–%.1f" % (each[0], each[-1]),
                         "%+.1f %%" % (100 * (own / median(alone) - 1)),
                         "%s of %d runs: %.0f" % (sum(1 for n in lost if n), len(lost), sum(lost)) if lost else "-"])
    print("\n## %s, %.2f CPU seconds alone" % (name, median(alone)))
    table(["Hz", "recorder", "samples", "CPU s", "µs per sample", "lowest–highest", "target's CPU", "lost"], rows)
    if len(rates) > 1:
        low, high = min(rates, key=lambda hz: abs(hz - 999)), max(rates)
        slopes = [[tool, "%.1f" % (1e6 * (middle[high, tool][0] - middle[low, tool][0]) /
                                   (middle[high, tool][1] - middle[low, tool][1]))]
                  for tool in names if (low, tool) in middle and (high, tool) in middle
                  and middle[high, tool][1] > middle[low, tool][1]]
        table(["recorder", "µs per further sample, %d to %d Hz" % (low, high)], slopes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--hz", default="99,999,4999")
    parser.add_argument("--targets", default="deep,cpp,cc1plus,tsc,rustc")
    parser.add_argument("--tools", default="", help="only these rows: stackpulse, 'crate 32M', …")
    args = parser.parse_args()
    os.makedirs(WORK, exist_ok=True)
    found = targets(args.targets.split(","))
    harness, samply = crate(), bench.crate("samply", "samply")
    print("# Recorders live: kernel %s, %d processors, load %.1f, %d bytes of stack (samply: 32000), medians of %d runs" %
          (os.uname().release, os.cpu_count(), os.getloadavg()[0], STACK, args.runs))
    with bench.Paranoid():
        for name, target in found.items():
            run_target(name, target, args, samply, harness)


if __name__ == "__main__":
    main()
