#!/usr/bin/env python3
"""sp-unwind beside framehop, perf and samply on the same recordings.

    python3 tests/bench/unwind.py [--runs N] [FILE…]        (after make bench has built samply)

FILE: perf.data files of this machine with stacks, whose programs are still the same. Without one, cc1plus is recorded at 2000 Hz with
16 KB of stack, and deep, 40 short runs of gcc, and python3 -X perf and node where they are installed.

engine: tests/bench/walk.c and tests/bench/framehop take the same figures in the same way.
process: whole processes' CPU, user + system, with all children, in turns; medians.
workers: sp-unwind -j 2 beside -j 1, wall and CPU, the file mapped and through a pipe; the reader's part of the CPU, which is one
         thread's, and the ratio that it allows. A ratio of walls says something on an idle machine only.
short: 40 short-lived compilers beside one, by the sample.
All files are brought into the same state first: evicted from the page cache, and read.
Nothing is asserted.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench  # noqa: E402
from bench import median, path, say, sh, table  # noqa: E402


def record(targets):
    """Recordings of what is installed, with perf."""
    programs = {"cc1plus": targets["cc1plus"], "deep": targets["deep"],
                "short": "sh -c 'for i in $(seq 40); do gcc -O1 -c -o /dev/null %s; done'" %
                         os.path.join(bench.HERE, "steady.c"),
                "one": "$(gcc -print-prog-name=cc1) -quiet -imultiarch $(gcc -print-multiarch) -O1 -o /dev/null many.c",
                "long": "$(gcc -print-prog-name=cc1) -quiet -imultiarch $(gcc -print-multiarch) -O1 -o /dev/null more.c",
                "threads": "%s/build/tests/prog/threads 4000" % bench.TOP}
    # What the 40 compile, so often that one compiler is busy as long, and four times as long.
    for out, times in (("many.c", 800), ("more.c", 3200)):
        sh("grep '#include' %s/steady.c >%s; for i in $(seq %d); do sed -E '/#include/d; s/\\b(main|seconds|cpu_time|spin|down|run)\\b/\\1_'$i'/g' "
           "%s/steady.c; done >>%s" % (bench.HERE, out, times, bench.HERE, out))
    script = "import ast,json\nt=ast.parse(open(ast.__file__).read())\nfor _ in range(12): json.dumps(ast.unparse(t))"
    for python in ("python3.13", "python3.12"):
        if sh(python + " -c pass", check=False).returncode == 0:
            programs["python"] = "%s -X perf -c '%s'" % (python, script)
            break
    if shutil.which("node"):
        programs["node"] = ("node --perf-basic-prof -e 'let s=0;const f=n=>n<2?n:f(n-1)+f(n-2);for(let i=0;i<30;i++)"
                            "s+=f(27)+JSON.stringify([...Array(2e4).keys()].map(x=>({x}))).length'")
    for name, command in programs.items():
        say("Recording %s …" % name)
        sh("perf record -q -F 2000 -k mono --call-graph dwarf,16384 -m 16M -o unwind-%s.data -- %s >/dev/null" % (name, command))
    return [path("unwind-%s.data" % name) for name in programs]


def settle(files):
    """The page cache keeps a file in pages of the sizes that it was written in, which makes a factor of two to every reader of a map: have
    all files as if they had been copied here, evicted and read again."""
    for name in files:
        with open(name, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while f.read(1 << 20):
                pass


def figures(text):
    """{hot, cold: (ns per frame, ns per sample)}, frames each, % to their end."""
    out = {m[1]: (float(m[2]), float(m[3]))
           for m in re.finditer(r"(hot|cold) +([0-9.]+) ns per frame, +([0-9.]+) ns per sample", text)}
    frames, ends = re.search(r"([0-9.]+) frames each, ([0-9.]+) % to", text).groups()
    return out, frames, ends


def framehop():
    tool = path("framehop/release/framehop-bench")
    if not os.access(tool, os.X_OK) and shutil.which("cargo"):
        say("Building the harness of framehop with cargo …")
        subprocess.run(["cargo", "build", "-q", "--release", "--locked", "-j2", "--target-dir", path("framehop"),
                        "--manifest-path", os.path.join(bench.HERE, "framehop", "Cargo.toml")], check=False)
    if os.access(tool, os.X_OK):
        return tool
    say("The harness of framehop was not built: its rows are left out.")
    return None


def engine(files, runs):
    tool = framehop()
    rows = []
    for name in files:
        sh("%s --dump walk.dump %s" % (path("walk"), name))
        engines = [("sp-unwind", "%s %s" % (path("walk"), name))]
        if tool:
            engines.append(("framehop 0.16", "%s walk.dump" % tool))
        got = {e: [] for e, _ in engines}
        for _ in range(runs):
            for e, command in engines:
                got[e].append(figures(sh(command).stdout))
        ours = None
        for e, _ in engines:
            hot, cold = ([median([g[0][k][i] for g in got[e]]) for i in (0, 1)] for k in ("hot", "cold"))
            ours = ours or (hot, cold)
            rows.append([os.path.basename(name), e, got[e][0][1], got[e][0][2], "%.1f" % hot[0], "%.1f" % cold[0],
                         "%.0f" % hot[1], "%.0f" % cold[1], "%.1f" % (hot[0] / ours[0][0]), "%.1f" % (cold[0] / ours[1][0])])
        os.unlink(path("walk.dump"))
    table(["recording", "engine", "frames each", "% to their end", "ns per frame, hot", "whole passes", "ns per sample, hot",
           "whole passes", "hot, ours = 1", "whole passes, ours = 1"], rows)


def processes(files, runs, samply):
    rows = []
    for name in files:
        samples = bench.perf_counts(name)[0]
        commands = [("sp-unwind", "sp-unwind %s >/dev/null" % name, None),
                    ("sp-unwind &#124; sp-spool", "sp-unwind %s 2>/dev/null | sp-spool -o unwind.spool 2>/dev/null" % name, None),
                    ("perf script --no-inline -F comm,tid,time,ip",
                     "perf script --no-inline -F comm,tid,time,ip -i %s >/dev/null 2>&1" % name, None)]
        imports = "%s import -s -n -o unwind.json.gz %s >/dev/null 2>&1" % (samply, name)
        if samply and sh(imports, check=False).returncode == 0:
            commands.append(("samply import", imports, None))
        elif samply:
            say("samply cannot read %s: its row is left out." % name)
        costs = bench.rounds(commands, runs)
        ours = median([c.cpu for c in costs["sp-unwind"]])
        for c, _, _ in commands:
            cpu = median([x.cpu for x in costs[c]])
            rows.append([os.path.basename(name), c, "%.3f" % cpu, "%.2f" % (1e6 * cpu / samples),
                         "%.3f" % median([x.user for x in costs[c]]), "%.0f" % (median([x.rss for x in costs[c]]) / 1024),
                         bench.ratio(cpu, ours)])
    table(["recording", "process", "CPU s", "µs per sample", "user s", "MB", "CPU, ours = 1"], rows)


def shared(command, runs):
    """The share of sp-unwind's CPU that any number of workers divides among them; the rest, reading and ordering and the start, is one
    thread's. Medians."""
    stats = [json.loads(sh(command + " 2>&1 >/dev/null").stdout) for _ in range(runs)]
    return median([s["worker_cpu_us"] / s["cpu_us"] for s in stats])


