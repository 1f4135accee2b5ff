#!/usr/bin/env python3
"""The views of a spool, read as their readers read them and compared by value.

  views.py same SPOOL [OPTION…]
      All formats show the same samples: per process, thread and leaf function the numbers are those
      of the folded text (callgrind has no threads: per leaf function). Options go to sp-sym.

  views.py apart SPOOL [OPTION…]
      All formats show the same samples and the same weight per event.

  views.py waits SPOOL [OPTION…]
      All formats that tell the state and the waker of times off the CPU tell the same.

  views.py valid FORMAT FILE
      The file is what its readers need; what they accept in silence although it is wrong is
      looked at too: indexes, orders, references, sums.
"""
import collections
import gzip
import json
import re
import struct
import subprocess
import sys
import xml.dom.minidom

TIMES = {"nanoseconds", "microseconds", "milliseconds", "seconds", "bytes", "none"}


def clean(name):
    """A name as line-based formats write it, and as we compare it."""
    def one(c):
        n = ord(c)
        bad = n < 0x20 or 0x7f <= n < 0xa0 or n in range(0x2028, 0x202f) or n in range(0x2066, 0x206a)
        return "?" if bad else {";": ":", "\ufffe": "\ufffd", "\uffff": "\ufffd"}.get(c, c)
    name = "".join(one(c) for c in name).replace("->", "- >")
    return name[2:] if name.startswith("::(") else name


def need(condition, text):
    if not condition:
        sys.exit("views.py: " + text)


