#!/usr/bin/env python3
"""The waits of a stream of sp-capture --off-cpu beside what tests/prog/off_cpu.c says that it did.

off_cpu.py STREAM TOLD WHAT STATE [WAKER [LESS_MS [late]]]

Of each line of TOLD that begins with WHAT there is a wait within its times, and the sum of all waits
of the thread within them is not more than they say; the last one with a state among STATE (a mask of
task state bits; 0: none is looked for). WAKER: "maker" (the line's last number woke it), "nobody"
(it was an interrupt) or "some".
"both": what was off the CPU is the time that passed without the thread's own CPU time, within 1 % of
the time that passed; with the samples on it, it adds up to all of it within 3 %: beside other tests,
late ticks of the sampling clock take some of those. Less what is neither (LESS_MS): what the host took
of all CPUs meanwhile, waits below the least, waits whose end no probe was told of, and 5 us for each wait:
a switch away is told so long after the scheduler has stopped the thread's CPU time. On a busy machine it is
longer, as the CPU looks for another thread first; samples see the thread on it until then, so that what they
have beyond its CPU time may be missing of what was off.
late: ends are found later, and when they were is reckoned to some microseconds: such a wait may end after
the line that it begins in, but not after the thread's next wait begins.
Prints what was found, and the waits beside lines that have none or wrong ones; wrong values end it with 1.
"""
import collections
import struct
import sys

from stream import SAMPLE, ext, records


def main(stream, told, what, state, waker="some", less="0", late=None):
    with open(stream, "rb") as f:
        data = f.read()
    waits = collections.defaultdict(list)
    for kind, _, _, _, p in ext(data):
        if kind == "wait":
            _, _, tid, ns, bits, _, by, _, comm, time = struct.unpack("<QiiQIiii16sQ", p)
            waits[tid].append((time, ns, bits, by, comm.rstrip(b"\0")))
    after = {}  # when the thread's next wait begins
    for w in waits.values():
        after.update(zip(w, (v[0] - v[1] for v in w[1:])))
    on = collections.defaultdict(list)
    for _, kind, _, r in records(data):
        if kind == SAMPLE and struct.unpack_from("<Q", r, 8)[0] == 1:
            tid, time, period = struct.unpack_from("<i", r, 28)[0], *struct.unpack_from("<QxxxxxxxxQ", r, 32)
            on[tid].append((time, period))
    n = right = 0
    why = collections.defaultdict(list)
    for line in open(told):
        word, tid, start, end, more = line.split()
        tid, start, end, more = int(tid), int(start), int(end), int(more)
        if word != what:
            continue
        if late:
            mine = [w for w in waits[tid] if start <= w[0] - w[1] < end and w[0] <= after.get(w, w[0])]
        else:
            mine = [w for w in waits[tid] if start <= w[0] - w[1] and w[0] <= end]
        off = sum(w[1] for w in mine)
        if what == "both":
            wall = end - start
            cpu = sum(period for time, period in on[tid] if start <= time <= end)
            print(f"wall {wall} off {off} of {wall - more} on {cpu} of {more}: sum {(off + cpu) / wall:.4f}")
            less_ns = int(less) * 1e6 + len(mine) * 5000  # see untimed_ms
            short_ns = wall * 0.01 + less_ns + max(cpu - more, 0)
            assert -short_ns < off - (wall - more) < wall * 0.01, "off the CPU"
            assert -wall * 0.03 - less_ns < cpu + off - wall < wall * 0.03, "both together"
            n += 1
            right += 1
            continue
        asleep = [w for w in mine if w[2] & int(state)]
        # What was there already, or came so fast that nobody slept, is no wait.
        if what != "nap" and not asleep and end - start < 1000000:
            continue
        n += 1
        if not asleep:
            # On a busy machine: runnable all the time, until what it would have slept for was there.
            if off > (end - start) * 0.8:
                right += 1
            else:
                why["no sleep"].append((tid, start, end))
            continue
        time, _, _, by, comm = asleep[-1]
        if off > end - start and not late:
            wrong = "longer than it took"
        # The 10 ms begin in the call, the wait at the switch away: 20 to 50 us later.
        elif what == "nap" and (len(asleep) != 1 or time < start + 10000000 or off < 9800000):
            wrong = "not one nap"
        elif waker == "maker" and (by != more or comm != b"off_cpu"):
            wrong = "another waker"
        elif waker == "nobody" and (by or comm):
            wrong = "a waker"
        else:
            right += 1
            continue
        why[wrong].append((tid, start, end))
    print(f"{right} of {n} right; wrong: { {k: len(v) for k, v in why.items()} }")
    for wrong, lines in why.items():
        for tid, start, end in lines[:4]:
            near = [(w[0] - w[1] - start, w[0] - end, *w[1:]) for w in waits[tid]
                    if w[0] > start - 1e7 and w[0] - w[1] < end + 1e7]
            print(f"{wrong}: {tid} {start} {end}; waits (begin, end beside that; ns, state, waker): {near}")
    assert n > 0, "nothing was told"
    assert right >= n * 0.9, "wrong waits"


main(*sys.argv[1:])