def workers(files, runs):
    rows = []
    for name in files:
        for how, line in (("mapped", "sp-unwind -q --stats=json %s -j %d"), ("pipe", "cat %s | sp-unwind -q --stats=json -j %d")):
            commands = [("%d" % j, line % (name, j) + " >/dev/null", None) for j in (1, 2)]
            costs = bench.rounds(commands, runs)
            wall, cpu = ([median([getattr(x, k) for x in costs[j]]) for j in ("1", "2")] for k in ("wall", "cpu"))
            share = shared(line % (name, 1), runs)
            # The reading thread works too, when it is ahead: two cores take half of all each, unless reading alone takes longer.
            rows.append([os.path.basename(name), how, "%.3f" % wall[0], "%.3f" % wall[1], "%.2f" % (wall[0] / wall[1]),
                         "%.3f" % cpu[0], "%.3f" % cpu[1], "%.0f %%" % (100 * (1 - share)), "%.2f" % (1 / max(1 - share, 0.5))])
    table(["recording", "input", "wall s, -j1", "-j2", "ratio", "CPU s, -j1", "-j2", "reader's part of CPU", "ratio at best (Amdahl)"],
          rows)


def short(runs):
    """40 short-lived compilers beside one that lives as long: the same work by the sample."""
    rows = []
    for name, what in (("unwind-short.data", "40 short processes"), ("unwind-one.data", "one process")):
        if os.path.exists(path(name)):
            samples = bench.perf_counts(path(name))[0]
            cpu = median([c.cpu for c in bench.rounds([("x", "sp-unwind -j1 %s >/dev/null 2>&1" % name, None)], runs)["x"]])
            stats = json.loads(sh("sp-unwind -q --stats=json -j1 %s 2>&1 >/dev/null" % name).stdout)
            rows.append([what, "%d" % samples, "%.2f" % (1e6 * cpu / samples), "%.2f" % (stats["worker_cpu_us"] / samples),
                         "%.1f" % (stats["frames"] / samples), "%.1f %%" % (100 * stats["rule_misses"] / stats["frames"])])
    table(["compilers", "samples", "µs CPU per sample", "of it unwinding", "frames each", "rules made anew"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="engine,process,workers,short")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    subprocess.run(["make", "-s", "--no-print-directory", "-C", bench.TOP, path("walk")[len(bench.TOP) + 1:]], check=True)
    targets = bench.prepare()
    files = [os.path.abspath(f) for f in args.files] or record(targets)
    settle(files)
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read())
    print("# %s, %d processors, load %.1f, medians of %d rounds" %
          (cpu[1] if cpu else os.uname().machine, os.cpu_count(), os.getloadavg()[0], args.runs))
    if "engine" in args.only:
        engine(files, args.runs)
    if "process" in args.only:
        processes(files, args.runs, bench.crate("samply", "samply"))
    if "workers" in args.only:
        workers(files, args.runs)
    if "short" in args.only:
        short(args.runs)
    print("Load at the end: %.1f" % os.getloadavg()[0])


if __name__ == "__main__":
    main()
