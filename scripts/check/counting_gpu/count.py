"""Counts what a GPU is asked for in a training step: launches, products, copies, memory.

    scripts/check/counting_gpu/build.sh && python3 scripts/check/counting_gpu/count.py [PRESET…]
    python3 scripts/check/counting_gpu/count.py --write FILE     # the batches alone

Runs `taper bench train` on the counting device (driver.c) for a few steps and for one more; what the
last one takes is the difference. Ends with an error if work was queued on more than one stream or by
more than one thread, or if events were made. Needs Python alone.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

TARGET = os.environ.get("TARGET", "target/cuda")
TAPER = os.environ.get("TAPER", f"{TARGET}/release/taper")
VOCABULARY, SENTENCES, LENGTH = 10_000, 64, 32
SHOWN = ["launches", "products", "uploads", "uploaded", "reads", "read", "allocations", "allocated"]


def write_batches(path):
    """64 sentences of 32 tokens: every batch is the same, so that every step is."""
    def tokens(row, first):
        body = [4 + (row * 131 + column * 17) % (VOCABULARY - 4) for column in range(LENGTH - 1)]
        return ([2] if first else []) + body + [3]

    tensors, data = {}, b""
    for number in range(2):
        for name, first in (("src", False), ("tgt", True)):
            rows = [tokens(row, first) for row in range(SENTENCES)]
            flat = [token for row in rows for token in row]
            values = struct.pack(f"<{len(flat)}i", *flat)
            shape, at = [SENTENCES, len(rows[0])], [len(data), len(data) + len(values)]
            tensors[f"{name}.{number}"] = {"dtype": "I32", "shape": shape, "data_offsets": at}
            data += values
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def counts(batches, preset, dtype, steps, folder):
    path = f"{folder}/counts"
    environment = dict(os.environ, COUNTING_GPU=path, LD_LIBRARY_PATH=f"{TARGET}/counting-gpu")
    command = [TAPER, "bench", "train", "--batches", batches, "--preset", preset, "--device", "cuda",
               "--dtype", dtype, "--vocab", str(VOCABULARY), "--warmup", "1", "--steps", str(steps)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    found, kernels = {}, {}
    with open(path) as file:
        for line in file:
            name, *rest = line.split()
            if name == "kernel":
                kernels[rest[0]] = int(rest[1])
            else:
                found[name] = int(rest[0])
    return found, kernels


def main():
    if sys.argv[1:2] == ["--write"]:
        return write_batches(sys.argv[2])
    presets, wrong = sys.argv[1:] or ["tiny", "base", "big"], []
    print("| preset | type | " + " | ".join(SHOWN) + " | most in use |")
    print("|" + "---|" * (len(SHOWN) + 3))
    with tempfile.TemporaryDirectory() as folder:
        batches = f"{folder}/batches.safetensors"
        write_batches(batches)
        for preset in presets:
            for dtype in ("f32", "bf16"):
                before, _ = counts(batches, preset, dtype, 2, folder)
                after, kernels = counts(batches, preset, dtype, 3, folder)
                step = {name: after[name] - before[name] for name in SHOWN}
                cells = [f"{step[name]:,}" for name in SHOWN] + [f"{after['most'] >> 20:,} MiB"]
                print(f"| {preset} | {dtype} | " + " | ".join(cells) + " |")
                if (after["streams"], after["threads"], after["events"]) != (1, 1, 0):
                    wrong.append(f"{preset}, {dtype}: {after['streams']} streams, "
                                 f"{after['threads']} threads, {after['events']} events")
                if os.environ.get("KERNELS"):
                    for name, launches in sorted(kernels.items(), key=lambda item: -item[1])[:25]:
                        print(f"    {name} {launches}")
    sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
