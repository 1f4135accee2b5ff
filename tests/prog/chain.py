"""A Python chain that is known: <module>, run_py, mid_py, leaf_py. Spends the CPU milliseconds of
its argument (default 1500)."""
import sys
import time


def leaf_py(n):
    x = 0
    for i in range(n):
        x = (x * 1664525 + i) & 0xffffffff
    return x


def mid_py(n):
    return leaf_py(n) + 1


def run_py(ms):
    x = 0
    while time.process_time() * 1000 < ms:
        x += mid_py(20000)
    return x


run_py(int(sys.argv[1]) if len(sys.argv) > 1 else 1500)
