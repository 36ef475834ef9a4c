#!/usr/bin/env python3
"""Trains the model of a Taper run in plain PyTorch, by the same recipe, so that the two scores can be compared.

    taper train configs/tatoeba-en-zh.toml --run runs/tatoeba
    python scripts/compare/pytorch_baseline.py runs/tatoeba runs/tatoeba-pytorch
    taper bleu runs/tatoeba-pytorch/test.zh data/tatoeba-en-zh/test.zh --tokenize zh

Reads the run's config.toml and tokenizer.json, and the same text. Model, initialisation, dropout, loss (R-Drop
included), optimizer, schedule, batches by token budget, bidirectional epochs, subword dropout and moving average are
the recipe's; random numbers are others. It makes as many updates as the run has made (or --updates), validates as often, on
the same sentences and by the same metric, and translates the test sets with the weights that `taper translate`
would take: the mean of the last checkpoints where the recipe sets average_last, else the best.

Writes to OUTPUT: metrics.jsonl, in the words of Taper's; best.pt and weights-STEP.pt; a file of translations for
each test set; and state.pt at each validation, and at Ctrl-C or SIGTERM, from which the same command goes on.

Refused: data in other formats than text (plain or .gz), or without a validation split; two tokenizers; Unigram sampling; the positions
t5, rotary and alibi; products in f16; early stopping by accuracy or chrF; training.spike_factor;
training.checkpoint_every, unless with each validation; of [decoding] what changes the search: patience, min_length,
repetition_penalty, no_repeat_ngram, allow_unknown, sampling.

Needs Python 3.11 or later and: sacrebleu, tokenizers, torch. Made with torch 2.15.
"""

import argparse
import gzip
import json
import math
import os
import random
import signal
import time
import tomllib
from pathlib import Path

import sacrebleu
import torch
from pytorch_translator import END, PAD, START, Translator, padded, search
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional as F


class Corpus:
    """The splits of a run's data, as its tokenizer cuts them."""

    def __init__(self, data: dict, tokenizer: Tokenizer):
        self.data, self.tokenizer = data, tokenizer

    def lines(self, split: str, language: str) -> list[str]:
        path = Path(self.data["dir"], f"{split}.{language}")
        compressed = Path(f"{path}.gz")
        if not path.exists() and not compressed.exists():
            raise SystemExit(f"{path}: there is neither this file nor {compressed.name}; unpack other compressed text first")
        text = path.read_bytes() if path.exists() else gzip.decompress(compressed.read_bytes())
        return [line.removesuffix("\r") for line in text.decode().removesuffix("\n").split("\n")]

    def pairs(self, split: str) -> list[tuple[str, str]]:
        sides = [self.lines(split, self.data[f"{side}_language"]) for side in ("source", "target")]
        return list(zip(*sides, strict=True))

    def ids(self, texts: list[str], dropout: float = 0.0) -> list[list[int]]:
        # The library tells "no dropout" from a dropout of 0.
        if dropout or self.data["tokenizer"]["dropout"]:
            self.tokenizer.model.dropout = dropout or None
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def text(self, rows: list[list[int]]) -> list[str]:
        return self.tokenizer.decode_batch(rows, skip_special_tokens=True)

    def training_pairs(self) -> tuple[list[str], list[str], list[tuple[int, int]]]:
        """What cleaning keeps of the training split, with lengths in tokens, end marks included."""
        rules, limit = self.data["cleaning"], self.data["cleaning"]["max_characters"]
        pairs = [pair for pair in self.pairs(self.data["train"]) if all(side.strip() and len(side) <= limit for side in pair)]
        sources, targets = (list(side) for side in zip(*pairs, strict=True))
        kept = []
        for place, row in enumerate(zip(self.ids(sources), self.ids(targets), strict=True)):
            shorter, longer = sorted(map(len, row))
            unequal = rules["max_ratio"] > 0 and longer > rules["max_ratio"] * shorter
            if max(1, rules["min_tokens"]) <= shorter and longer <= rules["max_tokens"] and not unequal:
                kept.append((sources[place], targets[place], (len(row[0]) + 1, len(row[1]) + 1)))
        return tuple(list(column) for column in zip(*kept, strict=True))


