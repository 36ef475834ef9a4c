"""Counts what a GPU is asked for: launches, products, copies, memory.

    scripts/check/counting_gpu/build.sh && python3 scripts/check/counting_gpu/count.py [PRESET…]
    python3 scripts/check/counting_gpu/count.py --decoding [PRESET…]
    python3 scripts/check/counting_gpu/count.py --write FILE [SENTENCES TOKENS]  # batches alone

Without an option, of an update: runs `taper bench train` on the counting device (driver.c) for a
few steps and for one more; what the last one takes is the difference. With --decoding, of a step
that decodes a token of 64 sentences: trains a model for an update on the counting device, and
translates with it for 16 and for 32 tokens a sentence. Ends with an error if work was queued on
more than one stream or by more than one thread, or if events were made. Needs Python alone. TARGET
is the folder of the build, TAPER another program that was built with it.
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
SHOWN = ["launches", "products", "uploads", "uploaded", "reads", "read"]
SHOWN += ["copied", "allocations", "allocated"]
# What `bench train` has by these names: layers of each stack, width, heads, feed-forward.
PRESETS = {"tiny": (4, 128, 4, 256), "base": (6, 512, 8, 2048), "big": (6, 1024, 16, 4096)}
SEARCHES = {"greedy": 1, "beam 5": 5}
TOKENS = 16, 32  # a sentence, between which a step is counted
RECIPE = """
name = "counted"
[data]
dir = "."
source_language = "a"
target_language = "b"
train = "train"
validation = "validation"
test = []
[data.tokenizer]
kind = "char"
[data.batching]
max_tokens = 1024
[model]
encoder_layers = {layers}
decoder_layers = {layers}
d_model = {width}
heads = {heads}
d_ff = {feed_forward}
[training]
max_updates = 1
validate_every = 1
[evaluation]
validation_sentences = 0
"""


def write_batches(path, sentences=SENTENCES, length=LENGTH):
    """Sentences of one length: every batch is the same, so that every step is."""
    def tokens(row, first):
        body = [4 + (row * 131 + column * 17) % (VOCABULARY - 4) for column in range(length - 1)]
        return ([2] if first else []) + body + [3]

    tensors, data = {}, b""
    for number in range(2):
        for name, first in (("src", False), ("tgt", True)):
            rows = [tokens(row, first) for row in range(sentences)]
            flat = [token for row in rows for token in row]
            values = struct.pack(f"<{len(flat)}i", *flat)
            shape, at = [sentences, len(rows[0])], [len(data), len(data) + len(values)]
            tensors[f"{name}.{number}"] = {"dtype": "I32", "shape": shape, "data_offsets": at}
            data += values
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


def write_text(folder):
    """Lines of 31 characters, of as many characters as make the vocabulary with the four special
    tokens: the same on both sides, and with `</s>` as long as the batches of training."""
    characters = [chr(0x4E00 + number) for number in range(VOCABULARY - 4)]
    lines = ["".join(characters[at:at + LENGTH - 1]) + "\n"
             for at in range(0, len(characters), LENGTH - 1)]
    for language in "ab":
        for name, of_it in (("train", lines), ("validation", lines[:SENTENCES])):
            with open(f"{folder}/{name}.{language}", "w", encoding="utf-8") as file:
                file.writelines(of_it)


def counts(command, folder, wrong, **further):
    """What the device was asked for by `taper` with these arguments, and its kernels by name."""
    path = f"{folder}/counts"
    environment = dict(os.environ, COUNTING_GPU=path, LD_LIBRARY_PATH=f"{TARGET}/counting-gpu")
    command = [os.path.abspath(TAPER), *command, "--device", "cuda"]
    environment["LD_LIBRARY_PATH"] = os.path.abspath(environment["LD_LIBRARY_PATH"])
    done = subprocess.run(command, env=dict(environment, **further), cwd=folder,
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    found, kernels = {}, {}
    with open(path) as file:
        for line in file:
            name, *rest = line.split()
            if name == "kernel":
                kernels[rest[0]] = int(rest[1])
            else:
                found[name] = int(rest[0])
    if (found["streams"], found["threads"], found["events"]) != (1, 1, 0):
        wrong.append(f"{' '.join(command[1:3])}: {found['streams']} streams, "
                     f"{found['threads']} threads, {found['events']} events")
    return found, kernels


def show(names, shorter, longer, steps, kernels):
    """A row of the table: what a step of the longer run took beyond the shorter."""
    step = {name: (longer[name] - shorter[name]) / steps for name in SHOWN}
    cells = [f"{step[name]:,.0f}" for name in SHOWN] + [f"{longer['most'] >> 20:,} MiB"]
    print("| " + " | ".join([*names, *cells]) + " |", flush=True)
    if os.environ.get("KERNELS"):
        for name, launches in sorted(kernels.items(), key=lambda item: -item[1])[:25]:
            print(f"    {name} {launches}")


def header(names):
    print("| " + " | ".join([*names, *SHOWN]) + " | most in use |")
    print("|" + "---|" * (len(names) + len(SHOWN) + 1))


def training(presets, folder, wrong):
    batches = f"{folder}/batches.safetensors"
    write_batches(batches)
    header(["preset", "type"])
    for preset in presets:
        for dtype in ("f32", "bf16"):
            def of(steps):
                return counts(["bench", "train", "--batches", batches, "--preset", preset,
                               "--dtype", dtype, "--vocab", str(VOCABULARY), "--warmup", "1",
                               "--steps", str(steps)], folder, wrong)
            (shorter, _), (longer, kernels) = of(2), of(3)
            show([preset, dtype], shorter, longer, 1, kernels)


def decoding(presets, folder, wrong):
    write_text(folder)
    header(["preset", "type", "search"])
    for preset in presets:
        layers, width, heads, feed_forward = PRESETS[preset]
        with open(f"{folder}/recipe.toml", "w") as file:
            file.write(RECIPE.format(layers=layers, width=width, heads=heads,
                                     feed_forward=feed_forward))
        for dtype in ("f32", "bf16"):
            run = f"{folder}/{preset}-{dtype}"
            counts(["train", "recipe.toml", "--run", run, "--set", f"dtype={dtype}"], folder, wrong)
            for search, beam in SEARCHES.items():
                def of(tokens):
                    limits = {"max_length_ratio": 0, "max_length_offset": tokens,
                              "max_length": tokens, "min_length": tokens,
                              "batch_rows": 1024, "batch_tokens": 65536}
                    settings = [word for key, value in limits.items()
                                for word in ("--set", f"decoding.{key}={value}")]
                    return counts(["translate", run, "--input", "validation.a", "--beam", str(beam),
                                   *settings], folder, wrong, COUNTING_GPU_NUMBERS="1")
                (shorter, _), (longer, kernels) = of(TOKENS[0]), of(TOKENS[1])
                show([preset, dtype, search], shorter, longer, TOKENS[1] - TOKENS[0], kernels)


def main():
    arguments, wrong = sys.argv[1:], []
    if arguments[:1] == ["--write"]:
        return write_batches(arguments[1], *map(int, arguments[2:]))
    count = decoding if arguments[:1] == ["--decoding"] else training
    presets = [argument for argument in arguments if argument != "--decoding"] or list(PRESETS)
    with tempfile.TemporaryDirectory() as folder:
        count(presets, folder, wrong)
    # An empty text would be an error too.
    sys.exit("\n".join(dict.fromkeys(wrong)) or 0)


if __name__ == "__main__":
    main()
