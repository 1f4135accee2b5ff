"""Symbolizers side by side: names, lines and inlines for addresses of one file; and of a recording.

For each file: the addresses that a recording of a program has in it where there are a hundred, else
spread over its code (each function that nm knows, at its start and inside), about 2,000. Every tool
gets the same list in the same order. sp-sym: without its cache, with an empty one that it fills, with
a full one.

The largest file has more than 100 MB: one unit of C++ with its DWARF, linked 48 times under other
names. Then one recording of cpp to folded text with inlines: sp-sym, the Rust crate stackpulse on a
spool of its own, perf script with inlines.
"""
import glob
import os
import shutil
import subprocess

COPIES = 48
PYTHON = "import json, re; [json.loads(json.dumps({str(i): [i] * 9})) and re.findall('[a-f]+', 'abc x ' * 99) for i in range(40000)]"


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, **more).stdout


def addresses(file, limit=2000):
    out = run(["nm", "--defined-only", "-S", "-n", file]) + run(["nm", "-D", "--defined-only", "-S", "-n", file])
    found = set()
    for line in out.splitlines():
        part = line.split()
        if len(part) == 4 and part[2] in "tTwWi":
            start, size = int(part[0], 16), int(part[1], 16)
            found.update((start, start + size // 2) if size > 1 else (start,))
    found = sorted(found)
    step = max(1, len(found) // limit)
    return found[::step]


def segments(file):
    """(file offset, address, bytes) of each PT_LOAD."""
    lines = [line.split() for line in run(["readelf", "-lW", file]).splitlines()]
    return [(int(p[1], 16), int(p[2], 16), int(p[4], 16)) for p in lines if p and p[0] == "LOAD"]


def recorded(command, path):
    """{file: addresses} of a recording of a command."""
    pipe = "sp-capture -q -F 4999 -- %s 2>/dev/null | sp-unwind -q | sp-spool -q -o names.spool" % command
    subprocess.run(["bash", "-c", pipe], cwd=os.path.dirname(path("x")), stdout=subprocess.DEVNULL)
    found, loads = {}, {}
    for line in run(["sp-sym", "-f", "raw", path("names.spool")]).splitlines():
        if not line.startswith("\t") or line == "\t[truncated]":
            continue
        _, file, offset = line[1:].split(" ")[:3]
        if not os.path.isfile(file):
            continue
        if file not in loads:
            loads[file] = segments(file)
        for start, svma, size in loads[file]:
            if start <= int(offset, 16) < start + size:
                found.setdefault(os.path.realpath(file), set()).add(int(offset, 16) - start + svma)
    return {file: sorted(svmas) for file, svmas in found.items()}


def large(path):
    """A library of more than 100 MB with full DWARF, built once: its functions differ in nothing but
    their place and the end of their names."""
    out, source = path("large.so"), os.path.join(os.path.dirname(os.path.abspath(__file__)), "big.cc")
    if not os.path.exists(out):
        script = """set -e; g++ -O1 -g -fPIC -c -o one.o %s
            nm --defined-only one.o | awk '{ print $3 }' | sort -u >names
            for k in $(seq %d); do
                awk -v k=$k '{ print $1 " " $1 ".v" k }' names >map
                objcopy --redefine-syms=map one.o copy$k.o
            done
            g++ -shared -o %s copy*.o; rm -f copy*.o one.o map names""" % (source, COPIES, out)
        subprocess.run(["bash", "-c", script], check=True, cwd=os.path.dirname(out))
    return out


def python_with_debug():
    """A python program and the file with its code, when that has DWARF."""
    for program in [shutil.which("python3")] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))):
        if not program:
            continue
        file = run(["bash", "-c", "ldd %s | awk '/libpython/ { print $3 }'" % program]).strip() or os.path.realpath(program)
        if ".debug_info" in run(["readelf", "-SW", file]):
            return program, file
    return None, None


def targets(path, typescript):
    """(name, file, addresses, where they are from)."""
    here = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(path("cpp")):
        subprocess.run(["g++", "-O2", "-g", "-pthread", "-o", path("cpp"), os.path.join(here, "cpp.cc")], check=True)
    program, python = python_with_debug()
    files = [("cpp, full DWARF", path("cpp"), "./cpp 2"),
             ("libc, debug package", run(["gcc", "-print-file-name=libc.so.6"]).strip(), None),
             ("python with DWARF", python, program and "%s -c \"%s\"" % (program, PYTHON)),
             ("node", shutil.which("node"), typescript), ("over 100 MB", large(path), None)]
    for name, file, command in files:
        if not file:
            continue
        file = os.path.realpath(file)
        found = recorded(command, path).get(file, []) if command else []
        yield (name, file, found, "recorded") if len(found) >= 100 else (name, file, addresses(file), "nm")


