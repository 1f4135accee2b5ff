#!/usr/bin/env python3
"""The waits of a stream of sp-capture --off-cpu, or of two that recorded a thread at the same time.

waits.py A: no thread waits twice at a time. Prints how many waits there are.
waits.py A B TID: of A's waits of the thread, within the time that both recorded, B has one that began
and ended when it did, and the other way round; 19 of 20 are enough, as the machine may stand still
between the two. Both have at least ten.
"""
import collections
import struct
import sys

from stream import ext

NEAR_NS = 200000


def waits(name):
    with open(name, "rb") as f:
        data = f.read()
    found = (struct.unpack("<QiiQIiii16sQ", p) for kind, _, _, _, p in ext(data) if kind == "wait")
    of = collections.defaultdict(list)
    for w in found:
        of[w[2]].append((w[9] - w[3], w[9]))
    return of


def near(a, b):
    return abs(a[0] - b[0]) < NEAR_NS and abs(a[1] - b[1]) < NEAR_NS


def apart(name):
    of = waits(name)
    print(sum(len(w) for w in of.values()))
    for tid, w in of.items():
        w.sort()
        wrong = [(x, y) for x, y in zip(w, w[1:]) if y[0] < x[1]]
        assert not wrong, f"{tid}: {wrong[:4]}, {len(wrong)} of {len(w)}"


def main(a, b, tid):
    a, b = waits(a)[int(tid)], waits(b)[int(tid)]
    begin, end = max(a[0][0], b[0][0]) - NEAR_NS, min(a[-1][1], b[-1][1]) + NEAR_NS
    a, b = ([w for w in x if begin <= w[0] and w[1] <= end] for x in (a, b))
    for x, y in (a, b), (b, a):
        good = sum(any(near(w, v) for v in y) for w in x)
        print(f"{good} of {len(x)}")
        assert len(x) >= 10 and good >= len(x) * 0.95


(main if len(sys.argv) > 2 else apart)(*sys.argv[1:])
