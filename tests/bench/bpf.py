#!/usr/bin/env python3
"""The BPF engine beside the perf engine, and waits beside the peers.

    make bench-bpf BPFBENCH='[--runs N] [--only start,samples,loss,all,switches,waits]'

start:    from the command to its end, wall clock and CPU, with nothing to record.
samples:  ring bytes and our CPU per sample, complete stacks, the interruption that the target sees (the
          median of its gaps), for stacks of several depths.
loss:     four threads at 4999 Hz beside four CPU hogs.
all:      -a for two seconds beside perf record -a: CPU time per sample, lost, bytes; two busy threads and two
          deep stacks run.
switches: what a switch costs the target more (ns of its CPU time, two threads and two pipes on one CPU).
waits:    a process that naps for 10 ms in turns, looked at for two seconds: the time off the CPU that a recorder
          finds, and the share of it whose stack reaches main.
Peers: perf record; offcputime of libbpf-tools where it is installed, perf record --off-cpu where it
is built in. Medians of interleaved runs. Nothing is asserted.
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import time

import bench as b

ENGINES = {
    "perf 16K": "--engine=perf -s 16K",
    "perf 60K": "--engine=perf -s 60K",
    "bpf": "--engine=bpf",
}


def last_json(name):
    with open(b.path(name)) as f:
        return json.loads([line for line in f if line.startswith("{")][-1])


def stack_bytes(stream):
    """The mean of what samples used of their stacks."""
    n = total = 0
    with open(b.path(stream), "rb") as f:
        data = f.read()
    at = 16
    while at < len(data):
        kind, _, size = struct.unpack_from("<IHH", data, at)
        if kind == 9:
            chain, = struct.unpack_from("<Q", data, at + 56)
            regs = at + 64 + chain * 8
            total += struct.unpack_from("<Q", data, regs + 8 + 17 * 8)[0]
            n += 1
        elif kind == 65 and struct.unpack_from("<H", data, at + 18)[0] == 8:
            total += struct.unpack_from("<I", data, at + 20)[0]
        at += size
    return total / max(n, 1)


def complete(stream):
    out = b.sh("sp-unwind <%s 2>&1 >/dev/null" % stream, check=False).stdout
    return out.split("samples, ")[-1].split(" complete")[0] if "complete" in out else "-"


def samples(runs):
    targets = {"deep 10": "./deep 10 400", "deep 200": "./deep 200 400", "deep 1900": "./deep 1900 400",
               "threads": "./threads 150"}
    rows = []
    for target, command in targets.items():
        b.say("BPF, samples: %s …" % target)
        for engine, options in ENGINES.items():
            cpu = []
            for _ in range(runs):
                b.sh("sp-capture --stats=json -F 999 %s -- %s >s.stream 2>s.log" % (options, command))
                stats = last_json("s.log")
                cpu.append(stats["cpu_us"] / max(stats["samples"], 1))
            used = stack_bytes("s.stream")
            ring = stats["ring_written"] / max(stats["samples"], 1)
            if not ring: # what the kernel reserves for each sample
                ring = min(64 + 16 + 17 * 8 + 16 + int(options.split()[-1][:-1]) * 1024, 65535)
            rows.append([target, engine, stats["samples"], "%.0f" % used, "%.0f" % ring, "%.2f" % (ring / max(used, 1)),
                         "%.1f" % b.median(cpu), complete("s.stream")])
    b.table(["target, 999 Hz", "engine", "samples", "stack bytes used", "ring bytes", "ring / used", "our CPU us",
             "complete"], rows)
    rows = []
    for hz in 999, 4999:
        seen = {"none": []} | {engine: [] for engine in ENGINES}
        for _ in range(runs):
            seen["none"].append(float(b.sh("./switches gaps 600").stdout))
            for engine, options in ENGINES.items():
                seen[engine].append(float(b.sh(
                    "sp-capture -q -F %d %s -- ./switches gaps 600 2>&1 >s.stream" % (hz, options)).stdout))
        rows.append([hz] + ["%.1f" % (b.median(v) / 1000) for v in seen.values()])
    b.table(["Hz; median gap of the target, us", "none"] + list(ENGINES), rows)


def loss(runs):
    rows = []
    for _ in range(runs):
        for engine in list(ENGINES) + ["perf record"]:
            hogs = [subprocess.Popen([b.path("switches"), "gaps", "20000"], stdout=subprocess.DEVNULL) for _ in range(4)]
            if engine == "perf record":
                out = b.sh("perf record -q -F 4999 --call-graph dwarf,61440 -o l.data ./threads 500 2>&1; "
                           "perf report --stats -i l.data 2>/dev/null", check=False).stdout
                count = {line.split(":")[0].strip(): line.split(":")[1].split()[0] for line in out.split("\n") if "events:" in line}
                row = [engine, count.get("SAMPLE events", "-"), count.get("LOST_SAMPLES events", count.get("LOST events", "0"))]
            else:
                b.sh("sp-capture --stats=json -F 4999 %s -- ./threads 500 2>l.log | cat >/dev/null" % ENGINES[engine])
                stats = last_json("l.log")
                row = [engine, stats["samples"], stats["lost_events"]]
            for hog in hogs:
                hog.kill()
                hog.wait()
            rows.append(row)
    b.table(["4 threads at 4999 Hz, 4 hogs", "samples", "lost"], sorted(rows, key=lambda r: r[0]))


def spent(command):
    """Wall clock and CPU time of a command and its children, ms."""
    before, begin = os.times(), time.monotonic()
    b.sh(command)
    after = os.times()
    return ((time.monotonic() - begin) * 1000,
            (after.children_user + after.children_system - before.children_user - before.children_system) * 1000)


def start(runs):
    rows = []
    ways = {"-- true": "-- true", "-p PID": "-p %d -d 0" % os.getpid(), "-a": "-a -d 0"}
    for name, options in ways.items():
        for engine in "perf", "bpf":
            seen = [spent("sp-capture -q --engine=%s %s >st.stream 2>/dev/null" % (engine, options)) for _ in range(runs * 2)]
            rows.append([name, engine] + ["%.0f" % min(v[i] for v in seen) for i in (0, 1)])
    b.table(["start and end", "engine", "wall ms, least", "CPU ms, least"], rows)


def whole_machine(runs):
    busy = [subprocess.Popen([b.path(name), *args], stdout=subprocess.DEVNULL)
            for name, *args in (["switches", "gaps", "600000"], ["deep", "200", "600000"]) * 2]
    ways = {engine: "sp-capture --stats=json %s -F %%d -a -d 2 2>a.log >a.stream" % options for engine, options in ENGINES.items()}
    ways["perf record 16K"] = "perf record -q -F %d -a --call-graph dwarf,16384 -o a.stream sleep 2 2>a.log"
    ways["perf record 60K"] = "perf record -q -F %d -a --call-graph dwarf,61440 -o a.stream sleep 2 2>a.log"
    rows = []
    for hz in 99, 999, 4999:
        seen = {name: [] for name in ways}
        for _ in range(runs):
            for name, command in ways.items():
                _, cpu_ms = spent(command % hz)
                if name.startswith("perf record"):
                    out = b.sh("perf report --stats -i a.stream 2>/dev/null", check=False).stdout
                    count = {line.split(":")[0].strip(): int(line.split(":")[1].split()[0])
                             for line in out.split("\n") if "events:" in line}
                    n = count.get("SAMPLE events", 0)
                    lost = count.get("LOST_SAMPLES events", count.get("LOST events", 0))
                else:
                    stats = last_json("a.log")
                    n, lost = stats["samples"], stats["lost_events"]
                seen[name].append((n, lost, cpu_ms * 1000 / max(n, 1), os.path.getsize(b.path("a.stream")) / max(n, 1)))
        for name, v in seen.items():
            n, lost, cpu, size = ([x[i] for x in v] for i in range(4))
            rows.append([hz, name, "%.0f" % b.median(n), sum(lost), "%.1f" % b.median(cpu), "%.0f" % b.median(size)])
    for process in busy:
        process.kill()
        process.wait()
    b.table(["-a, 2 s; Hz", "recorder", "samples", "lost in all runs", "CPU us a sample", "bytes a sample"], rows)


def beside(command, seconds=1.2):
    """ns a switch while a peer watches it: the peer begins first."""
    run = subprocess.Popen([b.path("switches"), "pingpong", str(int((seconds + 1.5) * 1000))], stdout=subprocess.PIPE, text=True)
    peer = subprocess.Popen(command + ["-p", str(run.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    out = run.communicate()[0]
    peer.terminate()
    peer.wait()
    return float(out)


def off_cpu_peers():
    """Commands that are here and record time off the CPU, to be followed by -p PID."""
    peers = {}
    tool = shutil.which("offcputime") or shutil.which("offcputime", path="/usr/sbin")
    if tool:
        peers["offcputime"] = [tool]
    if shutil.which("perf") and "ignored" not in b.sh("perf record --off-cpu -q -o p.data true 2>&1", check=False).stdout:
        peers["perf record --off-cpu"] = ["perf", "record", "-q", "--off-cpu", "-g", "-o", b.path("p.data")]
    return peers


def switches(runs):
    ways = {"none": None, "perf engine": "--engine=perf", "bpf engine": "--engine=bpf",
            "perf engine, --off-cpu": "--engine=perf --off-cpu",
            "--off-cpu=1s (below the least)": "--off-cpu=1s", "--off-cpu=1s -k": "--off-cpu=1s -k",
            "--off-cpu=1s, before 6.18": "--off-cpu=1s", "--off-cpu (each, 20,000/s)": "--off-cpu"}
    seen = {name: [] for name in ways}
    peers = off_cpu_peers()
    if "offcputime" in peers:
        peers["offcputime -m 1000000"] = peers["offcputime"] + ["-m", "1000000"]
    seen |= {name: [] for name in peers}
    for _ in range(runs):
        for name, options in ways.items():
            if options is None:
                seen[name].append(float(b.sh("./switches pingpong 600").stdout))
                continue
            before = "STACKPULSE_BPF_WITHOUT=task_work " if "before" in name else ""
            seen[name].append(float(b.sh(
                before + "sp-capture -q %s -- ./switches pingpong 600 2>&1 >w.stream" % options).stdout))
        for name, command in peers.items():
            seen[name].append(beside(command))
    none = b.median(seen["none"])
    b.table(["two threads, two pipes, one CPU", "ns a switch", "more than none"],
            [[name, "%.0f" % b.median(v), "%.0f" % (b.median(v) - none)] for name, v in seen.items()])


def found_by_us(options, pid):
    b.sh("sp-capture -q -k %s -p %d -d 2 | sp-unwind -q | sp-spool -q -o n.spool" % (options, pid))
    lines = b.sh("sp-sym -q -e offcpu-time --weight=weight --format=folded n.spool").stdout.splitlines()
    return [(int(line.split()[-1]) / 1e6, ";main;" in line) for line in lines]


def found_by_offcputime(command, pid):
    """Stacks of lines, leaf first, then "- COMM (PID)" and the time in us."""
    stack, found = [], []
    for line in b.sh("%s -p %d 2" % (command[0], pid), check=False).stdout.splitlines():
        if line.strip().isdigit() and stack:
            found.append((int(line) / 1000, "main" in stack))
            stack = []
        elif line.strip():
            stack.append(line.strip())
    return found


def waits(runs):
    ways = {name: (lambda pid, options=options: found_by_us(options, pid)) for name, options in
            {"bpf, --off-cpu": "--off-cpu", "bpf, --off-cpu=1ms": "--off-cpu=1ms",
             "perf engine, --off-cpu": "--engine=perf --off-cpu"}.items()}
    peers = off_cpu_peers()
    if "offcputime" in peers:
        ways["offcputime"] = lambda pid: found_by_offcputime(peers["offcputime"], pid)
    seen = {name: [] for name in ways}
    target = subprocess.Popen([b.path("off_cpu"), "naps", "1000000"], stdout=subprocess.DEVNULL)
    for _ in range(runs):
        for name, way in ways.items():
            found = way(target.pid)
            whole = sum(ms for ms, _ in found)
            seen[name].append((whole, sum(ms for ms, named in found if named) / max(whole, 1) * 100))
    target.kill()
    target.wait()
    b.table(["naps of 10 ms, for 2 s", "ms off the CPU", "% with main in the stack"],
            [[name, "%.0f" % b.median([x[0] for x in v]), "%.0f" % b.median([x[1] for x in v])] for name, v in seen.items()])


def main():
    parts = {"start": start, "samples": samples, "loss": loss, "all": whole_machine, "switches": switches, "waits": waits}
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--runs", type=int, default=3)
    args.add_argument("--only", default=",".join(parts))
    args = args.parse_args()
    os.makedirs(b.WORK, exist_ok=True)
    b.sh("gcc -O2 -pthread -o switches %s/switches.c" % b.HERE)
    for name in "deep", "threads", "off_cpu":
        shutil.copy(os.path.join(os.environ.get("SP_PROG", os.path.join(b.BUILD, "tests/prog")), name), b.path(name))
    if os.geteuid() != 0:
        b.say("BPF needs root")
        return
    began = time.time()
    for name in args.only.split(","):
        parts[name](args.runs)
    b.say("%.0f s" % (time.time() - began))


if __name__ == "__main__":
    main()
