"""Compares what Transformers says of folders with what Taper said of their runs.

    compare.py FOLDER      # as scripts/check/hugging_face.py left it
"""

import json
import logging
import sys
from pathlib import Path

import torch
import transformers
from transformers import (
    AutoModelForCausalLM, AutoModelForQuestionAnswering, AutoModelForSequenceClassification,
    AutoTokenizer, pipeline)
from versions import is_newer

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
logging.disable(logging.WARNING)
torch.set_num_threads(1)
torch.set_grad_enabled(False)
# Sums of probabilities of a text, and probabilities.
CLOSE = 1e-4
# Special tokens of all vocabularies that Taper makes.
OURS = ["<s>", "</s>"]


class Folder:
    """One folder, read as a user reads it."""

    def __init__(self, path, case, told):
        self.path, self.case, self.told = str(path), case, told
        self.tokenizer = AutoTokenizer.from_pretrained(self.path)
        self.checks = 0

    def same(self, what, theirs, ours):
        self.checks += 1
        if theirs != ours:
            self.told(f"{what}: Transformers {theirs!r}, Taper {ours!r}")

    def close(self, what, theirs, ours):
        self.checks += 1
        if not abs(theirs - ours) <= CLOSE * max(1, abs(ours)):
            self.told(f"{what}: Transformers {theirs}, Taper {ours}")

    def plain(self, text):
        """The ids of a text, without what is put around it. Text that spells a special token is
        text, unless the folder of others says otherwise."""
        if self.case.get("is_theirs"):
            return self.tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def spells_pieces(self, lines):
        """Whether lines spell special tokens that are pieces of the vocabulary as well: there
        Transformers finds the piece, and the text is unknown to Taper."""
        names = self.tokenizer.all_special_tokens if self.case.get("has_special_pieces") else []
        return any(name in line for name in names for line in lines)

    def ids(self):
        reads = self.case["model"] not in ("lines", "files", "llama", "neox")
        for line, ours in self.case.get("ids", {}).items():
            is_read = not self.case.get("is_theirs") and self.case["model"] == "masked"
            if is_read and any(token in line for token in self.tokenizer.all_special_tokens + OURS):
                continue  # Hidden tokens are spelled there, and so are the others.
            if self.spells_pieces([line]):
                continue
            self.same(f"ids of {line!r}", self.plain(line), ours)
            if reads and not self.case.get("is_theirs"):
                marks = [self.tokenizer.cls_token_id], [self.tokenizer.sep_token_id]
                whole = self.tokenizer(line).input_ids
                self.same(f"marks of {line!r}", whole, marks[0] + ours + marks[1])

    def scores(self):
        model = AutoModelForCausalLM.from_pretrained(self.path).float()
        start = self.case.get("start", model.config.bos_token_id)
        for line, ours in self.case["scores"]:
            ids = [start, *self.plain(line)]
            told = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            theirs = sum(told[at, token].item() for at, token in enumerate(ids[1:]))
            self.close(f"score of {line!r}", theirs, ours)
        length = self.tokenizer.model_max_length
        if not self.case.get("is_theirs"):
            self.same("longest text", length, model.config.max_position_embeddings)

    def texts(self):
        if not self.case.get("is_theirs"):
            writes = pipeline("text-generation", model=self.path)
            for prompt, ours in self.case["texts"]:
                theirs = writes(
                    prompt, do_sample=False, max_new_tokens=12, return_full_text=False)
                self.same(f"text after {prompt!r}", theirs[0]["generated_text"], ours)
            return
        model = AutoModelForCausalLM.from_pretrained(self.path).float()
        rows = range(len(self.tokenizer), model.config.vocab_size)
        more = {"suppress_tokens": list(rows)} if rows else {}
        for prompt, ours in self.case["texts"]:
            ids = self.case.get("before", []) + self.plain(prompt)
            out = model.generate(
                torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False, max_new_tokens=12, **more)[0].tolist()
            before, whole = (
                self.tokenizer.decode(some, skip_special_tokens=True,
                                      clean_up_tokenization_spaces=False) for some in (ids, out))
            self.same(f"text after {prompt!r}", whole[len(before):], ours)

    def labels(self):
        model = AutoModelForSequenceClassification.from_pretrained(self.path)
        if not self.case.get("is_theirs"):
            classify = pipeline("text-classification", model=self.path, top_k=None)
            text, ours = self.case["labels"][0]
            asked = text[0] if len(text) == 1 else {"text": text[0], "text_pair": text[1]}
            told = classify(asked)
            told = told[0] if isinstance(told[0], list) else told
            theirs = {one["label"]: one["score"] for one in told}
            for label, ours in zip(["odd", "even"], ours):
                self.close(f"pipeline's {label} of {text}", theirs[label], ours)
        for text, ours in self.case["labels"]:
            if self.spells_pieces(text):
                continue
            more = {"split_special_tokens": True} if self.case.get("is_theirs") else {}
            read = self.tokenizer(*text, return_tensors="pt", **more)
            theirs = model(**read).logits[0].double().softmax(-1).tolist()
            for one, other in zip(theirs, ours, strict=True):
                self.close(f"label of {text}", one, other)

    def answers(self):
        model = AutoModelForQuestionAnswering.from_pretrained(self.path)
        for question, context, start, end in self.case["answers"]:
            read = self.tokenizer(
                question, context, return_tensors="pt", return_offsets_mapping=True)
            offsets, parts = read.pop("offset_mapping")[0].tolist(), read.sequence_ids(0)
            told = model(**read)
            places = [at for at, part in enumerate(parts) if part == 1]
            spans = [(told.start_logits[0, a].item() + told.end_logits[0, b].item(), a, b)
                     for a in places for b in places if a <= b < a + 8]
            sums = sorted(spans, reverse=True)
            if len(sums) > 1 and sums[0][0] - sums[1][0] < CLOSE:
                continue
            _, first, last = sums[0]
            # White space at its ends is no part of an answer.
            begin, stop = offsets[first][0], offsets[last][1]
            answer = context[begin:stop]
            theirs = [stop - len(answer.lstrip()), begin + len(answer.rstrip())]
            self.same(f"answer in {context!r}", theirs, [start, end])

    def masked(self):
        fill = pipeline("fill-mask", model=self.path)
        told = fill(f"I {self.tokenizer.mask_token} you.")
        self.same("hidden token", abs(sum(one["score"] for one in told)) <= 1, True)


def main(folder):
    failed = checks = 0
    for case in json.loads((folder / "cases.json").read_text()):
        for path in case["folders"]:
            if is_newer(folder / path):
                continue
            def told(message, path=path):
                nonlocal failed
                failed += 1
                print(f"transformers {transformers.__version__}, {path}: {message}")
            try:
                read = Folder(folder / path, case, told)
                read.ids()
                for part in ["scores", "texts", "labels", "answers"]:
                    if part in case:
                        getattr(read, part)()
                if case["model"] == "masked":
                    read.masked()
                checks += read.checks
            except Exception as error:  # Whatever it is, the folder is at fault.
                told(f"{type(error).__name__}: {error}")
    print(f"transformers {transformers.__version__}: {checks} comparisons, {failed} failed")
    sys.exit(failed > 0)


main(Path(sys.argv[1]))
