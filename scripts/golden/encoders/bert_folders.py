"""Makes the folders bert, bert-classifier, bert-tags and bert-spans: small BERTs with random weights as Transformers saves
them, and what they give.

`config.json`, `model.safetensors` and `tokenizer.json` are those of `save_pretrained` of a BertForPreTraining, of a
BertForSequenceClassification, of a BertForTokenClassification and of a BertForQuestionAnswering, and of a WordPiece
tokenizer with BERT's special tokens. `expected.safetensors` has token
ids of several texts, one after another, and from them the logits and the gradient of every parameter under the name that
Transformers gives it. The reference runs in float64 from the saved weights and is rounded once, on saving; Transformers'
own float32 has to agree with it.
"""

import argparse
import copy
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from ..common import ROOT, pack, relative_error, save, setup
from .bert import inputs, padded

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["the", "no", "##th", "##ing", "##gulls", "sail", "lost"]
TEXTS = ["The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; [MASK] and 7 ships", "Café unlost"]
LABELS = {0: "calm", 1: "stormy", 2: "unknown"}
TAGS = {0: "O", 1: "B-SEA", 2: "I-SEA"}
TOLERANCE = 3e-6
LENGTH = 24


def tokenizer() -> Tokenizer:
    # Written out, since the trainer gives another vocabulary each time.
    letters = sorted({letter for text in TEXTS[:2] for letter in text.lower() if letter.isalpha()})
    vocabulary = SPECIAL + list("!.") + letters + [f"##{letter}" for letter in letters] + PIECES
    numbers = {token: number for number, token in enumerate(vocabulary)}
    made = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    made.add_special_tokens(SPECIAL)
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    ends = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    return made


def pretraining(model, rows, segments, labels, follows) -> dict[str, Tensor]:
    output = model(
        **inputs(rows, segments), labels=padded(labels, -100), next_sentence_label=torch.tensor(follows)
    )
    model.zero_grad()
    output.loss.backward()
    lengths = [len(row) for row in rows]
    asked = pack(padded(labels, -100), lengths) != -100
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    logits = {"logits": pack(output.prediction_logits, lengths)[asked], "pairs": output.seq_relationship_logits}
    return logits | {"loss": output.loss} | gradients


def classification(model, rows, segments, labels) -> dict[str, Tensor]:
    output = model(**inputs(rows, segments), labels=torch.tensor(labels))
    model.zero_grad()
    output.loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": output.logits, "loss": output.loss} | gradients


def tagging(model, rows, segments, tags) -> dict[str, Tensor]:
    output = model(**inputs(rows, segments), labels=padded(tags, -100))
    model.zero_grad()
    output.loss.backward()
    asked = pack(padded(tags, -100), [len(row) for row in rows]) != -100
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": pack(output.logits, [len(row) for row in rows])[asked], "loss": output.loss} | gradients


def spans(model, rows, segments, ends) -> dict[str, Tensor]:
    logits, losses = [], []
    for row, segment, (start, end) in zip(rows, segments, ends):
        # One at a time: the softmax over places would take in padding.
        output = model(
            **inputs([row], [segment]), start_positions=torch.tensor([start]), end_positions=torch.tensor([end])
        )
        logits.append(torch.stack([output.start_logits[0], output.end_logits[0]], dim=1))
        losses.append(output.loss)
    loss = torch.stack(losses).mean()
    model.zero_grad()
    loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": torch.cat(logits), "loss": loss} | gradients


def write(folder: Path, model: torch.nn.Module, words: Tokenizer, run, data: dict[str, Tensor]) -> None:
    model.eval()
    generator = torch.Generator().manual_seed(31)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "LayerNorm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_norm else 0.0))
    model.save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    results, single = run(copy.deepcopy(model).double()), run(model)
    # A gradient that is only rounding has nothing to agree with.
    errors = {name: relative_error(single[name], value) for name, value in results.items() if value.norm() > 1e-9}
    worst = max(errors, key=errors.get)
    print(f"{folder.name}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    results = {name: value.detach().clone() for name, value in results.items()}
    save(folder / "expected.safetensors", __file__, data | results, transformers=transformers.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "crates" / "run" / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    setup()
    words = tokenizer()
    shape = dict(
        vocab_size=words.get_vocab_size(), hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    mask = words.token_to_id("[MASK]")
    pairs = [words.encode(TEXTS[first], TEXTS[second]) for first, second in ((0, 1), (3, 2), (1, 3))]
    rows, segments = [pair.ids[:LENGTH] for pair in pairs], [pair.type_ids[:LENGTH] for pair in pairs]
    labels = [[-100] * len(row) for row in rows]
    for row, at in ((0, 2), (0, 9), (1, 3), (2, 4)):
        labels[row][at], rows[row][at] = rows[row][at], mask
    flat = lambda lists: torch.tensor([item for one in lists for item in one])
    answers = flat(labels)
    data = {
        "ids": flat(rows), "segments": flat(segments), "lengths": torch.tensor([len(row) for row in rows]),
        "follows": torch.tensor([0, 1, 1]), "answers": answers[answers != -100],
        "asked": torch.nonzero(answers != -100).flatten(),
    }
    model = BertForPreTraining(BertConfig(**shape))
    masked = (rows, segments, labels, [0, 1, 1])
    write(out / "bert", model, words, lambda model: pretraining(model, *masked), data)
    mixed = [*map(words.encode, TEXTS), words.encode(TEXTS[1], TEXTS[3])]
    rows, segments, classes = [one.ids for one in mixed], [one.type_ids for one in mixed], [0, 2, 1, 1, 0]
    data = {
        "ids": flat(rows), "segments": flat(segments), "lengths": torch.tensor([len(row) for row in rows]),
        "answers": torch.tensor(classes),
    }
    names = {label: number for number, label in LABELS.items()}
    model = BertForSequenceClassification(BertConfig(**shape, id2label=LABELS, label2id=names))
    write(out / "bert-classifier", model, words, lambda model: classification(model, rows, segments, classes), data)
    plain = [words.encode(text) for text in TEXTS]
    rows, segments = [one.ids for one in plain], [one.type_ids for one in plain]
    tags = [[-100] + [(3 * at + row) % 3 for at in range(len(ids) - 2)] + [-100] for row, ids in enumerate(rows)]
    answers = flat(tags)
    data = {
        "ids": flat(rows), "segments": flat(segments), "lengths": torch.tensor([len(row) for row in rows]),
        "answers": answers[answers != -100], "asked": torch.nonzero(answers != -100).flatten(),
    }
    names = {tag: number for number, tag in TAGS.items()}
    model = BertForTokenClassification(BertConfig(**shape, id2label=TAGS, label2id=names))
    write(out / "bert-tags", model, words, lambda model: tagging(model, rows, segments, tags), data)
    rows, segments, ends = [pair.ids for pair in pairs], [pair.type_ids for pair in pairs], [(13, 15), (0, 0), (9, 9)]
    rows, segments = [row[:LENGTH] for row in rows], [row[:LENGTH] for row in segments]
    lengths = [len(row) for row in rows]
    data = {
        "ids": flat(rows), "segments": flat(segments), "lengths": torch.tensor(lengths), "answers": flat(ends),
        "asked": torch.tensor([sum(lengths[:at]) for at in range(len(rows)) for _ in range(2)]),
    }
    model = BertForQuestionAnswering(BertConfig(**shape))
    write(out / "bert-spans", model, words, lambda model: spans(model, rows, segments, ends), data)


if __name__ == "__main__":
    main()
