#!/usr/bin/env python3
"""Decodes one text with Taper and with CTranslate2, from the same weights, and compares results, speed and memory.

Usage: python scripts/compare/with_ctranslate2.py RUN TEXT [--taper target/release/taper] [--beams 1 5]

The run is exported first (taper export --format ctranslate2). Both sides get the same settings, the ones in which their
rules agree:

- length penalty n^α with n counting </s> (`decoding.length_penalty_form = "power"`), α from --length-penalty;
- a beam stops once as many hypotheses have finished as it is wide (`decoding.patience = 1`), and with α = 0 as soon
  as nothing can beat the best;
- no length reward, least length, penalty or ban of repetition, and no drawing, whatever the run's recipe has;
- no token is forbidden: CTranslate2 takes forbidden ones out of the distribution before it normalises, Taper
  scores by the whole distribution.

Both take --batch sentences at once, Taper in a beam search fewer where `decoding.batch_tokens` allows no more.

One rule stays different: at the maximum length CTranslate2 ends a hypothesis as it is, Taper adds </s> and
its log-probability. Such lines are counted apart in the comparison of scores.

Speed is of the steady state, from text to text: each side runs as a process of its own, loads the model, translates one
line, and then times the whole text. Processes alternate, and medians of --repeats are reported with the spread, besides
the processor time and the peak resident memory of each process (CTranslate2's contains Python). --help lists the options.

Needs Python 3.11 or later and: ctranslate2, tokenizers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def lines_of(path: Path) -> list[str]:
    """Its lines as Taper reads them: only a line feed ends one, and a carriage return before it is no part of it."""
    text = path.read_bytes().decode("utf-8")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


class CTranslate2:
    """CTranslate2 from text to text."""

    def __init__(self, arguments):
        import ctranslate2
        from tokenizers import Tokenizer

        run = arguments.run
        joint = run / "tokenizer.json"
        self.source = Tokenizer.from_file(str(joint if joint.exists() else run / "tokenizer.source.json"))
        self.target = Tokenizer.from_file(str(joint if joint.exists() else run / "tokenizer.target.json"))
        self.arguments = arguments
        self.translator = ctranslate2.Translator(
            str(arguments.model), compute_type=arguments.compute_type, inter_threads=1, intra_threads=arguments.threads
        )

    def translate(self, lines: list[str], beam: int):
        """For each line its translation, score, and whether it ran into the maximum length."""
        arguments = self.arguments
        encoded = [e.tokens for e in self.source.encode_batch(lines, add_special_tokens=False)]
        results = self.translator.translate_batch(
            encoded,
            beam_size=beam,
            length_penalty=arguments.length_penalty,
            max_decoding_length=arguments.max_length,
            min_decoding_length=0,
            max_input_length=0,
            max_batch_size=arguments.batch,
            return_scores=True,
        )
        ids = [[self.target.token_to_id(token) for token in result.hypotheses[0]] for result in results]
        texts = [text.replace("\r", " ").replace("\n", " ") for text in self.target.decode_batch(ids)]
        return [(text, result.scores[0], len(row) >= arguments.max_length) for text, result, row in zip(texts, results, ids)]


def weight_type(arguments) -> str:
    """Taper's name of the type that CTranslate2 multiplies in, unless --weights names another."""
    if arguments.weights:
        return arguments.weights
    kind = arguments.compute_type
    return "int8" if kind.startswith("int8") else "bf16" if kind == "bfloat16" else "f32"


def taper_settings(arguments, beam: int) -> list[str]:
    settings = {
        "decoding.length_penalty_form": "power",
        "decoding.patience": 1,
        "decoding.allow_unknown": "true",
        "decoding.length_reward": 0,
        "decoding.min_length": 0,
        "decoding.repetition_penalty": 1,
        "decoding.no_repeat_ngram": 0,
        "decoding.n_best": 1,
        "decoding.sampling.temperature": 0,
        # No line is cut or divided: CTranslate2 takes them whole.
        "data.cleaning.max_tokens": 100_000,
        "decoding.max_length_ratio": 0,
        "decoding.max_length_offset": arguments.max_length,
        "decoding.max_length": arguments.max_length,
        "decoding.batch_rows": arguments.batch * beam,
    }
    options = ["--beam", str(beam), "--length-penalty", str(arguments.length_penalty), "--weights", weight_type(arguments)]
    for key, value in settings.items():
        options += ["--set", f"{key}={value}"]
    for setting in arguments.set:
        options += ["--set", setting]
    return options


