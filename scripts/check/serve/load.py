#!/usr/bin/env python3
"""Puts `taper serve` under load: many clients of every kind, each answer held against the single
translation.

    scripts/check/serve/load.py RUN --source FILE [--requests 20000] [--clients 64] [--taper TAPER]
    scripts/check/serve/load.py RUN --source FILE --hostile [--clients 64] [--taper TAPER]

FILE is the source side of a test set, of which lines are asked for, one to three at a time. First
one client asks for line after line, then so many clients at once: most of them patient, some that
read slowly, some that leave before the answer, some that send garbage. Prints the rate of both, the
median and the 95th percentile of the time of an answer, and the server's memory as it goes.

Fails on an answer that is not the single translation, on any status of a valid request but 200 and
503, on a panic in the server, where many clients at once are not three times as fast as one, and
where memory grows by more than a tenth over the second half.

With --hostile so many clients ask again and again for a line of 16,000 characters with a beam of 16
and all its hypotheses, while one asks for short lines; then as many ask for that and leave after a
second. Fails where the 95th percentile of a short line is more than five times as long beside them
as alone, where a short line is not the single translation, and where the work of those that have
left is not given up within a second.

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
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--taper", type=Path, default=TAPER)
    arguments = parser.parse_args()
    lines = [line for line in arguments.source.read_text().splitlines() if line.strip()][:500]
    single = subprocess.run([arguments.taper, "translate", arguments.run, "--window", "1"],
                            input="\n".join(lines) + "\n", text=True, capture_output=True,
                            check=True).stdout.splitlines()
    server = Serving(arguments.taper, [arguments.run])
    try:
        (hostile if arguments.hostile else run)(arguments, server, lines, single)
    finally:
        code = server.end()
    check(code == 0, "the server ends when it is asked to")
    sys.exit(1 if check.failed else 0)


def long_request(server, number):
    body = json.dumps({"text": [f"c{number} " + "a" * 16_000], "beam": 16, "alternatives": 16})
    head = (f"POST /api/translate HTTP/1.1\r\nHost: {server.address}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n")
    return (head + body).encode()


def percentile(times):
    """The 95th."""
    return statistics.quantiles(times, n=20)[-1]


def one_by_one(server, lines, single, count):
    """What came of so many short lines, one after the other."""
    load = Load(server, lines, single)
    connection = http.client.HTTPConnection(server.address, timeout=120)
    draw = random.Random(1)
    for _ in range(count):
        load.ask(connection, draw, 1)
    connection.close()
    return load


def hostile(arguments, server, lines, single):
    one_by_one(server, lines, single, 20)
    alone = one_by_one(server, lines, single, arguments.alone)
    bound = 5 * percentile(alone.times)
    print(f"alone: median {statistics.median(alone.times):.4f} s, 95th percentile "
          f"{percentile(alone.times):.4f} s")

    statuses, lock, going = {}, threading.Lock(), threading.Event()
    going.set()
    def long_lines(number):
        while going.is_set():
            with Load(server, lines, single).connect() as stream:
                stream.sendall(long_request(server, number))
                answer = b""
                while part := stream.recv(1 << 16):
                    answer += part
            status = int(answer.split(b" ", 2)[1]) if answer else 0
            with lock:
                statuses[status] = statuses.get(status, 0) + 1
            if status != 200:
                time.sleep(0.5)
    threads = [threading.Thread(target=long_lines, args=(number,), daemon=True)
               for number in range(arguments.clients)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    beside = one_by_one(server, lines, single, arguments.alone)
    going.clear()
    print(f"beside {arguments.clients} clients with long lines: median "
          f"{statistics.median(beside.times):.4f} s, 95th percentile "
          f"{percentile(beside.times):.4f} s; theirs {statuses}")
    check(alone.wrong == beside.wrong == 0, "each short line is the single translation")
    check(set(beside.statuses) == {200}, f"statuses of short lines {beside.statuses}")
    check(percentile(beside.times) <= bound,
          f"{percentile(beside.times) * 5 / bound:.1f} times as long as alone")
    for thread in threads:
        thread.join()

    streams = [Load(server, lines, single).connect() for _ in range(arguments.clients)]
    for number, stream in enumerate(streams):
        stream.sendall(long_request(server, number))
    time.sleep(1)
    for stream in streams:
        stream.close()
    begun = time.perf_counter()
    after = one_by_one(server, lines, single, 20)
    while time.perf_counter() - begun < 60 and waiting(server) > 0:
        time.sleep(0.01)
    given_up = time.perf_counter() - begun - sum(after.times)
    print(f"after {arguments.clients} that left: longest {max(after.times):.4f} s, "
          f"their work given up after {given_up:.2f} s")
    check(after.wrong == 0 and max(after.times) <= max(bound, 0.5), "nobody waits for them")
    check(given_up <= 1, "their work is given up")


def waiting(server):
    """Lines that wait or are worked on."""
    line = next(line for line in server.metrics().splitlines()
                if line.startswith("taper_waiting_lines{"))
    return int(float(line.rsplit(" ", 1)[1]))


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
