"""Runs `taper bench train` and a PyTorch peer in turn, and prints the median ratios as a Markdown table.

Called by vs_pytorch.sh, which explains the arguments.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys

# What limits each program to a set of instructions: PyTorch, its oneDNN and its MKL, and Taper. With avx512, PyTorch has AVX-512
# without bf16; without bf16 instructions, Taper takes the same kernel for either type.
INSTRUCTIONS = {
    "native": {},
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "TAPER_KERNEL": "fma512",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "TAPER_KERNEL": "fma256",
    },
}
# Steps that are measured, and steps before them.
STEPS = {"tiny": (8, 2), "small": (6, 2), "base": (3, 1), "big": (2, 1)}


def run(command, instructions):
    """The last line of a program's output as JSON, and the peak resident size of its process in MiB."""
    environment = os.environ | INSTRUCTIONS[instructions]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return json.loads(output.strip().splitlines()[-1]), usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser()
    for name in ("--taper", "--batches", "--peer"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cases", nargs="+", required=True)
    parser.add_argument("--isa", choices=INSTRUCTIONS, nargs="+", default=["native"])
    arguments = parser.parse_args()
    print("| instructions | preset | products | Taper, tokens/s | PyTorch, tokens/s | ratio (all rounds) | peak memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    for isa, case in itertools.product(arguments.isa, arguments.cases):
        preset, dtype = case.split(":")
        steps, warmup = STEPS[preset]
        common = ["--batches", arguments.batches, "--preset", preset, "--dtype", dtype, "--steps", str(steps)]
        common += ["--warmup", str(warmup), "--threads", str(arguments.threads)]
        rates, ratios, memory = [], [], []
        for _ in range(arguments.rounds):
            ours, our_memory = run([arguments.taper, "bench", "train", "--json", *common], isa)
            theirs, their_memory = run([sys.executable, arguments.peer, *common], isa)
            rate = ours["target_tokens_per_s"], theirs["target_tokens_per_s"]
            rates.append(rate)
            ratios.append(rate[0] / rate[1])
            memory.append((our_memory, their_memory))
        median = [statistics.median(column) for column in zip(*rates)]
        size = [statistics.median(column) for column in zip(*memory)]
        spread = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        print(
            f"| {isa} | {preset} | {dtype} | {median[0]:,.0f} | {median[1]:,.0f} | **{statistics.median(ratios):.2f}** ({spread}) "
            f"| {size[0]:,.0f} against {size[1]:,.0f} ({size[0] / size[1]:.2f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