class Pprof:
    """profile.proto, from its wire format."""

    HAS_FIXED = False  # fields of eight bytes

    def __init__(self, data):
        self.strings, self.functions, self.locations, self.mappings = [], {}, {}, {}
        self.types, self.samples, self.numbers, self.period_type = [], [], {}, None
        raw = collections.defaultdict(list)
        for field, value in self.fields(gzip.decompress(data)):
            raw[field].append(value)
        self.strings = [s.decode("utf-8") for s in raw[6]]
        for f in raw[5]:
            m = self.message(f)
            need(m[1][0] not in self.functions, "a function id twice")
            self.functions[m[1][0]] = self.strings[m[2][0]]
        for f in raw[3]:
            m = self.message(f)
            need(m[1][0] not in self.mappings, "a mapping id twice")
            self.mappings[m[1][0]] = {k: v[0] for k, v in m.items()}
        for f in raw[4]:
            m = self.message(f)
            need(m[1][0] and m[1][0] not in self.locations, "location id 0, or twice")
            lines = [self.message(x) for x in m.get(4, [])]
            self.locations[m[1][0]] = (m.get(2, [0])[0], m.get(3, [0])[0],
                                       [(x[1][0], x.get(2, [0])[0]) for x in lines])
        for f in raw[2]:
            m = self.message(f)
            labels = {}
            for x in m.get(3, []):
                label = self.message(x)
                labels[self.strings[label[1][0]]] = (self.strings[label[2][0]] if 2 in label
                                                    else self.signed(label.get(3, [0])[0]))
            self.samples.append((self.packed(m[1][0]), self.packed(m[2][0]), labels))
        self.types = [self.value_type(f) for f in raw[1]]
        self.period_type = self.value_type(raw[11][0]) if raw[11] else None
        self.numbers = {n: raw[n][0] for n in (9, 10, 12, 14) if raw[n]}

    def value_type(self, f):
        m = self.message(f)
        return self.strings[m[1][0]], self.strings[m[2][0]]

    @staticmethod
    def signed(n):
        return n - (1 << 64) if n >> 63 else n

    @staticmethod
    def varint(data, at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value, at

    def fields(self, data):
        at = 0
        while at < len(data):
            key, at = self.varint(data, at)
            if key & 7 == 1 and self.HAS_FIXED:
                value, at = struct.unpack_from("<Q", data, at)[0], at + 8
            elif key & 7 == 0:
                value, at = self.varint(data, at)
            else:
                need(key & 7 == 2, "a wire type of its own")
                size, at = self.varint(data, at)
                value, at = data[at:at + size], at + size
                need(len(value) == size, "a cut message")
            yield key >> 3, value

    def message(self, data):
        out = collections.defaultdict(list)
        for field, value in self.fields(data):
            out[field].append(value)
        return out

    def packed(self, data):
        at, out = 0, []
        while at < len(data):
            value, at = self.varint(data, at)
            out.append(value)
        return out

    def check(self):
        need(self.strings and self.strings[0] == "", "string 0 is not empty")
        need(self.types[0] == ("samples", "count"), "the first type is not samples")
        need(self.period_type in self.types, "the period type is none of the types")
        need(self.numbers.get(12, 0) > 0 and self.numbers.get(9, 0) > 0, "no period, or no time")
        for mapping, _, lines in self.locations.values():
            need(not mapping or mapping in self.mappings, "a location in no mapping")
            need(all(f in self.functions for f, _ in lines), "a line in no function")
        for ids, values, _ in self.samples:
            need(ids and all(i in self.locations for i in ids), "a sample without a location")
            need(len(values) == len(self.types), "values and types differ")

    def leaf(self, ids):
        mapping, address, lines = self.locations[ids[0]]
        if lines:
            return self.functions[lines[0][0]]
        m = self.mappings[mapping]
        return "[%s+0x%x]" % (self.strings[m[5]].rsplit("/", 1)[-1], address - m.get(2, 0) + m.get(4, 0))


class Otlp(Pprof):
    """ProfilesData of opentelemetry-proto 1.45, package v1development, from its wire format."""

    HAS_FIXED = True

    def __init__(self, data):
        top = self.message(data)
        d = self.message(top[2][0])
        self.strings = [s.decode("utf-8") for s in d[5]]
        self.tables = {n: [self.message(x) for x in d[n]] for n in (1, 2, 3, 4, 6, 7)}
        self.profiles = [self.message(x) for x in self.message(self.message(top[1][0])[2][0])[2]]

    def at(self, table, index, what):
        need(0 < index < len(self.tables[table]), "no such " + what)
        return self.tables[table][index]

    def attribute(self, index):
        m = self.at(6, index, "attribute")
        value = self.message(m[2][0])
        return self.strings[m[1][0]], value[1][0].decode() if 1 in value else self.signed(value[3][0])

    def samples_of(self, profile):
        need(profile[3][0] > 0 and len(profile[7][0]) == 16, "no time, or no id")
        for sample in map(self.message, profile[2]):
            stack = self.at(7, sample[1][0], "stack")
            locations = [self.at(2, i, "location") for i in self.packed(stack[1][0])]
            need(all(x.get(1, [0])[0] < len(self.tables[1]) for x in locations), "no such mapping")
            lines = [self.message(line) for x in locations for line in x[3]]
            names = [self.strings[self.at(3, x[1][0], "function")[1][0]] for x in lines]
            values = self.packed(sample[4][0])
            need(len(values) == 1, "not one value")
            yield names, values[0], dict(self.attribute(i) for i in self.packed(sample[2][0]))

    def check(self):
        need(self.strings[0] == "", "string 0 is not empty")
        need(all(not dict(t[0]) for t in self.tables.values()), "no null entry")


def read_folded(data, events=None):
    """events: a Counter of what each event that is a root has."""
    counts = collections.Counter()
    for line in data.decode().split("\n")[:-1]:
        stack, _, n = line.rpartition(" ")
        frames = stack.split(";")
        if not re.search(r"-(-?\d+)/(-?\d+)$", frames[0]):
            event = frames.pop(0)
            if events is not None:
                events[event] += int(n)
        pid, tid = re.search(r"-(-?\d+)/(-?\d+)$", frames[0]).groups()
        need(len(frames) > 1 and all(frames) and " " not in frames[0], "bad folded line " + line)
        counts[int(pid), int(tid), re.sub(r"_\[[kij]\]$", "", frames[-1])] += int(n)
    return counts


def read_text(data):
    counts, key = collections.Counter(), None
    for line in data.decode().split("\n"):
        head = re.match(r"^(\S.+?)\s+(\d+)\/*(\d+)*\s+", line)
        frame = re.match(r"^\s*(\w+)\s*(.+) \((\S*)\)$", line)
        if not line:
            key = None
        elif line[0] == "#":
            need(key, "a comment outside of a sample")
        elif head and not line[0].isspace():  # stackcollapse-perf.pl's pattern
            pid, tid = (struct.unpack("<i", struct.pack("<I", int(x)))[0] for x in head.groups()[1:])
            need(" " not in head[1] and re.search(r":\s*(\d+)\s+(\S+):\s*$", line), "bad line " + line)
            key = (pid, tid)
        elif frame and key:
            counts[key + (clean(re.sub(r"\+0x[0-9a-f]+$", "", frame[2])),)] += 1
            key = None
        elif not frame:
            sys.exit("views.py: bad line of text: %r" % line)
    return counts


def read_json(data, weigh=False):
    p, counts = json.loads(data), collections.Counter()
    for _, thread, _, stack, weight, *_ in p["samples"]:
        frames, t = p["stacks"][stack], p["threads"][thread]
        leaf = p["functions"][p["frames"][frames[0]]["levels"][0]["function"]]["name"] if frames else "[no stack]"
        counts[t["pid"], t["tid"], clean(leaf or "?")] += weight if weigh else 1
    lines = [level["line"] for f in p["frames"] for level in f["levels"]]
    need(all(line is None or 0 < line < 1 << 31 for line in lines), "a line that is none")
    need([s[0] for s in p["samples"]] == sorted(s[0] for s in p["samples"]), "samples out of order")
    return counts


def read_pprof(data):
    p, counts = Pprof(data), collections.Counter()
    p.check()
    for ids, values, labels in p.samples:
        counts[labels["pid"], labels["tid"], clean(p.leaf(ids))] += values[0]
    return counts


def read_firefox(data):
    p, counts = json.loads(gzip.decompress(data)), collections.Counter()
    need(p["meta"]["preprocessedProfileVersion"] == 48 and p["meta"]["categories"], "no meta")
    need(len({(t["pid"], t["tid"]) for t in p["threads"]}) == len(p["threads"]), "a thread twice")
    for t in p["threads"]:
        stacks, frames, funcs, strings = t["stackTable"], t["frameTable"], t["funcTable"], t["stringArray"]
        for table in (stacks, frames, funcs, t["resourceTable"], t["nativeSymbols"], t["markers"], t["samples"]):
            columns = [c for c in table.values() if isinstance(c, list)]
            need(all(len(c) == table["length"] for c in columns), "columns of different lengths")
        need(all(x is None or x < i for i, x in enumerate(stacks["prefix"])), "a prefix that is no earlier stack")
        need(all(x < frames["length"] for x in stacks["frame"]), "a stack without a frame")
        need(all(x < funcs["length"] for x in frames["func"]), "a frame without a function")
        need(all(x < len(strings) for x in funcs["name"]), "a function without a name")
        need(all(x < len(p["meta"]["categories"]) for x in frames["category"]), "no such category")
        need(all(x == -1 or x < t["resourceTable"]["length"] for x in funcs["resource"]), "no such resource")
        need(all(x < len(p["libs"]) for x in t["resourceTable"]["lib"]), "no such library")
        need(t["samples"]["time"] == sorted(t["samples"]["time"]), "times go back")
        for s in t["samples"]["stack"]:
            leaf = strings[funcs["name"][frames["func"][stacks["frame"][s]]]]
            counts[int(t["pid"]), int(str(t["tid"]).split()[0]), clean(leaf)] += 1
    return counts


def read_speedscope(data):
    p, counts = json.loads(data), collections.Counter()
    need(p["$schema"] == "https://www.speedscope.app/file-format-schema.json", "no schema")
    frames = p["shared"]["frames"]
    sums = [sum(t["weights"]) for t in p["profiles"]]
    need(not sums or sums[p["activeProfileIndex"]] == max(sums), "another profile is the heaviest")
    for t in p["profiles"]:
        pid, tid = re.search(r" (-?\d+)/(-?\d+)$", t["name"]).groups()
        need(t["unit"] in TIMES and len(t["samples"]) == len(t["weights"]), "a bad profile")
        need(t["endValue"] - t["startValue"] == sum(t["weights"]), "the weights' sum is not the end")
        for stack, weight in zip(t["samples"], t["weights"]):
            need(all(0 <= f < len(frames) for f in stack), "no such frame")
            counts[int(pid), int(tid), clean(frames[stack[-1]]["name"])] += weight
    return counts


def read_flamegraph(data):
    text = data.decode()
    need(not re.search(r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)", text), "it loads something")
    svg = xml.dom.minidom.parseString(text[text.index("<svg"):text.index("</svg>") + 6].encode())
    p = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    titles = [t.firstChild.data for t in svg.getElementsByTagName("title")]
    first = p["events"][0]
    need(re.match(r"all: %d %s" % (first["total"], first["unit"]), titles[0]), "the picture's root: " + titles[0])
    sums = collections.Counter()
    for event in p["events"]:
        counts, path, nodes, thread = collections.Counter(), [], event["nodes"], -1
        for i in range(0, len(nodes), 3):
            depth, func, total = nodes[i:i + 3]
            thread += depth == 1
            t = event["threads"][thread]
            key = t.get("pid"), t.get("tid"), clean(p["strings"][p["funcs"][func >> 1][0]])
            del path[depth - 1:]
            if path:
                counts[path[-1]] -= total
            counts[key] += total
            path.append(key)
        need(all(n >= 0 for n in counts.values()), "children are more than their parent")
        need(sum(counts.values()) == event["total"], "the nodes' sum is not the total")
        sums += counts
    return sums


def read_callgrind(data):
    names, counts, func, call = {}, collections.Counter(), None, False
    total, events = None, []
    for line in data.decode().split("\n"):
        name = re.match(r"(fn|cfn|fl|cfi|fi|fe|ob|cob)=\((\d+)\)(?: (.*))?$", line)
        if name:
            table = {"fn": "fn", "cfn": "fn", "fl": "fl", "cfi": "fl", "fi": "fl", "fe": "fl"}.get(name[1], "ob")
            if name[3] is not None:
                need((table, name[2]) not in names, "a name given twice")
                names[table, name[2]] = name[3]
            need((table, name[2]) in names, "a name that is not given")
            func = names["fn", name[2]] if name[1] == "fn" else func
        elif line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("summary:"):
            total = int(line.split()[1])
        elif line.startswith("calls="):
            call = True
        elif re.match(r"\d+( \d+)+$", line):
            need(line.count(" ") == len(events), "not all costs: " + line)
            if not call:
                counts[clean(func)] += int(line.split()[1])
            call = False
        else:
            need(not line or re.match(r"[a-z]+: |# callgrind format$", line), "bad line " + line)
    need(sum(counts.values()) == total, "the costs' sum is not the summary")
    return counts


def read_jsonl(data):
    rows = [json.loads(line) for line in data.decode().split("\n")[:-1]]
    need(len({(r["spool_id"], r["seq"]) for r in rows}) == len(rows), "a number twice")
    need([r["seq"] for r in rows] == sorted(r["seq"] for r in rows), "numbers out of order")
    stacks = {}
    for line in ARGS and run("jsonl", ["--table=stacks", *ARGS]).decode().split("\n")[:-1]:
        s = json.loads(line)
        need(s["stack_id"] not in stacks, "a stack twice")
        need(len({len(s[c]) for c in ("frames", "modules", "files", "lines", "kinds")}) == 1, "columns differ")
        stacks[s["stack_id"]] = s
    need({r["stack_id"] for r in rows} == set(stacks), "the stacks are others")
    return collections.Counter((r["pid"], r["tid"], clean(stacks[r["stack_id"]]["frames"][-1])) for r in rows)


def read_otlp(data):
    p, counts = Otlp(data), collections.Counter()
    p.check()
    for profile in p.profiles:
        for names, value, labels in p.samples_of(profile):
            counts[labels["process.pid"], labels["thread.id"], clean(names[0])] += value
    return counts


ARGS = []
READERS = {"text": read_text, "json": read_json, "pprof": read_pprof, "firefox": read_firefox,
           "speedscope": read_speedscope, "flamegraph": read_flamegraph, "callgrind": read_callgrind,
           "jsonl": read_jsonl, "otlp": read_otlp}


def run(fmt, args):
    if fmt in ("flamegraph", "speedscope", "firefox", "otlp") and not any(a.startswith("--weight") for a in args):
        args = [*args, "--weight=samples"]  # theirs is time where it says more
    r = subprocess.run(["sp-sym", "--format=" + fmt, *args], stdout=subprocess.PIPE, check=False)
    need(r.returncode == 0, "%s: exit status %d" % (fmt, r.returncode))
    return r.stdout


def same(args):
    ARGS[:] = args
    folded = read_folded(run("folded", ["--group=thread", *args]))
    print("folded: %d samples, %d leaves" % (sum(folded.values()), len(folded)))
    failed = False
    for fmt, read in READERS.items():
        counts, wanted = read(run(fmt, args)), collections.Counter()
        for (pid, tid, leaf), n in folded.items():
            wanted[clean(leaf) if fmt == "callgrind" else (pid, tid, clean(leaf))] += n
        for key in wanted.keys() | counts.keys():
            if wanted[key] != counts[key]:
                print("%s: %r: %d, wanted %d" % (fmt, key, counts[key], wanted[key]))
                failed = True
    raw = sum(line.startswith("sample ") for line in run("raw", args).decode("utf-8", "replace").split("\n")) \
        if not set(a.split("=")[0] for a in args) & {"--user", "--kernel", "--module", "--function", "--hide-runtime"} else None
    need(raw in (None, sum(folded.values())), "raw: %s samples" % raw)
    sys.exit(failed)


def per_event(fmt, data):
    """[samples, weight] of each event; None where a format does not say one of them."""
    n, weight = collections.Counter(), collections.Counter()
    if fmt == "raw":
        for line in re.findall(r"^sample .*$", data.decode("utf-8", "replace"), re.M):
            event, w = line.split()[4:6]
            n[event] += 1
            weight[event] += int(w)
    elif fmt == "text":
        for w, event in re.findall(r"^\S.*:\s+(\d+) (\S+): $", data.decode(), re.M):
            n[event] += 1
            weight[event] += int(w)
    elif fmt == "json":
        p = json.loads(data)
        for s in p["samples"]:
            n[p["events"][s[2]]["name"]] += 1
            weight[p["events"][s[2]]["name"]] += s[4]
    elif fmt == "jsonl":
        for r in map(json.loads, data.decode().split("\n")[:-1]):
            n[r["event"]] += 1
            weight[r["event"]] += r["weight"]
    elif fmt == "folded":
        read_folded(data, weight)
        n = None
    elif fmt == "flamegraph":
        p = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', data.decode(), re.S)[1])
        for e in p["events"]:
            weight[e["name"]] += e["total"]
        n = None
    elif fmt == "pprof":
        p = Pprof(data)
        names = [{"cpu": "cpu-clock"}.get(t[0], t[0]) for t in p.types[1:]]
        for _, values, _ in p.samples:
            for name, value in zip(names, values[1:]):
                n[name] += values[0] if value else 0
                weight[name] += value
    elif fmt == "firefox":
        for t in json.loads(gzip.decompress(data))["threads"]:
            event = re.search(r"\((\S+)\)$", t["name"])[1]
            n[event] += t["samples"]["length"]
            need((t["samples"]["weightType"] == "tracing-ms") == (event != "page-faults"), "its weights")
            weight[event] += round(1e6 * sum(t["samples"]["weight"] or [0]))
        for event in set(n) - set(k for k in weight if weight[k]):
            weight[event] = n[event]
    elif fmt == "speedscope":
        for t in json.loads(data)["profiles"]:
            weight[t["name"].split(": ")[0]] += sum(t["weights"])
        n = None
    elif fmt == "callgrind":
        text = data.decode()
        names = [re.search(r"^event: %s : ([^,\n]*)" % e, text, re.M)[1]
                 for e in re.search(r"^events: Samples (.*)$", text, re.M)[1].split()]
        weight.update(dict(zip(names, map(int, re.search(r"^summary: \d+ (.*)$", text, re.M)[1].split()))))
        n = None
    elif fmt == "otlp":
        p = Otlp(data)
        for profile in p.profiles:
            kind = p.message(profile[1][0])
            event = p.strings[kind[1][0]]
            weight[event] += sum(value for _, value, _ in p.samples_of(profile))
        n = None
    elif fmt in ("top", "tree"):
        for count, event in re.findall(r"^(\d+) samples of (\S+) ", data.decode(), re.M):
            n[event] += int(count)
        weight = None
    return n, weight


# The words of the kernel's state bits, as the outputs have them.
WORDS = {0: "runnable", 1: "sleeping", 0x2001: "sleeping", 2: "disk sleep", 0x102: "disk sleep", 0x402: "idle",
         4: "stopped", 0x108: "tracing stop", 0xffffffff: "unknown"}


def waits_of(fmt, data):
    """ns by (state, waker's tid); of wakers' names a set of (tid, name)."""
    ns, names = collections.Counter(), set()

    def add(state, tid, name, weight):
        ns[state, tid or 0] += weight
        if tid:
            names.add((tid, clean(name)))

    if fmt == "raw":
        for line in re.findall(r"^sample (?:\S+ ){4}\d+ .*$", data.decode("utf-8", "replace"), re.M):
            _, _, _, _, _, w, bits, pid, tid, name = line.split(" ", 9)
            need((pid == "0") == (tid == "0") == (name == "-"), "half a waker: " + line)
            name = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), name)
            add(WORDS[int(bits)], int(tid), name, int(w))
    elif fmt == "text":
        for w, state, name, _, tid in re.findall(
                r"^\S.*:\s+(\d+) offcpu-time: \n# state: ([^,\n]*)(?:, waker: (\S+) (\d+)/(\d+))?$", data.decode(), re.M):
            add(state, int(tid or 0), name, int(w))
    elif fmt == "json":
        p = json.loads(data)
        need(p["waits"][0] is None and p["sample_columns"][-1] == "wait", "no waits")
        for *_, weight, _, wait in p["samples"]:
            if wait is not None:
                w = p["waits"][wait]
                need(w["state"] is None or WORDS[w["state_bits"]] == w["state"], "its bits")
                by = w["waker"] or {"tid": 0, "name": ""}
                add(w["state"] or "unknown", by["tid"], by["name"], weight)
    elif fmt == "jsonl":
        for r in map(json.loads, data.decode().split("\n")[:-1]):
            if "state" in r:
                add(r["state"], r.get("waker_tid"), r.get("waker_comm"), r["weight"])
    elif fmt == "pprof":
        p = Pprof(data)
        at = [t[0] for t in p.types].index("offcpu-time")
        for _, values, labels in p.samples:
            if "state" in labels:
                add(labels["state"], labels.get("waker_tid"), labels.get("waker"), values[at])
    elif fmt == "otlp":
        p = Otlp(data)
        for profile in p.profiles:
            for _, value, labels in p.samples_of(profile):
                if "thread.state" in labels:
                    add(labels["thread.state"], labels.get("waker.thread.id"), labels.get("waker.thread.name"), value)
    elif fmt == "firefox":
        for t in json.loads(gzip.decompress(data))["threads"]:
            m = t["markers"]
            for name, text, start, end in zip(m["name"], m["data"], m["startTime"], m["endTime"]):
                if t["stringArray"][name] == "off CPU":
                    state, _, by = text["name"].partition(", woken by ")
                    by = re.match(r"(.*) \((\d+)/(\d+)\)$", by, re.S)
                    add(state, int(by[3]) if by else 0, by[1] if by else "", round((end - start) * 1e6))
    return ns, names


