"""Symbolizers side by side: names, lines and inlines for addresses of one file, cold, CPU of all.

Addresses are spread over the file's code: every function that nm knows, at its start and inside, about
2,000 of them. llvm-symbolizer, addr2line and eu-addr2line get the same list in the same order.
"""
import shutil
import subprocess


def addresses(file, limit=2000):
    out = subprocess.run(["nm", "--defined-only", "-S", "-n", file], capture_output=True, text=True).stdout
    out += subprocess.run(["nm", "-D", "--defined-only", "-S", "-n", file], capture_output=True, text=True).stdout
    found = set()
    for line in out.splitlines():
        part = line.split()
        if len(part) == 4 and part[2] in "tTwWi":
            start, size = int(part[0], 16), int(part[1], 16)
            found.update((start, start + size // 2) if size > 1 else (start,))
    found = sorted(found)
    step = max(1, len(found) // limit)
    return found[::step]


def tools(file):
    every = [("sp-sym --exe", ["sp-sym", "--exe", file]),
             ("llvm-symbolizer", ["llvm-symbolizer", "--obj=" + file]),
             ("addr2line -afiC", ["addr2line", "-afiC", "-e", file]),
             ("eu-addr2line -afiC", ["eu-addr2line", "-afiC", "-e", file])]
    return [(name, command) for name, command in every if shutil.which(command[0])]


def targets():
    """Files of this machine that have DWARF, their own or a debug package's."""
    libc = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True).stdout.strip()
    return [libc] + [f for f in (shutil.which("sp-sym"),) if f]


def bench_symbols(runs, rounds, median, table, path):
    """rounds, median, table, path: bench.py's."""
    rows = []
    for file in targets():
        asked = path("addresses")
        found = addresses(file)
        with open(asked, "w") as out:
            out.writelines("0x%x\n" % a for a in found)
        commands = [(name, "%s <%s 2>/dev/null || true" % (" ".join(command), asked), None)
                    for name, command in tools(file)]
        costs = rounds(commands, runs)
        ours = median([c.cpu for c in costs[commands[0][0]]])
        for name, _, _ in commands:
            cpu = median([c.cpu for c in costs[name]])
            rows.append([file.rsplit("/", 1)[-1], len(found), name, "%.1f" % (1000 * cpu),
                         "%.1f" % (1e6 * cpu / max(1, len(found))), "%.2f" % (cpu / ours if ours else 0),
                         "%.0f" % (median([c.rss for c in costs[name]]) / 1024)])
    table(["file", "addresses", "tool", "CPU ms", "us an address", "CPU against sp-sym", "RSS MiB"], rows)
