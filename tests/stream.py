#!/usr/bin/env python3
"""Looks into a stream of sp-capture, by its documented layout.

stream.py order FILE     every kernel-type record is in time order, under the one canonical id; but one in
                         a thousand, where the stream counts as many as out_of_order: the host may
                         stop a CPU between a record's time and its writing
stream.py ext FILE       our own records, one a line: KIND text
stream.py objects FILE   embedded objects, one a line: KIND PID SIZE PATH
stream.py object FILE PATH   the bytes of an embedded object
stream.py stacks FILE    pid, tid, stack bytes kept, size of the record, time of every sample
stream.py cpus FILE      pid, CPU, number of samples
stream.py doubled FILE US  the threads of which two samples in five, of five at least, follow the one before on
                         the same CPU in less than US: two events sample them
stream.py forks FILE     pid, tid, parent's pid of every birth
stream.py types FILE     how many records of each type
stream.py until FILE KIND N PID…   wait until FILE, which grows, holds N of KIND - samples, waits - of each
                         PID; a minute at most
"""
import collections
import mmap
import os
import struct
import sys
from time import monotonic, sleep

KINDS = {1: "start", 2: "exec", 3: "runtime", 4: "object", 5: "loss", 6: "counters", 7: "end", 8: "tail", 9: "wait"}
FORK, SAMPLE, EXT = 7, 9, 65


def records(data):
    assert data[:8] == b"PERFILE2" and struct.unpack_from("<Q", data, 8) == (16,), "no pipe header"
    at = 16
    while at < len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        assert size >= 8 and at + size <= len(data), f"a cut record at {at}"
        yield at, kind, misc, data[at:at + size]
        at += size


def growing(f, end):
    """The records of a file that is being written, each once, until end."""
    at, size = 16, 8
    while monotonic() < end:
        if os.fstat(f.fileno()).st_size < at + size:
            sleep(0.02)
            continue
        record = os.pread(f.fileno(), size, at)
        kind, _, whole = struct.unpack_from("<IHH", record)
        assert whole >= 8, f"a record without length at {at}"
        if size == whole:
            yield kind, record
            at, size = at + whole, 8
        else:
            size = whole


def wait_until(f, kind, n, *pids):
    left = {int(pid): int(n) for pid in pids}
    end = monotonic() + 60
    for number, r in growing(f, end):
        if kind == "samples" and number == SAMPLE:
            pid = struct.unpack_from("<i", r, 24)[0]
        elif kind == "waits" and number == EXT and KINDS.get(struct.unpack_from("<H", r, 18)[0]) == "wait":
            pid = struct.unpack_from("<i", r, 48 + 8)[0]
        else:
            continue
        if pid in left:
            left[pid] -= 1
            if left[pid] <= 0:
                del left[pid]
                if not left:
                    return
    sys.exit(f"{kind} of these processes lack after a minute: {left}")


def ext(data):
    for _, kind, _, r in records(data):
        if kind == EXT:
            assert len(r) % 8 == 0 and len(r) >= 80 and r[8:16] == b"STKPULSE"
            _, what, n, number, offset, total = struct.unpack_from("<HHIQQQ", r, 16)
            yield KINDS.get(what, str(what)), number, offset, total, r[48:48 + n]


def objects(data):
    parts = collections.defaultdict(bytes)
    for kind, number, offset, total, payload in ext(data):
        if kind != "object":
            continue
        assert offset == len(parts[number]), "fragments out of order"
        parts[number] += payload
        if len(parts[number]) == total:
            p = parts.pop(number)
            what, pid = struct.unpack_from("<Ii", p)
            n, = struct.unpack_from("<I", p, 72)
            yield what, pid, p[76:76 + n].decode(errors="replace"), p[76 + n:]
    assert not parts, "objects that are not whole"


