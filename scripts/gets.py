#!/usr/bin/env python3
"""GETs from a memcached and how long they take, for scripts/compare-pl2.

  gets.py fill ADDRESS PORT --value B                             stores what `send` asks for
  gets.py send ADDRESS PORT --value B --seconds S --rate R --seed N [--connections C] [--go FILE]

Keys of 64 bytes, values of B. `send` opens C connections, says `connected` (on standard error), waits until there is a
FILE, and measures for S seconds, after a fifth of a second that does not count. On each connection GETs are due as a
Poisson process, all together R a second, drawn from the seed alone, and at most one is out (no pipelining). A GET's
time counts from the call that sends it to the last byte of the answer; if its connection was still waiting for the one
before when it was due, from when it was due: a stall counts for every GET that it holds up. Those not answered a
second after the end count with the time until then.

Prints one JSON object: `gets` that were due, how many of them were `answered`, percentiles `p50_us` and `p99_us` by
nearest rank, and `p50_least` and `p99_least`: whether GETs without an answer make that a lower bound.
"""
import argparse
import heapq
import json
import math
import os
import random
import select
import socket
import sys
import time

KEYS = 100
PATIENCE = 10.0
WARM_UP, DRAIN = 0.2, 1.0


def key(size, index):
    return f"{size}-{index}-".ljust(64, "k").encode()


def connect(options):
    connection = socket.create_connection((options.address, options.port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def fill(options):
    with connect(options) as connection, connection.makefile("rb") as answers:
        for index in range(KEYS):
            head = b"set %s 0 0 %d\r\n" % (key(options.value, index), options.value)
            connection.sendall(head + bytes(options.value) + b"\r\n")
            answer = answers.readline()
            if answer != b"STORED\r\n":
                sys.exit(f"gets.py: the server does not store {options.value} bytes: {answer.decode().strip()}")


class Connection:
    """One with at most one GET out."""

    def __init__(self, options, seed):
        self.socket = connect(options)
        # Two, so that due times don't depend on how many were asked.
        self.draw, self.pick = random.Random(seed), random.Random(seed)
        self.gap = options.connections / options.rate
        self.value = options.value
        self.due = self.start = None  # ns: of the next GET, and from when the one that is out counts
        self.left = 0  # bytes of the answer to come
        self.tail = b""

    def next_due(self):
        self.due += int(self.draw.expovariate(1 / self.gap) * 1e9)

    def ask(self, was_busy):
        asked = key(self.value, self.pick.randrange(KEYS))
        self.left = len(b"VALUE %s 0 %d\r\n" % (asked, self.value)) + self.value + len(b"\r\nEND\r\n")
        line = b"get %s\r\n" % asked
        self.start = self.due if was_busy else time.perf_counter_ns()
        self.socket.sendall(line)
        self.next_due()

    def read(self):
        """Whether the answer is whole."""
        some = self.socket.recv(self.left)
        self.left -= len(some)
        self.tail = (self.tail + some)[-5:]
        if not some or (self.tail == b"END\r\n") != (self.left == 0):
            sys.exit("gets.py: the server closed a connection, or has no such value: run gets.py fill before")
        return self.left == 0


def send(options):
    connections = [Connection(options, options.seed * 1000 + i) for i in range(options.connections)]
    print("connected", file=sys.stderr, flush=True)
    wait_for(options.go)
    begin = time.perf_counter_ns() + int(WARM_UP * 1e9)
    end = begin + int(options.seconds * 1e9)
    stop = end + int(DRAIN * 1e9)
    for connection in connections:
        connection.due = time.perf_counter_ns()
        connection.next_due()
    by_socket = {connection.socket: connection for connection in connections}
    idle = [(connection.due, i) for i, connection in enumerate(connections)]
    heapq.heapify(idle)
    took, busy = [], set()
    while (now := time.perf_counter_ns()) < stop and (busy or idle and idle[0][0] < end):
        while idle and idle[0][0] <= now:
            due, i = heapq.heappop(idle)
            if due < end:
                connections[i].ask(was_busy=False)
                busy.add(connections[i].socket)
        until = min(stop, idle[0][0]) if idle else stop
        for ready in select.select(busy, (), (), max(0, until - time.perf_counter_ns()) / 1e9)[0]:
            connection = by_socket[ready]
            if not connection.read():
                continue
            now = time.perf_counter_ns()
            if connection.start >= begin:
                took.append(now - connection.start)
            if connection.due < min(now, end):
                connection.ask(was_busy=True)
            else:
                busy.remove(ready)
                heapq.heappush(idle, (connection.due, connections.index(connection)))
    stop = time.perf_counter_ns()
    still = list(unanswered([by_socket[s] for s in busy], begin, end, stop))
    times = sorted(took + still)
    if not times:
        sys.exit("gets.py: no GET was due: choose a higher --rate or more --seconds")
    result = {"gets": len(times), "answered": len(took)}
    for share, name in ((0.50, "p50"), (0.99, "p99")):
        time_ns = times[max(0, math.ceil(share * len(times)) - 1)]
        result |= {f"{name}_us": round(time_ns / 1e3, 1), f"{name}_least": any(t <= time_ns for t in still)}
    print(json.dumps(result))


def wait_for(path):
    given_up = time.monotonic() + PATIENCE
    while path and not os.path.exists(path):
        if time.monotonic() > given_up:
            sys.exit(f"gets.py: no {path} in {PATIENCE:.0f} s: make it once GETs may begin")
        time.sleep(0.01)


def unanswered(connections, begin, end, stop):
    """How long those that are out at the end have waited, and those due behind them."""
    for connection in connections:
        if connection.start >= begin:
            yield stop - connection.start
        while connection.due < end:
            if connection.due >= begin:
                yield stop - connection.due
            connection.next_due()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fill", "send"):
        command = commands.add_parser(name)
        command.add_argument("address")
        command.add_argument("port", type=int)
        command.add_argument("--value", type=int, required=True)
        if name == "send":
            command.add_argument("--seconds", type=float, required=True)
            command.add_argument("--rate", type=float, required=True)
            command.add_argument("--seed", type=int, required=True)
            command.add_argument("--connections", type=int, default=4)
            command.add_argument("--go")
    options = parser.parse_args()
    {"fill": fill, "send": send}[options.command](options)


if __name__ == "__main__":
    main()
