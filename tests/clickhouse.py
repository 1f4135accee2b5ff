#!/usr/bin/env python3
"""The manual page's recipe for ClickHouse, run in chdb (the same engine, in a process).

    clickhouse.py sp-sym.1 NAME TOTAL      reads NAME.stacks, NAME.jsonl

The samples' insert is broken in the middle of a line, then repeated twice: each sample counts once.
"""
import re
import sys
import tempfile

from chdb import session

page = open(sys.argv[1]).read().replace("\\-", "-")
create = [m + ";" for m in re.findall(r"CREATE TABLE .*?(?=;)", page, re.S) if "Distributed" not in m]
select = re.search(r"SELECT concat.*?TabSeparatedRaw", page, re.S)[0]
name, total = sys.argv[2], int(sys.argv[3])

with tempfile.TemporaryDirectory() as folder:
    db = session.Session(folder + "/db")
    db.query("CREATE DATABASE p ENGINE = Atomic")
    db.query("USE p")
    for statement in create:
        db.query(statement)

    def insert(table, path):
        columns = "SELECT * FROM file('%s', 'JSONEachRow', '%s')"
        types = re.search(r"CREATE TABLE %s \((.*?)\)\s*ENGINE" % table, page, re.S)[1]
        db.query("INSERT INTO %s %s" % (table, columns % (path, " ".join(types.split()))))

    data = open(name + ".jsonl", "rb").read()
    with open(folder + "/cut.jsonl", "wb") as f:
        f.write(data[:len(data) // 2])
    try:
        insert("samples", folder + "/cut.jsonl")
    except Exception:  # what chdb raises is its own
        pass
    with open(folder + "/whole.jsonl", "wb") as f:
        f.write(data)
    with open(folder + "/stacks", "wb") as f:
        f.write(open(name + ".stacks", "rb").read())
    for _ in range(2):
        insert("samples", folder + "/whole.jsonl")
        insert("stacks", folder + "/stacks")
    lines = str(db.query(select)).splitlines()
    counted = sum(int(line.rpartition(" ")[2]) for line in lines if line)
    assert counted == total, (counted, total, lines[:3])