class Batches:
    """The training data in the batches of an epoch: a function of seed and epoch."""

    def __init__(self, corpus: Corpus, seed: int):
        self.corpus, self.seed, self.epoch = corpus, seed, None
        self.sources, self.targets, self.lengths = corpus.training_pairs()
        self.pairs, self.bidirectional_epochs = len(self.lengths), corpus.data.get("bidirectional_epochs", 0)
        if self.bidirectional_epochs:
            # The same pairs again, turned round.
            self.sources, self.targets = self.sources + self.targets, self.targets + self.sources
            self.lengths += [(target, source) for source, target in self.lengths]

    def plan(self, epoch: int):
        """Pairs of similar length together, as full as the token budget allows, then shuffled: as Taper does."""
        config, draws = self.corpus.data["batching"], random.Random(f"{self.seed} {epoch}")
        order = list(range(len(self.lengths) if epoch < self.bidirectional_epochs else self.pairs))
        if config["shuffle"]:
            draws.shuffle(order)
            if config["group_by_length"]:
                noise = [1 + config["length_noise"] * (draws.random() - 0.5) for _ in order]
                order.sort(key=lambda pair: (self.lengths[pair][1] * noise[pair], self.lengths[pair][0] * noise[pair]))
        batches, totals = [[]], (0, 0)
        for pair in order:
            grown = tuple(map(sum, zip(totals, self.lengths[pair], strict=True)))
            full = max(grown) > config["max_tokens"] or len(batches[-1]) == (config["max_sentences"] or len(order))
            if full and batches[-1]:
                batches.append([])
                grown = self.lengths[pair]
            batches[-1].append(pair)
            totals = grown
        if config["shuffle"]:
            draws.shuffle(batches)
        dropout = self.corpus.data["tokenizer"]["dropout"]
        if self.epoch is None or dropout:
            self.rows = self.corpus.ids(self.sources, dropout), self.corpus.ids(self.targets, dropout)
        self.epoch, self.batches = epoch, batches

    def get(self, epoch: int, index: int):
        """Source, decoder input and answers of a batch, padded; and whether the epoch ends with it."""
        if epoch != self.epoch:
            self.plan(epoch)
        source, target = ([side[pair] for pair in self.batches[index]] for side in self.rows)
        source = padded([row + [END] for row in source])
        return source, padded([[START] + row for row in target]), padded([row + [END] for row in target]), index + 1 == len(self.batches)


def predictions(model, batch, passes: int):
    """What the decoder says before each real target token, (passes, tokens, width), and those tokens."""
    source, target, answers = batch
    hidden = model.decode(target.repeat(passes, 1), *model.encode(source.repeat(passes, 1)))
    # Only real tokens reach the output layer, which is half of the work.
    real = answers != PAD
    return hidden[real.repeat(passes, 1)].view(passes, -1, hidden.shape[-1]), answers[real]


def loss_sums(log_probabilities, answers, smoothing: float):
    """Sums over the target tokens, means of the passes: the cross entropy with smoothing, and without."""
    passes = len(log_probabilities)
    plain = -log_probabilities.gather(-1, answers.expand(passes, -1)[..., None]).sum()
    smoothed = (1 - smoothing) * plain - smoothing / log_probabilities.shape[-1] * log_probabilities.sum()
    return torch.stack([smoothed, plain]) / passes


def loss_gradient(log_probabilities, answers, smoothing: float, r_drop: float):
    """The R-Drop term of the loss, a sum over the target tokens, and the gradient of all of it by the logits.

    Of cross entropy that is p - q, q the smoothed answers. Of R-Drop's (p - p') (log p - log p'), p' being the other
    pass's p, it is p (d - sum(p d)) + p - p' with d = log p - log p'. By autograd it takes as long again.
    """
    passes, vocabulary = len(log_probabilities), log_probabilities.shape[-1]
    gradient, divergence = log_probabilities.exp(), torch.zeros(())
    if r_drop:
        first, second = gradient
        difference, apart = log_probabilities[0] - log_probabilities[1], first - second
        expected = torch.linalg.vecdot(gradient, difference[None])[..., None]
        divergence = r_drop * (expected[0] - expected[1]).sum() / passes
        first.mul_(torch.add(1 - r_drop * expected[0], difference, alpha=r_drop)).add_(apart, alpha=r_drop)
        second.mul_(torch.add(1 + r_drop * expected[1], difference, alpha=-r_drop)).sub_(apart, alpha=r_drop)
    gradient.sub_(smoothing / vocabulary)
    answers = answers.expand(passes, -1)[..., None]
    gradient.scatter_add_(-1, answers, gradient.new_full(answers.shape, smoothing - 1))
    return divergence, gradient.div_(passes)