def sample(r):
    """pid, tid, time in ns, stack bytes used, stack bytes written"""
    pid, tid, ns = struct.unpack_from("<iiQ", r, 24)
    n, = struct.unpack_from("<Q", r, 56)
    at = 64 + 8 * n
    abi, = struct.unpack_from("<Q", r, at)
    at += 8 + (17 * 8 if abi else 0)
    size, = struct.unpack_from("<Q", r, at)
    used = 0
    at += 8 + size
    if size:
        used, = struct.unpack_from("<Q", r, at)
        at += 8
    assert at == len(r) and size % 8 == 0 and size == (used + 7) // 8 * 8
    return pid, tid, ns, used, size


def main(what, path, *args):
    with open(path, "rb") as f:
        if what == "until":
            return wait_until(f, *args)
        try:
            data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # a pipe; nothing
            data = f.read()
    if what == "order":
        last = n = 0
        late = []
        for at, kind, _, r in records(data):
            if kind >= 64:
                continue
            n += 1
            time = sample(r)[2] if kind == SAMPLE else struct.unpack_from("<Q", r, len(r) - 24)[0]
            number = struct.unpack_from("<Q", r, 8 if kind == SAMPLE else len(r) - 8)[0]
            assert number in (1, 2), f"id {number} at {at}"
            if time < last:
                late.append(f"at {at}, type {kind}: {time} after {last}")
            last = max(time, last)
        counts = b"".join(p for kind, _, _, _, p in ext(data) if kind == "counters").split(b"\n")
        known = sum(int(line.split()[1]) for line in counts if line.startswith(b"out_of_order "))
        assert len(late) <= min(known, n / 1000 + 1), f"{len(late)} of {n}, {known} counted: {late[:4]}"
    elif what == "ext":
        for kind, _, _, _, p in ext(data):
            if kind in ("start", "counters", "end"):
                print(kind, " ".join(p.decode().split("\n")))
            elif kind == "exec":
                print(kind, *struct.unpack_from("<iI", p, 8), p[16:].replace(b"\0", b" ").decode(errors="replace"))
            elif kind == "runtime":
                print(kind, *struct.unpack_from("<iII", p, 8))
            elif kind == "loss":
                print(kind, *struct.unpack_from("<QQIIQ", p))
            elif kind == "wait":
                _, pid, tid, ns, state, waker_pid, waker, _, comm, time = struct.unpack("<QiiQIiii16sQ", p)
                print(kind, pid, tid, ns, state, waker_pid, waker, time, comm.rstrip(b"\0").decode(errors="replace"))
    elif what == "objects":
        for kind, pid, name, p in objects(data):
            print(kind, pid, len(p), name)
    elif what == "object":
        for _, _, name, p in objects(data):
            if name == args[0]:
                sys.stdout.buffer.write(p)
                return
        sys.exit("no such object")
    elif what == "stacks":
        for _, kind, _, r in records(data):
            if kind == SAMPLE:
                pid, tid, time, used, _ = sample(r)
                print(pid, tid, used, len(r), time)
    elif what == "cpus":
        n = collections.Counter((sample(r)[0], struct.unpack_from("<I", r, 40)[0])
                                for _, kind, _, r in records(data) if kind == SAMPLE)
        for (pid, cpu), count in sorted(n.items()):
            print(pid, cpu, count)
    elif what == "doubled":
        last, gaps, close = {}, collections.Counter(), collections.Counter()
        for _, kind, _, r in records(data):
            if kind == SAMPLE:
                _, tid, time, _, _ = sample(r)
                key = tid, struct.unpack_from("<I", r, 40)[0]
                if key in last:
                    gaps[key] += 1
                    close[key] += time - last[key] < int(args[0]) * 1000
                last[key] = time
        print(*(key[0] for key in gaps if gaps[key] >= 5 and close[key] >= 0.4 * gaps[key]))
    elif what == "forks":
        for _, kind, _, r in records(data):
            if kind == FORK:
                pid, ppid, tid = struct.unpack_from("<iii", r, 8)
                print(pid, tid, ppid)
    elif what == "types":
        for kind, n in sorted(collections.Counter(k for _, k, _, _ in records(data)).items()):
            print(kind, n)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
