"""Tokens a second that Taper and Transformers generate with a GPT-2 of random weights, in turn.

    cargo build --release
    python3 scripts/bench/gpt2.py --taper target/release/taper --threads 2

Needs torch, transformers and tokenizers. The folder that Transformers saves is imported with `taper import`. Both go on
greedily with the same prompt; the rate is that of the tokens by which a long text exceeds a short one, so that loading,
packing and reading the prompt do not count.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

SHAPES = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "tiny": (2, 64, 2)}
PROMPT = "The sea, the sea and the ships that sail on it"
VOCABULARY = 50257


def make_folder(folder: Path, shape: str):
    """A GPT-2 with weights as they are drawn, and a tokenizer with as many tokens as GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, heads = SHAPES[shape]
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    words += [f"filler{i}" for i in range(VOCABULARY - 1 - len(words))]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads)).eval()
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model, tokenizer.encode(PROMPT).ids


def transformers_seconds(model, ids: list[int], count: int) -> float:
    import torch

    begin = time.perf_counter()
    with torch.inference_mode():
        text = torch.tensor([ids])
        out = model.generate(
            text, attention_mask=torch.ones_like(text), max_new_tokens=count, min_new_tokens=count, do_sample=False,
            pad_token_id=VOCABULARY - 1,
        )
    assert out.shape[1] == len(ids) + count
    return time.perf_counter() - begin


def taper_seconds(taper: str, run: Path, count: int, threads: int) -> float:
    command = [
        taper, "generate", str(run), "--prompt", PROMPT, "--max-tokens", str(count), "--temperature", "0", "--json",
        "--threads", str(threads), "--set", f"decoding.min_length={count}",
    ]
    begin = time.perf_counter()
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - begin
    assert json.loads(printed)["tokens"] == count, printed
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--shape", choices=SHAPES, default="gpt2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--short", type=int, default=8)
    parser.add_argument("--long", type=int, default=72)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    tokens = arguments.long - arguments.short
    rates: dict[str, list[float]] = {"taper": [], "transformers": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder, run = Path(temporary) / "folder", Path(temporary) / "run"
        folder.mkdir()
        model, ids = make_folder(folder, arguments.shape)
        subprocess.run([arguments.taper, "import", str(folder), str(run)], check=True)
        transformers_seconds(model, ids, 2)
        for _ in range(arguments.rounds):
            for name, seconds in [
                ("taper", lambda count: taper_seconds(arguments.taper, run, count, arguments.threads)),
                ("transformers", lambda count: transformers_seconds(model, ids, count)),
            ]:
                rates[name].append(tokens / (seconds(arguments.long) - seconds(arguments.short)))
    for name, found in rates.items():
        print(f"{name:<13} {', '.join(f'{rate:.1f}' for rate in found)} tokens a second")
    ratio = statistics.median(a / b for a, b in zip(rates["taper"], rates["transformers"]))
    print(f"ratio, median of {arguments.rounds} rounds: {ratio:.2f}")


if __name__ == "__main__":
    main()
