#!/usr/bin/env python3
"""The README's recipe for many hosts, as it stands there, on a ClickHouse cluster of two nodes.

    fleet.py README.md SPOOL…      each spool is of another host

The nodes are Debian's clickhouse-server, on loopback. Each load of samples is broken once, in the
middle of a line, then made twice. The folded stacks that come back are those that sp-sym gives of
each spool, summed up.
"""
import collections
import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

import views

CONFIG = """<yandex>
<logger><level>warning</level><log>{0}/log</log><errorlog>{0}/errors</errorlog></logger>
<http_port>{1}</http_port><tcp_port>{2}</tcp_port><interserver_http_port>{3}</interserver_http_port>
<listen_host>127.0.0.1</listen_host><path>{0}/data/</path><tmp_path>{0}/tmp/</tmp_path>
<users_config>users.xml</users_config><default_profile>default</default_profile>
<default_database>default</default_database><mark_cache_size>8388608</mark_cache_size>
<remote_servers><profiles>{4}</profiles></remote_servers></yandex>
"""
SHARD = "<shard><replica><host>127.0.0.1</host><port>{}</port></replica></shard>"
USERS = """<yandex><profiles><default/></profiles><users><default><password></password>
<networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
<quotas><default/></quotas></yandex>
"""


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def ask(port, text):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("POST", "/", text.encode())
    r = c.getresponse()
    body = r.read().decode()
    assert r.status == 200, body
    return body.strip()


def start(folder, ports, others):
    os.makedirs(folder)
    with open(folder + "/config.xml", "w") as f:
        f.write(CONFIG.format(folder, *ports, "".join(SHARD.format(p) for p in others)))
    with open(folder + "/users.xml", "w") as f:
        f.write(USERS)
    return subprocess.Popen(["clickhouse-server", "--config-file=" + folder + "/config.xml"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait(server, port):
    for _ in range(600):
        try:
            return ask(port, "SELECT 1")
        except OSError:
            assert server.poll() is None, "the server ended"
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


def folded(lines):
    counts = collections.Counter()
    for line in lines:
        stack, _, n = line.rpartition(" ")
        counts[";".join(views.clean(frame) for frame in stack.split(";"))] += int(n)
    return counts


def plain(spool):
    """folded without its marks and the roots of events, as the tables have the frames."""
    out = subprocess.run(["sp-sym", "-q", "-f", "folded", "-g", "none", spool], stdout=subprocess.PIPE, check=True)
    lines = out.stdout.decode().split("\n")[:-1]
    events = {line.split(";")[0] for line in lines} <= {"cpu-clock", "page-faults", "offcpu-time"}
    lines = [line.partition(";")[2] if events else line for line in lines]
    return folded(re.sub(r"_\[[kij]\](?=;| \d+$)", "", line) for line in lines)


def shell(script, ch, check=True):
    r = subprocess.run(["bash", "-o", "pipefail", "-c", script], env=dict(os.environ, CH=ch),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert not check or r.returncode == 0, r.stderr.decode()
    return r


def main(readme, spools):
    with open(readme) as f:
        section = re.search(r"^## Many hosts\n(.*?)^## ", f.read(), re.S | re.M)[1]
    blocks = [re.sub(r"^    ", "", b, flags=re.M) for b in re.findall(r"(?:^    .*\n)+", section, re.M)]
    tables, load, back = blocks
    back, _, draw = back.partition("\ninferno-flamegraph")
    stacks, samples = load.split("\nsp-sym ")
    samples = "sp-sym " + samples
    ports = free_ports(6)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        servers = [start(folder + "/" + name, p, (ports[1], ports[4])) for name, p in
                   (("one", ports[:3]), ("two", ports[3:]))]
        try:
            for server, port in zip(servers, (ports[0], ports[3])):
                wait(server, port)
                for statement in tables.split(";")[:-1]:
                    ask(port, statement)
            wanted = collections.Counter()
            for i, spool in enumerate(spools):
                node = "http://127.0.0.1:%d" % (ports[0], ports[3])[i % 2]
                mine = [part.replace("a.spool", "'%s'" % spool) for part in (stacks, samples)]
                shell(mine[0], node)
                size = len(shell(mine[1].partition("|")[0], node).stdout)
                cut = mine[1].replace(" | curl", " | head -c %d | curl" % (size // 2), 1)
                shell(cut, node, check=False)
                for _ in range(2):
                    shell(mine[1], node)
                wanted += plain(spool)
            shares = [int(ask(port, "SELECT count() FROM samples FINAL")) for port in (ports[0], ports[3])]
            assert all(shares) and sum(shares) == sum(wanted.values()), shares
            for port in (ports[0], ports[3]):
                shell(back, "http://127.0.0.1:%d" % port)
                with open("all.folded", encoding="utf-8") as f:
                    got = folded(f.read().split("\n")[:-1])
                assert got == wanted, ((got - wanted).most_common(3), (wanted - got).most_common(3))
            if shutil.which("inferno-flamegraph"):
                shell("inferno-flamegraph" + draw, "")
                titles = [t.firstChild.data for t in xml.dom.minidom.parse("all.svg").getElementsByTagName("title")]
                need = "{:,} samples".format(sum(wanted.values()))
                assert any(need in t for t in titles), (need, titles[:3])
            print("%d samples of %d hosts, %s on the nodes" % (sum(shares), len(spools), shares))
        finally:
            for server in servers:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), [os.path.abspath(s) for s in sys.argv[2:]])
