#!/usr/bin/env python3
"""Call chains, checked by value. Each command prints what it counted and fails below the share asked.

  chains.py raw FILE --holding NAME --chain REGEX [--min 95] [--samples 100] [--syms MODULE=ELF] [--calls MODULE]
      FILE is `sp-sym --format=raw`. The functions are looked up here, in the symbol tables of the
      programs under $SP_PROG, by file offset: no name of ours is trusted. A frame elsewhere is
      called by its module's base name; one in a PLT section is "[plt]"; a stack that was cut begins
      with "[truncated]". A sample is the text of its names from root to leaf, each ended by ';'.
      Of the samples that hold NAME, --min percent must match REGEX. --calls: each caller in that
      module stands on the last byte of a call instruction.

  chains.py folded FILE --holding REGEX --chain REGEX [--min 95] [--samples 100]
      The same for folded text: our names.

  chains.py identical PERF OURS --root REGEX [--min 90]
      Two texts of perf script. Where the last two lines of perf's sample match REGEX, its stack is
      complete, and ours is the same bytes; at least --min percent of perf's samples are, so that the
      comparison means something.

  chains.py continues PERF OURS [--min 95]
      perf's text and ours (`sp-sym --format=text --no-inline`, or perf's of our stream): the same
      samples, and in each the addresses, files and functions of perf, from the leaf on; ours may go
      on. Functions are compared in the programs under $SP_PROG.
"""
import argparse
import bisect
import collections
import os
import re
import subprocess
import sys

PROGRAMS = os.path.realpath(os.environ.get("SP_PROG", "build/tests/prog"))