def waits(args):
    # Of the earliest what lies before the first sample is not in a picture that begins there.
    ns, names = waits_of("raw", run("raw", args))
    need(len(ns) > 1, "no waits")
    print("raw:", dict(ns), names)
    failed = False
    for fmt in ("text", "json", "jsonl", "pprof", "otlp", "firefox"):
        more = ["--weight=weight"] if fmt in ("otlp", "firefox") else []
        got, got_names = waits_of(fmt, run(fmt, [*args, *more]))
        same_ns = {k: v // 1000000 for k, v in got.items()} == {k: v // 1000000 for k, v in ns.items()} \
            if fmt == "firefox" else got == ns
        spaces = {(tid, name.replace(" ", "_")) for tid, name in names} if fmt == "text" else names
        if not same_ns or got_names != spaces:
            print("%s: %s %s" % (fmt, dict(got), got_names))
            failed = True
    by_state = collections.Counter()
    for (state, _), n in ns.items():
        by_state["wait_ns_" + state.replace(" ", "_")] += n
    stats = {k: v for k, v in json.loads(run("stats-json", args)).items() if k.startswith("wait_ns_")}
    need(stats == by_state, "stats-json: %s" % stats)
    sys.exit(failed)


def apart(args):
    n, weight = per_event("raw", run("raw", args))
    need(len(n) > 1, "one event only")
    print("raw:", dict(n), dict(weight))
    failed = False
    for fmt in ("text", "json", "jsonl", "folded", "flamegraph", "pprof", "firefox", "speedscope", "callgrind", "otlp",
                "top", "tree"):
        more = ["--weight=weight"]
        if fmt == "folded":
            more.append("--group=thread")
        got = per_event(fmt, run(fmt, [*args, *more]))
        for what, have, wanted in (("samples", got[0], n), ("weight", got[1], weight)):
            if have is not None and +have != +wanted:
                print("%s: %s: %s, wanted %s" % (fmt, what, dict(have), dict(wanted)))
                failed = True
    sys.exit(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["apart"]:
        apart(sys.argv[2:])
    if sys.argv[1:2] == ["waits"]:
        waits(sys.argv[2:])
    if sys.argv[1:2] == ["same"]:
        same(sys.argv[2:])
    elif sys.argv[1:2] == ["valid"]:
        with open(sys.argv[3], "rb") as f:
            print(sum(READERS[sys.argv[2]](f.read()).values()))
    else:
        sys.exit(__doc__)