def accumulate_gradients(model, batch, smoothing: float, r_drop: float, tokens: int, autocast):
    """Adds the gradients of a batch's loss, a share of `tokens`, and gives its sums: what is minimised, then `loss_sums`."""
    with autocast():
        hidden, answers = predictions(model, batch, 2 if r_drop else 1)
    # The output layer takes some rows at a time, whose logits stay in a processor's cache.
    size = 64 if hidden.device.type == "cpu" else 8192
    rows, weights = hidden.detach(), model.output.detach()
    if model.output.grad is None:
        model.output.grad = torch.zeros_like(weights)
    gradient, totals = torch.empty_like(rows), torch.zeros(3)
    with torch.no_grad(), autocast():
        if torch.is_autocast_enabled(hidden.device.type):
            # Once, and not for each part.
            weights = weights.to(torch.get_autocast_dtype(hidden.device.type))
        for part, wanted, result in zip(rows.split(size, 1), answers.split(size), gradient.split(size, 1), strict=True):
            log_probabilities = F.linear(part, weights).float().log_softmax(-1)
            sums = loss_sums(log_probabilities, wanted, smoothing)
            divergence, by_logits = loss_gradient(log_probabilities, wanted, smoothing, r_drop)
            by_logits = by_logits.flatten(0, 1).to(weights.dtype)
            result.copy_((by_logits @ weights).view(part.shape)).div_(tokens)
            model.output.grad.add_(by_logits.T @ part.flatten(0, 1), alpha=1 / tokens)
            totals += torch.stack([sums[0] + divergence, *sums]).cpu()
    hidden.backward(gradient)
    return totals


def learning_rate(config: dict, width: int, last: int, step: int) -> float:
    """The schedules of Taper, at update `step` from 1."""
    kind, peak, warmup, minimum = config["kind"], config["learning_rate"], config["warmup"], config["minimum"]
    if kind == "noam":
        rate = config["scale"] * width**-0.5 * min(step**-0.5, step * max(warmup, 1) ** -1.5)
        return rate if step < warmup else max(rate, minimum)
    if step < warmup:
        return peak * step / warmup
    progress = min((step - warmup) / (last - warmup), 1.0) if last > warmup else 1.0
    shapes = {
        "constant": peak,
        "inverse_sqrt": max(peak * math.sqrt(max(warmup, 1) / step), minimum),
        "cosine": minimum + (peak - minimum) * (1 + math.cos(math.pi * progress)) / 2,
        "linear": minimum + (peak - minimum) * (1 - progress),
    }
    return shapes[kind]


def translate(model, corpus: Corpus, texts: list[str], config: dict, beam: int, rows: int = 64) -> list[str]:
    """Translations in the order of `texts`; an empty line stays empty."""
    model.eval()
    sources = corpus.ids(texts)
    order = sorted((place for place, row in enumerate(sources) if row), key=lambda place: len(sources[place]))
    translations = [[] for _ in texts]
    for start in range(0, len(order), rows):
        places = order[start : start + rows]
        for place, result in zip(places, search(model, [sources[p] for p in places], config, beam), strict=True):
            translations[place] = result
    model.train()
    return corpus.text(translations)