class Elf:
    """Functions of an ELF file by file offset, its PLT sections, the ends of its calls."""

    def __init__(self, path):
        self.path, self.starts, self.symbols, self.plts, self.loads = path, [], [], [], []
        for line in self.tool("readelf", "-lW"):
            f = line.split()
            if len(f) > 5 and f[0] == "LOAD":
                self.loads.append((int(f[1], 16), int(f[2], 16), int(f[4], 16)))
        for line in self.tool("readelf", "-SW"):
            m = re.match(r"\s*\[\s*\d+\]\s+(\.plt\S*|\.iplt)\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", line)
            if m:
                self.plts.append((int(m[2], 16), int(m[2], 16) + int(m[3], 16)))
        found = {}
        for line in self.tool("readelf", "-sW"):
            f = line.split()
            if len(f) == 8 and f[3] in ("FUNC", "NOTYPE", "IFUNC") and f[6].isdigit():
                size = int(f[2], 0)
                if f[3] == "NOTYPE" and f[7] != "_start":
                    continue
                old = found.get(int(f[1], 16))
                if not old or size > old[1]:
                    found[int(f[1], 16)] = (f[7].split("@")[0], size)
        starts = sorted(found)
        for i, start in enumerate(starts):
            name, size = found[start]
            end = start + size if size else (starts[i + 1] if i + 1 < len(starts) else start + 64)
            self.starts.append(self.offset(start))
            self.symbols.append((self.offset(start), self.offset(end - 1) + 1, name))
        order = sorted(range(len(self.starts)), key=lambda i: self.starts[i])
        self.starts = [self.starts[i] for i in order]
        self.symbols = [self.symbols[i] for i in order]
        self.plts = [(self.offset(a), self.offset(b - 1) + 1) for a, b in self.plts]

    def tool(self, *argv):
        return subprocess.run([*argv, self.path], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()

    def offset(self, svma):
        for foff, start, size in self.loads:
            if start <= svma < start + size:
                return svma - start + foff
        return svma

    def name(self, foff):
        for a, b in self.plts:
            if a <= foff < b:
                return "[plt]"
        i = bisect.bisect_right(self.starts, foff) - 1
        if i >= 0 and foff < self.symbols[i][1]:
            return self.symbols[i][2]
        return "%s+%#x" % (os.path.basename(self.path), foff)

    def call_ends(self):
        """File offsets of the last bytes of call instructions."""
        ends, call = set(), False
        for line in self.tool("objdump", "-dw", "--no-show-raw-insn"):
            m = re.match(r"\s*([0-9a-f]+):\s+(.*)", line)
            if m:
                if call:
                    ends.add(self.offset(int(m[1], 16) - 1))
                call = re.match(r"((bnd|notrack|addr32|rex\S*) )*l?call", m[2]) is not None
            elif call and not line.strip():
                call = False       # the last instruction of a function: its end is the next one's start
        return ends


def read_raw(path):
    samples, now = [], None
    with open(path, errors="surrogateescape") as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("sample "):
                now = []
                samples.append((line.split(" "), now))
            elif line == "\t[truncated]":
                now.append(None)
            elif line.startswith("\t"):
                head, rest = line[1:].split(" ", 1)
                module, foff = rest.rsplit(" ", 1)
                now.append((int(head, 16), module, int(foff, 16)))
            elif line:
                sys.exit("not a line of raw: %r" % line)
    return samples


def verdict(what, holding, good, wrong, least, samples):
    share = 100.0 * good / holding if holding else 0.0
    print("%s: %d of %d right (%.2f %%, %g due)" % (what, good, holding, share, least))
    for text, n in wrong.most_common(8):
        print("  %5d x %s" % (n, text))
    if holding < samples:
        print("  only %d samples, %d needed" % (holding, samples))
    return 0 if share >= least and holding >= samples else 1


def cmd_raw(args):
    elves, syms = {}, dict(s.split("=", 1) for s in args.syms)

    def elf_of(module):
        if module not in elves:
            base = os.path.basename(module)
            path = syms.get(base, module if os.path.realpath(module).startswith(PROGRAMS + "/") else None)
            elves[module] = Elf(path) if path and os.path.exists(path) else None
        return elves[module]

    def name(frame):
        if frame is None:
            return "[truncated]"
        elf = elf_of(frame[1])
        return elf.name(frame[2]) if elf else os.path.basename(frame[1])

    holding = good = stray = callers = 0
    wrong, ends = collections.Counter(), {}
    chain = re.compile(args.chain)
    for _, frames in read_raw(args.file):
        names = [name(f) for f in frames]
        if args.holding not in names:
            continue
        holding += 1
        text = "".join(n + ";" for n in reversed(names))
        if chain.search(text):
            good += 1
        else:
            wrong[text] += 1
        for under, frame in zip(frames, frames[1:]) if args.calls else []:
            # The first user frame under kernel frames is where the program entered the kernel.
            if frame is None or os.path.basename(frame[1]) != args.calls or under[1] == "[kernel]":
                continue
            if frame[1] not in ends:
                ends[frame[1]] = elf_of(frame[1]).call_ends()
            callers += 1
            if frame[2] not in ends[frame[1]]:
                stray += 1
                wrong["%s+%#x is not the last byte of a call" % (name(frame), frame[2])] += 1
    status = verdict("samples that hold %s" % args.holding, holding, good, wrong, args.min, args.samples)
    if args.calls:
        print("callers on the last byte of a call: %d of %d" % (callers - stray, callers))
        if stray or not callers:
            status = 1
    return status


def cmd_folded(args):
    holding = good = 0
    wrong = collections.Counter()
    hold, chain = re.compile(args.holding), re.compile(args.chain)
    with open(args.file, errors="surrogateescape") as f:
        for line in f:
            stack, _, count = line.rstrip("\n").rpartition(" ")
            if not hold.search(stack):
                continue
            holding += int(count)
            if chain.search(stack):
                good += int(count)
            else:
                wrong[stack] += int(count)
    return verdict("samples that match %s" % args.holding, holding, good, wrong, args.min, args.samples)


def blocks(path):
    with open(path, errors="surrogateescape") as f:
        return [b.split("\n") for b in f.read().strip("\n").split("\n\n") if b]


def key(block):
    """pid/tid and time of a sample's first line."""
    m = re.search(r"\s(-?\d+(?:/-?\d+)?)\s+(?:\[\d+\]\s+)?(\d+\.\d+):", block[0])
    return m and (m[1].split("/")[-1], m[2])


def pair(perf, ours):
    """perf's blocks with ours: same thread and time, in order when several are equal."""
    table = collections.defaultdict(collections.deque)
    for b in ours:
        table[key(b)].append(b)
    for b in perf:
        yield b, table[key(b)].popleft() if table[key(b)] else None


def cmd_identical(args):
    perf, ours = blocks(args.perf), blocks(args.ours)
    root, complete, same = re.compile(args.root), 0, 0
    wrong = collections.Counter()
    for p, o in pair(perf, ours):
        if not root.search("\n".join(p[-2:])):
            continue
        complete += 1
        if p == o:
            same += 1
        else:
            wrong["\n    ".join(["perf:", *p, "ours:", *(o or ["no such sample"])])] += 1
    share = 100.0 * complete / len(perf) if perf else 0
    print("perf: %d samples, %.1f %% of them complete; ours: %d samples" % (len(perf), share, len(ours)))
    status = verdict("identical", complete, same, wrong, 100, args.samples)
    return status or (len(perf) != len(ours)) or share < args.min


def plain(name):
    """A demangled name as perf prints it: without parameters and return type."""
    depth, end, begin = 0, len(name), 0
    for i, c in enumerate(name):
        if c in "<(":
            if c == "(" and depth == 0 and i > begin:
                end = i
                break
            depth += 1
        elif c in ">)":
            depth -= 1
        elif c == " " and depth == 0:
            begin = i + 1
    return name[begin:end]


def frame(line):
    """(address, file, function+offset) of a frame line; of the known programs' functions only: the C
    library's have several names for one address, and perf and we may choose differently."""
    m = re.match(r"\s*([0-9a-f]+) (.*) \((.*)\)$", line)
    if not m:
        return None
    name = re.match(r"(.*)\+0x([0-9a-f]+)$", m[2])
    known = name and os.path.realpath(m[3]).startswith(PROGRAMS + "/")
    return int(m[1], 16), m[3], "%s+%s" % (plain(name[1]), name[2]) if known else None


def cmd_continues(args):
    perf, ours = blocks(args.perf), blocks(args.ours)
    good, longer, wrong = 0, 0, collections.Counter()
    for p, o in pair(perf, ours):
        theirs = [frame(x) for x in p[1:]]
        mine = [frame(x) for x in o[1:]] if o else []
        match = None not in theirs and theirs == mine[:len(theirs)]
        if match and o:
            good += 1
            longer += len(mine) > len(theirs)
        else:
            wrong["\n    ".join(["perf:", *p, "ours:", *(o or ["no such sample"])])] += 1
    print("%d samples of perf, %d of ours; in %d ours goes on" % (len(perf), len(ours), longer))
    return verdict("ours begins as perf's", len(perf), good, wrong, args.min, args.samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, files in (("raw", cmd_raw, ["file"]), ("folded", cmd_folded, ["file"]),
                             ("identical", cmd_identical, ["perf", "ours"]),
                             ("continues", cmd_continues, ["perf", "ours"])):
        p = commands.add_parser(name)
        p.set_defaults(run=run)
        for f in files:
            p.add_argument(f)
        p.add_argument("--min", type=float, default=90 if name == "identical" else 95)
        p.add_argument("--samples", type=int, default=100)
        if name in ("raw", "folded"):
            p.add_argument("--holding", required=True)
            p.add_argument("--chain", required=True)
        if name == "raw":
            p.add_argument("--syms", action="append", default=[])
            p.add_argument("--calls")
        if name == "identical":
            p.add_argument("--root", required=True)
    args = parser.parse_args()
    sys.exit(args.run(args))


if __name__ == "__main__":
    main()
