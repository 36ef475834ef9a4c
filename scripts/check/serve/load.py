#!/usr/bin/env python3
"""Puts `taper serve` under load: many clients of every kind, each answer held against the single
translation.

    scripts/check/serve/load.py RUN --source FILE [--requests 20000] [--clients 64] [--taper TAPER]

FILE is the source side of a test set, of which lines are asked for, one to three at a time. First
one client asks for line after line, then so many clients at once: most of them patient, some that
read slowly, some that leave before the answer, some that send garbage. Prints the rate of both, the
median and the 95th percentile of the time of an answer, and the server's memory as it goes.

Fails on an answer that is not the single translation, on any status of a valid request but 200 and
503, on a panic in the server, where many clients at once are not three times as fast as one, and
where memory grows by more than a tenth over the second half.

Needs Python 3.11, and nothing else.
"""

import argparse
import http.client
import json
import queue
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from browser import check
from server import TAPER, Serving

GARBAGE = [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\x00" * 512,
           b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
           b"POST /api/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
           b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"text\": "]


class Load:
    def __init__(self, server, lines, single):
        self.server, self.lines, self.single = server, lines, single
        self.lock = threading.Lock()
        self.times, self.statuses, self.wrong, self.answered = [], {}, 0, 0

    def ask(self, connection, draw, count=None):
        """One request on a connection that stays open, and what came of it."""
        count = count or draw.choice([1, 1, 1, 2, 3])
        own = [draw.randrange(len(self.lines)) for _ in range(count)]
        body = json.dumps({"text": [self.lines[line] for line in own]})
        begun = time.perf_counter()
        connection.request("POST", "/api/translate", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        read = answer.read()
        taken = time.perf_counter() - begun
        with self.lock:
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        if answer.status != 200:
            time.sleep(0.2)
            return
        found = [line["translations"][0]["text"] for line in json.loads(read)["translations"]]
        with self.lock:
            self.times.append(taken)
            self.answered += count
            self.wrong += found != [self.single[line] for line in own]

    def patient(self, draw, work):
        connection = http.client.HTTPConnection(self.server.address, timeout=120)
        while work():
            try:
                self.ask(connection, draw)
            except (http.client.HTTPException, ConnectionError):
                # An idle connection may have been closed.
                connection.close()
        connection.close()

    def raw(self, draw):
        body = json.dumps({"text": [draw.choice(self.lines) for _ in range(3)]}).encode()
        head = (f"POST /api/translate HTTP/1.1\r\nHost: {self.server.address}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n")
        return head.encode() + body

    def connect(self):
        host, port = self.server.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=120)

    def slow(self, draw, work):
        """Sends and reads in small parts."""
        while work():
            with self.connect() as stream:
                request = self.raw(draw)
                for at in range(0, len(request), 64):
                    stream.sendall(request[at:at + 64])
                    time.sleep(0.02)
                answer = b""
                while part := stream.recv(64):
                    answer += part
                    time.sleep(0.02)
                status = int(answer.split(b" ", 2)[1])
                with self.lock:
                    self.statuses[status] = self.statuses.get(status, 0) + 1

    def leaving(self, draw, work):
        while work():
            with self.connect() as stream:
                stream.sendall(self.raw(draw))
                time.sleep(draw.random() * 0.05)
            time.sleep(0.05)

    def garbage(self, draw, work):
        while work():
            with self.connect() as stream:
                try:
                    stream.sendall(draw.choice(GARBAGE))
                    stream.shutdown(socket.SHUT_WR)
                    stream.recv(1000)
                except OSError:
                    pass
            time.sleep(0.05)


def counted(requests):
    """Says so many times that there is work."""
    tickets = queue.SimpleQueue()
    for _ in range(requests):
        tickets.put(None)
    def work():
        try:
            tickets.get_nowait()
            return True
        except queue.Empty:
            return False
    return tickets, work


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--alone", type=int, default=300)
    parser.add_argument("--taper", type=Path, default=TAPER)
    arguments = parser.parse_args()
    lines = [line for line in arguments.source.read_text().splitlines() if line.strip()][:500]
    single = subprocess.run([arguments.taper, "translate", arguments.run, "--window", "1"],
                            input="\n".join(lines) + "\n", text=True, capture_output=True,
                            check=True).stdout.splitlines()
    server = Serving(arguments.taper, [arguments.run])
    try:
        run(arguments, server, lines, single)
    finally:
        code = server.end()
    check(code == 0, "the server ends when it is asked to")
    sys.exit(1 if check.failed else 0)


def run(arguments, server, lines, single):
    alone = Load(server, lines, single)
    connection = http.client.HTTPConnection(server.address, timeout=120)
    draw = random.Random(1)
    for _ in range(20):
        alone.ask(connection, draw, 1)
    begun, alone.answered, alone.times = time.perf_counter(), 0, []
    for _ in range(arguments.alone):
        alone.ask(connection, draw, 1)
    rate_alone = alone.answered / (time.perf_counter() - begun)
    connection.close()
    print(f"one client: {rate_alone:.0f} lines/s, median {statistics.median(alone.times):.4f} s")

    load = Load(server, lines, single)
    tickets, work = counted(arguments.requests)
    kinds = [load.slow] * 4 + [load.leaving] * 4 + [load.garbage] * 4
    kinds += [load.patient] * (arguments.clients - len(kinds))
    going = lambda: tickets.qsize() > 0
    threads = [threading.Thread(target=kind, args=(random.Random(number), work if
                                kind == load.patient else going))
               for number, kind in enumerate(kinds)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
        done = arguments.requests - tickets.qsize()
        if done >= len(memory) * arguments.requests / 10:
            memory.append(server.memory())
            print(f"  {done} requests, {memory[-1] / 2 ** 20:.0f} MiB, "
                  f"{time.perf_counter() - begun:.0f} s", flush=True)
        time.sleep(0.05)
    seconds = time.perf_counter() - begun
    memory.append(server.memory())
    rate = load.answered / seconds
    parts = statistics.quantiles(load.times, n=20)
    print(f"{arguments.clients} clients: {rate:.0f} lines/s, {len(load.times) / seconds:.0f} "
          f"answers/s, median {statistics.median(load.times):.3f} s, 95th percentile "
          f"{parts[-1]:.3f} s, statuses {load.statuses}")
    counters = dict(line.rsplit(" ", 1) for line in server.metrics().splitlines()
                    if line.startswith("taper_"))
    batches = [float(value) for name, value in counters.items() if "batch_lines_count" in name]
    computed = [float(value) for name, value in counters.items() if "lines_total" in name]
    print(f"{computed[0] / batches[0]:.1f} lines in a batch; " + ", ".join(
        f"{name.split('{')[0]} {value}" for name, value in counters.items()
        if name.startswith(("taper_abandoned", "taper_refused", "taper_panics"))))
    check(load.wrong == alone.wrong == 0,
          f"{load.answered} lines, each the single translation of what was asked")
    check(set(load.statuses) <= {200, 503}, f"statuses of valid requests {load.statuses}")
    check(not any(name.startswith("taper_panics") for name in counters), "nothing panicked")
    check(rate >= 3 * rate_alone, f"{rate / rate_alone:.1f} times the rate of one client")
    half = memory[len(memory) // 2]
    check(memory[-1] <= 1.1 * half, f"memory {half / 2 ** 20:.0f} MiB in the middle, "
          f"{memory[-1] / 2 ** 20:.0f} MiB at the end")


main()