def tools(file, asked):
    """(name, command): the shell that starts them is replaced by them."""
    cache = "export XDG_CACHE_HOME=$PWD/symbols-cache/%s; exec sp-sym --exe %s <%s 2>/dev/null"
    every = [("sp-sym --no-cache", "exec sp-sym --no-cache --exe %s <%s 2>/dev/null" % (file, asked)),
             ("sp-sym, empty cache", cache % ("$$", file, asked)),
             ("sp-sym, full cache", cache % ("full", file, asked)),
             ("llvm-symbolizer", "exec llvm-symbolizer --obj=%s <%s 2>/dev/null" % (file, asked)),
             ("addr2line -afiC", "exec addr2line -afiC -e %s <%s 2>/dev/null" % (file, asked)),
             # It ends with 1 on addresses that it does not know, which is an answer and no failure; what it costs is measured.
             ("eu-addr2line -afiC", "eu-addr2line -afiC -e %s <%s 2>/dev/null || true" % (file, asked))]
    return [(name, command) for name, command in every if "sp-sym" in name or shutil.which(name.split()[0])]


def bench_files(runs, bench):
    rows = []
    for name, file, found, origin in targets(bench.path, bench.typescript()):
        bench.say("Naming %d addresses of %s (%s) …" % (len(found), file, origin))
        asked = bench.path("addresses")
        with open(asked, "w") as out:
            out.writelines("0x%x\n" % a for a in found)
        commands = [(tool, command, 1 if tool.startswith("eu-") else None) for tool, command in tools(file, asked)]
        bench.measure(dict(tools(file, asked))["sp-sym, full cache"])  # which fills it
        costs = bench.rounds(commands, runs)
        cpu = {tool: bench.median([c.cpu for c in costs[tool]]) for tool, _, _ in commands}
        best = min(v for tool, v in cpu.items() if not tool.startswith("sp-sym"))
        for tool, _, _ in commands:
            rows.append([name, "%d %s" % (len(found), origin), tool, "%.1f" % (1000 * cpu[tool]),
                         "%.1f" % (1e6 * cpu[tool] / max(1, len(found))),
                         "%.1f" % (best / cpu[tool]) if cpu[tool] else "",
                         "%.0f" % (bench.median([c.rss for c in costs[tool]]) / 1024)])
    print("\n## Names of one file: CPU; the best peer's, divided by it")
    bench.table(["file", "addresses", "tool", "CPU ms", "us an address", "best peer / this", "RSS MiB"], rows)


def bench_recording(runs, bench, crate):
    """One recording to folded text, with inlines."""
    sh, path = bench.sh, bench.path
    sh("perf record -q -F 999 --call-graph dwarf,%d -o names.data -- ./cpp 2" % bench.STACK)
    sh("sp-unwind -q names.data | sp-spool -q -o names.spool")
    fold = "sp-sym -q -f folded"
    commands = [("sp-sym --no-cache", fold + " --no-cache names.spool", None),
                ("sp-sym, full cache", fold + " names.spool", None)]
    if crate:
        recorder, folder = crate
        sh("%s 999 %d 0 crate.spool ./cpp 2" % (recorder, bench.STACK), check=False)
        commands.append(("crate, its own spool", "%s crate.spool" % folder, None))
    commands.append(("perf script, inlines", "perf script -i names.data 2>/dev/null", 1))
    bench.measure(commands[1][1])
    costs = bench.rounds(commands, runs)
    ours = bench.median([c.cpu for c in costs[commands[0][0]]])
    print("\n## A recording of cpp (full DWARF, 999 Hz) to folded text with inlines: naming alone")
    bench.table(["tool", "CPU ms", "CPU against sp-sym", "RSS MiB"],
                [[tool, "%.1f" % (1000 * bench.median([c.cpu for c in costs[tool]])),
                  "%.1f" % (bench.median([c.cpu for c in costs[tool]]) / ours if ours else 0),
                  "%.0f" % (bench.median([c.rss for c in costs[tool]]) / 1024)] for tool, _, _ in commands])
    for name in ("names.data", "names.spool", "crate.spool"):
        if os.path.exists(path(name)):
            os.unlink(path(name))


def bench_symbols(runs, bench, crate):
    """bench: the module bench; crate: the crate's recorder and folder, or None."""
    bench_files(runs, bench)
    bench_recording(runs, bench, crate)
    shutil.rmtree(bench.path("symbols-cache"), ignore_errors=True)
