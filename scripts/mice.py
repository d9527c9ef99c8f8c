#!/usr/bin/env python3
"""Short TCP transfers and how long they take, for scripts/compare-p4te.

  mice.py serve ADDRESS PORT                       answers until it is ended
  mice.py send ADDRESS PORT --seconds S --rate R --seed N [--least B] [--most B] [--congestion NAME]

`send` opens a connection for each transfer: starts are a Poisson process of R a second, sizes uniform between
--least and --most bytes, both drawn from the seed alone. A transfer is over when the server, which has read all
of it, answers with a byte; its flow completion time (FCT) counts from the SYN. Prints one JSON object: `fct_ms`
in order of starts, and `unfinished`, transfers that failed or were not over 10 s after the last start.
"""
import argparse
import asyncio
import json
import random
import socket
import time

PATIENCE = 10.0
HEADER = 8


async def answer(reader, writer):
    try:
        left = int.from_bytes(await reader.readexactly(HEADER), "big")
        while left > 0:
            chunk = await reader.read(min(left, 1 << 16))
            if not chunk:
                return
            left -= len(chunk)
        writer.write(b"!")
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def serve(options):
    server = await asyncio.start_server(answer, options.address, options.port, backlog=1024)
    print("listening", flush=True)
    await server.serve_forever()


async def transfer(options, size):
    """Milliseconds that it took."""
    start = time.monotonic()
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, options.congestion.encode())
    await asyncio.get_running_loop().sock_connect(connection, (options.address, options.port))
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        writer.write(size.to_bytes(HEADER, "big") + bytes(size))
        await reader.readexactly(1)
        return (time.monotonic() - start) * 1e3
    finally:
        writer.close()


async def send(options):
    draw, transfers = random.Random(options.seed), []
    start, due = time.monotonic(), 0.0
    while True:
        due += draw.expovariate(options.rate)
        size = draw.randint(options.least, options.most)
        if due >= options.seconds:
            break
        await asyncio.sleep(max(0.0, start + due - time.monotonic()))
        transfers.append(asyncio.create_task(transfer(options, size)))
    if transfers:
        await asyncio.wait(transfers, timeout=PATIENCE)
    over = [t for t in transfers if t.done() and t.exception() is None]
    for late in transfers:
        late.cancel()
    print(json.dumps({"fct_ms": [round(t.result(), 3) for t in over], "unfinished": len(transfers) - len(over)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("serve", "send"):
        command = commands.add_parser(name)
        command.add_argument("address")
        command.add_argument("port", type=int)
        if name == "send":
            command.add_argument("--seconds", type=float, required=True)
            command.add_argument("--rate", type=float, required=True)
            command.add_argument("--seed", type=int, required=True)
            command.add_argument("--least", type=int, default=20_000)
            command.add_argument("--most", type=int, default=100_000)
            command.add_argument("--congestion", default="cubic")
    options = parser.parse_args()
    asyncio.run({"serve": serve, "send": send}[options.command](options))


if __name__ == "__main__":
    main()
