#!/usr/bin/env python3
"""Memory and speed of fine-tuning a model of NLLB-200-distilled-600M's shape with adapters.

    python scripts/bench/finetune_nllb.py OUTPUT [--base bf16] [--tokens 1000] [--updates 4]

Makes the folder OUTPUT/nllb with random weights in bf16 (1.2 GB) and a vocabulary of 256,206 tokens
around the tokenizer of the golden NLLB, imports it (2.5 GB), and trains adapters of it for some
updates of `--tokens` tokens, with frozen weights in each type of `--base`. Prints the peak of
resident memory, which GNU time measures, beside the formula of `taper inspect`, and the seconds of
an update. What is there already is not made again; OUTPUT may be removed afterwards.

Needs torch, transformers and GNU time.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "crates/run/tests/golden/nllb"
VOCABULARY = 256_206


def make_folder(folder):
    """A folder of the library Transformers: the golden one in the shape of the published model."""
    import torch
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    folder.mkdir(parents=True)
    shape = json.loads((GOLDEN / "config.json").read_text())
    shape |= {"d_model": 1024, "vocab_size": VOCABULARY, "max_position_embeddings": 1024,
              "activation_function": "relu"}
    for side in "encoder", "decoder":
        shape |= {f"{side}_layers": 12, f"{side}_ffn_dim": 4096, f"{side}_attention_heads": 16}
    torch.manual_seed(1)
    model = M2M100ForConditionalGeneration(M2M100Config(**shape)).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer = json.loads((GOLDEN / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    used = len(vocabulary) + sum(one["content"] not in vocabulary for one in tokenizer["added_tokens"])
    vocabulary |= {f"▁unused{number}": number for number in range(used, VOCABULARY)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    shutil.copy(GOLDEN / "tokenizer_config.json", folder)


def write_pairs(folder):
    """Made-up sentences of words that the golden tokenizer spells."""
    draw = random.Random(1)
    words = "the seagulls sail on nothing is lost we see far and wide old birds sing".split()
    for name in "source.txt", "target.txt":
        lines = (" ".join(draw.choices(words, k=12)) for _ in range(600))
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--taper", default="target/release/taper")
    parser.add_argument("--base", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=4)
    arguments = parser.parse_args()
    output, taper = arguments.output.resolve(), Path(arguments.taper).resolve()
    if not (output / "nllb").exists() and not (output / "run").exists():
        make_folder(output / "nllb")
    if not (output / "run").exists():
        subprocess.run([taper, "import", output / "nllb", output / "run"], check=True)
    write_pairs(output)
    print("| frozen weights | peak, GiB | by formula | seconds an update |\n|---|---|---|---|")
    for base in arguments.base:
        recipe, run = output / f"{base}.toml", output / f"adapted-{base}"
        for old in run, output / "divided":
            shutil.rmtree(old, ignore_errors=True)
        recipe.unlink(missing_ok=True)
        settings = {
            "model.lora.rank": 16, "model.lora.alpha": 32, "model.lora.base_dtype": base,
            "dtype": "f32", "data.batching.max_tokens": arguments.tokens,
            "training.accumulation": 1, "training.max_updates": arguments.updates,
            "training.schedule.warmup": 1, "training.log_every": 1, "training.validate_every": 1000,
            "training.early_stopping.metric": "loss", "training.early_stopping.patience": 0,
            "evaluation.validation_sentences": 0, "evaluation.test_after_training": "false",
            "training.keep_last": 1, "data.validation": "", "data.test": "",
        }
        command = ["/usr/bin/time", "-v", taper, "finetune", output / "run", "--pairs",
                   output / "source.txt", output / "target.txt", "--output", recipe, "--run", run,
                   "--data", output / "divided"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        peak = int(re.search(r"Maximum resident set size \(kbytes\): (\d+)", done.stderr)[1])
        shown = subprocess.run([taper, "inspect", run, "--json"], capture_output=True, text=True,
                               check=True)
        formula = json.loads(shown.stdout)["cost"]["peak_bytes"]
        records = (json.loads(line) for line in (run / "metrics.jsonl").open())
        times = [one["timing"]["elapsed_seconds"] for one in records if one["event"] == "log"]
        pace = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else float("nan")
        print(f"| {base} | {peak / 2**20:.2f} | {formula / 2**30:.2f} | {pace:.1f} |", flush=True)
        shutil.rmtree(run)


if __name__ == "__main__":
    main()