def taper_translations(arguments, beam: int) -> list[dict]:
    command = [arguments.taper, "translate", str(arguments.run), "--input", str(arguments.text), "--json"]
    command += taper_settings(arguments, beam) + ["--set", f"threads={arguments.threads}"]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return [json.loads(line)["translations"][0] for line in output.removesuffix("\n").split("\n")]


def agreement(arguments, beam: int):
    theirs = CTranslate2(arguments).translate(lines_of(arguments.text), beam)
    ours = taper_translations(arguments, beam)
    same = sum(own["text"] == text for own, (text, _, _) in zip(ours, theirs))
    full = sum(cut for _, _, cut in theirs)
    differences = [abs(own["score"] - score) for own, (text, score, cut) in zip(ours, theirs) if own["text"] == text and not cut]
    print(f"  identical lines     {same} of {len(ours)} ({100 * same / len(ours):.2f} %)")
    print(f"  largest difference  {max(differences, default=0):.1e} between the scores of identical lines", end="")
    print(f" ({full} lines end at the maximum length)" if full else "")
    for number, (own, (text, score, _)) in enumerate(zip(ours, theirs), 1):
        if arguments.show and own["text"] != text:
            print(f"    line {number}\n      taper       {own['score']:.5f} {own['text']}\n      ctranslate2 {score:.5f} {text}")


def measured(command: list[str]) -> dict:
    """What a process reports of itself as JSON, with the processor time that it took."""
    before = os.times()
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    after = os.times()
    report = json.loads(output.splitlines()[-1])
    report["cpu"] = after.children_user - before.children_user + after.children_system - before.children_system
    return report


def speed(arguments, beam: int):
    taper = [arguments.taper, "bench", "decode", str(arguments.run), "--input", str(arguments.text), "--json"]
    taper += ["--repeats", "1", "--threads", str(arguments.threads)] + taper_settings(arguments, beam)
    peer = [sys.executable, __file__] + sys.argv[1:] + ["--worker", str(beam), "--model", str(arguments.model)]
    reports = [(measured(taper), measured(peer)) for _ in range(arguments.repeats)]
    rates = [[report["sentences_per_second"] for report in side] for side in zip(*reports)]
    for name, rate, side in zip(("taper", "ctranslate2"), rates, zip(*reports)):
        cpu = statistics.median(report["cpu"] for report in side)
        memory = max(report["peak_memory"] for report in side) / 1e6
        print(f"  {name:<19} {statistics.median(rate):.1f} sentences/s ({min(rate):.1f} to {max(rate):.1f}), ", end="")
        print(f"{cpu:.1f} s of processor time, {memory:.0f} MB at most")
    ratios = [own / other for own, other in zip(*rates)]
    print(f"  ratio               {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of {len(ratios)} pairs")


def worker(arguments):
    """One timed pass of CTranslate2, reported as JSON."""
    lines = lines_of(arguments.text)
    peer = CTranslate2(arguments)
    peer.translate(lines[:1], arguments.worker)
    began = time.perf_counter()
    peer.translate(lines, arguments.worker)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"sentences_per_second": len(lines) / seconds, "peak_memory": peak}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("text", type=Path, help="one sentence a line, not compressed")
    parser.add_argument("--taper", default="target/release/taper", help="the binary")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--max-length", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="0 compares translations only")
    parser.add_argument("--batch", type=int, default=64, help="sentences translated at once, by both")
    parser.add_argument("--compute-type", default="float32", help="CTranslate2's, and Taper's unless --weights is given")
    parser.add_argument("--weights", choices=["f32", "bf16", "int8"], help="what Taper multiplies in")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one more setting of Taper's")
    parser.add_argument("--show", action="store_true", help="print the lines that differ")
    parser.add_argument("--model", type=Path, help="a run converted before")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.model is None:
            arguments.model = Path(folder) / "model"
            command = [arguments.taper, "export", arguments.run, arguments.model, "--format", "ctranslate2"]
            subprocess.run(command, check=True)
        for beam in arguments.beams:
            print(f"beam {beam}, length penalty {arguments.length_penalty}, {arguments.threads} threads, ", end="")
            print(f"{weight_type(arguments)} against {arguments.compute_type}", flush=True)
            agreement(arguments, beam)
            if arguments.repeats:
                speed(arguments, beam)


if __name__ == "__main__":
    main()
