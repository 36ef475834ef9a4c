"""Times attention of Taper and of PyTorch's scaled_dot_product_attention in turn, forward and
backward, and prints a Markdown table of the ratios by the length of a sequence.

    python3 scripts/bench/attention.py [--lengths 512,2048,8192] [--causal] [--dropout P]
        [--heads 8] [--width 64] [--dtype f32|bf16] [--threads 2] [--rounds 3] [--seconds 3]
        [--taper PROGRAM]

Both get the same shapes and the same number of threads; of each round the least time of several
passes counts, and a ratio is of the two programs of one round: one program's times on a shared
machine say little. Needs PyTorch, and cargo where PROGRAM (the bench, built before) is not given.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# Tokens of a batch of shorter sequences, as in crates/ops/benches/attention.rs.
TOKENS = 2048


def peer(arguments):
    """What the bench of Taper prints, of PyTorch."""
    import torch

    torch.set_num_threads(arguments.threads)
    dtype = torch.bfloat16 if arguments.dtype == "bf16" else torch.float32
    for length in map(int, arguments.lengths.split(",")):
        sequences = max(1, TOKENS // length)
        shape = (sequences, arguments.heads, length, arguments.width)
        inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
        adjoint = torch.randn(shape, dtype=dtype)
        forward = backward = processor = float("inf")
        start, rounds = time.perf_counter(), 0
        while rounds < 2 or time.perf_counter() - start < arguments.seconds:
            times = [(time.perf_counter(), time.process_time())]
            out = torch.nn.functional.scaled_dot_product_attention(
                *inputs, is_causal=arguments.causal, dropout_p=arguments.dropout
            )
            times.append((time.perf_counter(), time.process_time()))
            gradients = torch.autograd.grad(out, inputs, adjoint)
            times.append((time.perf_counter(), time.process_time()))
            del out, gradients
            forward = min(forward, times[1][0] - times[0][0])
            backward = min(backward, times[2][0] - times[1][0])
            processor = min(processor, times[2][1] - times[0][1])
            rounds += 1
        line = {"length": length, "forward": forward, "backward": backward, "processor": processor}
        print(json.dumps(line), flush=True)


def lines(command, environment):
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = (json.loads(line) for line in output.stdout.splitlines() if line.startswith("{"))
    return {line["length"]: line for line in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a length in a round")
    parser.add_argument("--taper", metavar="PROGRAM", help="the bench, built before")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        return peer(arguments)
    options = []
    for name in ("lengths", "dropout", "heads", "width", "dtype", "seconds"):
        options += [f"--{name}", str(getattr(arguments, name))]
    if arguments.causal:
        options.append("--causal")
    threads = str(arguments.threads)
    environment = dict(os.environ, RAYON_NUM_THREADS=threads, OMP_NUM_THREADS=threads)
    cargo = ["cargo", "bench", "--quiet", "-p", "taper-ops", "--bench", "attention", "--"]
    ours = [*([arguments.taper] if arguments.taper else cargo), *options]
    theirs = [sys.executable, __file__, "--peer", "--threads", threads, *options]
    rounds = [(lines(ours, environment), lines(theirs, environment)) for _ in range(arguments.rounds)]
    print("| length | Taper, ms | PyTorch, ms | forward | forward and backward (rounds) | processor time |")
    print("|---|---|---|---|---|---|")
    for length in map(int, arguments.lengths.split(",")):
        pairs = [(a[length], b[length]) for a, b in rounds]
        total = lambda line: line["forward"] + line["backward"]
        ratio = lambda key: statistics.median(key(b) / key(a) for a, b in pairs)
        ratios = sorted(total(b) / total(a) for a, b in pairs)
        print(
            f"| {length} | {1e3 * statistics.median(total(a) for a, _ in pairs):.1f} "
            f"| {1e3 * statistics.median(total(b) for _, b in pairs):.1f} "
            f"| {ratio(lambda line: line['forward']):.2f} "
            f"| **{statistics.median(ratios):.2f}** ({', '.join(f'{x:.2f}' for x in ratios)}) "
            f"| {ratio(lambda line: line['processor']):.2f} |"
        )


if __name__ == "__main__":
    main()