class Training:
    """Model, optimizer and where training is, with what is written to the output folder."""

    def __init__(self, config: dict, corpus: Corpus, output: Path, updates: int, device: str):
        self.config, self.corpus, self.output, self.updates, self.device = config, corpus, output, updates, device
        training = self.recipe = config["training"]
        torch.manual_seed(training["seed"])
        self.model = Translator(config["model"], corpus.tokenizer.get_vocab_size()).to(device).train()
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() > 1]
        vectors = [parameter for parameter in self.model.parameters() if parameter.dim() == 1]
        options = training["optimizer"]
        kind = torch.optim.AdamW if options["kind"] == "adamw" else torch.optim.Adam
        groups = [{"params": matrices, "weight_decay": options["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = kind(groups, betas=(options["beta1"], options["beta2"]), eps=options["epsilon"], fused=True)
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()} if training["ema_decay"] else None
        self.step, self.epoch, self.index, self.seconds, self.best = 0, 0, 0, 0.0, None
        self.batches = Batches(corpus, training["seed"])
        if (path := output / "state.pt").exists():
            self.load(torch.load(path, weights_only=True))

    def load(self, state: dict):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"]
        self.step, self.epoch, self.index, self.seconds, self.best = (state[key] for key in POSITION)
        # What a killed process did after it had saved this is about to be done again.
        path = self.output / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        path.write_text("".join(line for line in lines if json.loads(line)["step"] <= self.step), encoding="utf-8")

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "average": self.average}
        save(self.output / "state.pt", state | {key: getattr(self, key) for key in POSITION})

    def weights(self) -> dict:
        """What is validated and saved as the model."""
        return self.average or self.model.state_dict()

    def update(self) -> tuple[float, float, int]:
        """One update; its loss and cross entropy a token, and its target tokens."""
        self.step += 1
        # Dropout is a function of seed and update, so that a resumed run is the uninterrupted one.
        torch.manual_seed(self.recipe["seed"] * 1_000_003 + self.step)
        batches = []
        for _ in range(self.recipe["accumulation"]):
            *batch, ends = self.batches.get(self.epoch, self.index)
            self.epoch, self.index = (self.epoch + 1, 0) if ends else (self.epoch, self.index + 1)
            batches.append([side.to(self.device) for side in batch])
        tokens = sum(int((answers != PAD).sum()) for _, _, answers in batches)
        totals = torch.zeros(3)
        for batch in batches:
            smoothing, r_drop = self.recipe["label_smoothing"], self.recipe.get("r_drop", 0.0)
            totals += accumulate_gradients(self.model, batch, smoothing, r_drop, tokens, self.autocast)
        if self.recipe["clip_norm"]:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe["clip_norm"])
        rate = learning_rate(self.recipe["schedule"], self.config["model"]["d_model"], self.recipe["max_updates"], self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average:
            decay = min(self.recipe["ema_decay"], (1 + self.step) / (10 + self.step))
            for name, value in self.model.state_dict().items():
                self.average[name].lerp_(value, 1 - decay)
        return float(totals[1]) / tokens, float(totals[2]) / tokens, tokens

    def autocast(self):
        return torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.config["dtype"] == "bf16")

    def validate(self):
        """Scores the weights on the validation split, and keeps those that are best or among the last."""
        data, evaluation = self.config["data"], self.config["evaluation"]
        model = Translator(self.config["model"], self.corpus.tokenizer.get_vocab_size()).to(self.device)
        model.load_state_dict(self.weights())
        pairs = self.corpus.pairs(data["validation"])
        sums, tokens = torch.zeros(2), 0
        model.eval()
        with torch.no_grad():
            for start in range(0, len(pairs), 50):
                source, target = (self.corpus.ids(list(side)) for side in zip(*pairs[start : start + 50], strict=True))
                rows = [row + [END] for row in source], [[START] + row for row in target], [row + [END] for row in target]
                batch = [padded(side).to(self.device) for side in rows]
                with self.autocast():
                    hidden, answers = predictions(model, batch, 1)
                    log_probabilities = F.linear(hidden, model.output).float().log_softmax(-1)
                sums += loss_sums(log_probabilities, answers, self.recipe["label_smoothing"]).cpu()
                tokens += len(answers)
        scores = {"loss": float(sums[0]) / tokens, "nll": float(sums[1]) / tokens}
        scores["perplexity"] = math.exp(scores["nll"])
        count = min(evaluation["validation_sentences"], len(pairs))
        if count:
            chosen = [pairs[index * len(pairs) // count] for index in range(count)]
            translations = translate(model, self.corpus, [source for source, _ in chosen], self.config["decoding"], 1)
            references = [self.reference(target) for _, target in chosen]
            options = {"tokenize": evaluation["tokenize"], "lowercase": evaluation["lowercase"]}
            scores["bleu"] = sacrebleu.corpus_bleu(translations, [references], **options).score
        stopping = self.recipe["early_stopping"]
        score = scores["bleu"] if stopping["metric"] == "bleu" else -scores[stopping["metric"]]
        if improved := self.best is None or score > self.best + stopping.get("minimum_change", 0.0):
            self.best = score
            save(self.output / "best.pt", self.weights())
        save(self.output / f"weights-{self.step:08}.pt", self.weights())
        for old in sorted(self.output.glob("weights-*.pt"))[: -max(1, self.recipe["average_last"])]:
            old.unlink()
        self.log({"event": "validation", "step": self.step, "scores": scores, "improved": improved, "seconds": self.seconds})

    def reference(self, text: str) -> str:
        return "".join(map(str.lower, text)) if self.config["data"]["lowercase"] else text

    def log(self, record: dict):
        print(json.dumps(record), flush=True)
        with open(self.output / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def run(self):
        stop = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.append(True))
        losses, began = [], time.perf_counter()
        while self.step < self.updates:
            if stop:
                self.save()
                raise SystemExit(f"interrupted at update {self.step}; the same command goes on from there")
            losses.append(self.update())
            last = self.step == self.updates
            if self.step % self.recipe["log_every"] == 0 or last:
                tokens, seconds = sum(tokens for _, _, tokens in losses), time.perf_counter() - began
                loss, nll = (sum(entry[i] * entry[2] for entry in losses) / tokens for i in (0, 1))
                self.seconds += seconds
                record = {"event": "log", "step": self.step, "epoch": self.epoch, "loss": loss, "nll": nll}
                self.log(record | {"tokens_per_second": tokens / seconds, "seconds": self.seconds})
                losses, began = [], time.perf_counter()
            every = self.recipe["validate_every"]
            if last or (every and self.step % every == 0):
                paused = time.perf_counter()
                self.validate()
                self.save()
                began += time.perf_counter() - paused

    def final_weights(self) -> dict:
        """The mean of the last checkpoints where the recipe averages, else the best."""
        if not self.recipe["average_last"]:
            return torch.load(self.output / "best.pt", weights_only=True)
        parts = [torch.load(path, weights_only=True) for path in sorted(self.output.glob("weights-*.pt"))]
        return {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}

    def test(self):
        """Translates the test sets."""
        data, decoding = self.config["data"], self.config["decoding"]
        self.model.load_state_dict(self.final_weights())
        for split in data["test"]:
            sources = self.corpus.lines(split, data["source_language"])
            translations = translate(self.model, self.corpus, sources, decoding, decoding["beam_size"])
            path = self.output / f"{split}.{data['target_language']}"
            path.write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
            print(path)


POSITION = ("step", "epoch", "index", "seconds", "best")


def save(path: Path, value):
    """Writes a file that appears whole or not at all."""
    partial = path.with_suffix(".partial")
    torch.save(value, partial)
    os.replace(partial, path)


# What these settings are where a search has none of them.
PLAIN_SEARCH = {"patience": 0, "min_length": 0, "repetition_penalty": 1, "no_repeat_ngram": 0, "allow_unknown": False}


def refuse_what_is_missing(config: dict):
    data, positions, training, decoding = config["data"], config["model"]["positions"], config["training"], config["decoding"]
    metric = training["early_stopping"]["metric"]
    for wrong, what in [
        (data["format"] != "text", f"data.format = {data['format']}"),
        (not data["tokenizer"]["joint"], "data.tokenizer.joint = false"),
        (data["tokenizer"]["sampling_alpha"] > 0, "data.tokenizer.sampling_alpha"),
        (positions in ("t5", "rotary", "alibi"), f"model.positions = {positions}"),
        (config["dtype"] == "f16", "dtype = f16"),
        (not data["validation"], "a recipe without data.validation"),
        (metric not in ("loss", "perplexity", "bleu"), f"training.early_stopping.metric = {metric}"),
        (training.get("spike_factor", 0.0) > 0, "training.spike_factor"),
        (training["checkpoint_every"] not in (0, training["validate_every"]), "training.checkpoint_every other than validate_every"),
        *((decoding.get(key, without) != without, f"decoding.{key}") for key, without in PLAIN_SEARCH.items()),
        (decoding.get("sampling", {}).get("temperature", 0) > 0, "decoding.sampling"),
    ]:
        if wrong:
            raise SystemExit(f"{what}: not supported here")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a folder that `taper train` made")
    parser.add_argument("output", type=Path, help="where to write; training goes on if it holds a state.pt")
    parser.add_argument("--updates", type=int, help="updates to make; default: as many as the run has made")
    parser.add_argument("--data", help="the folder of the text, where it is not data.dir")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: one for each core")
    parser.add_argument("--dtype", choices=["f32", "bf16"], help="of products; default: the run's")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, …; default: cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    config = tomllib.loads((arguments.run / "config.toml").read_text(encoding="utf-8"))
    refuse_what_is_missing(config)
    config["data"]["dir"] = arguments.data or config["data"]["dir"]
    config["dtype"] = arguments.dtype or config["dtype"]
    tokenizer = Tokenizer.from_file(str(arguments.run / "tokenizer.json"))
    # Text that spells a special token is text.
    tokenizer.encode_special_tokens = True
    updates = arguments.updates
    if updates is None:
        last = (arguments.run / "checkpoints" / "last").read_text().strip()
        updates = json.loads((arguments.run / "checkpoints" / last / "state.json").read_text())["step"]
    arguments.output.mkdir(parents=True, exist_ok=True)
    training = Training(config, Corpus(config["data"], tokenizer), arguments.output, updates, arguments.device)
    training.run()
    training.test()


if __name__ == "__main__":
    main()
