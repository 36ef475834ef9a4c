"""Makes the folders roberta and roberta-classifier: small RoBERTas with random weights as Transformers saves them, and what
they give.

`config.json`, `model.safetensors` and `tokenizer.json` are those of `save_pretrained` of a RobertaForMaskedLM and of a
RobertaForSequenceClassification, and of a tokenizer with RoBERTa's special tokens and rows. `expected.safetensors` is like
that of `bert_folders.py`; there are no segments.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification

from ..common import ROOT, pack, setup
from .bert import padded
from .bert_folders import LABELS, write

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MERGES = ["t h", "th e", "Ġ s", "a i", "ai l", "Ġs ail", "o n"]
TEXTS = ["The seagulls sail on.", "Nothing is lost!", "Sailing, sailing; and 7 ships", "Café unlost"]
PAIR = "Nothing is lost!", "The sail"
LENGTH = 26


def tokenizer() -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [tuple(merge.split()) for merge in MERGES]
    vocabulary = SPECIAL + letters + ["".join(pair) for pair in pairs]
    made = Tokenizer(models.BPE({token: number for number, token in enumerate(vocabulary)}, pairs))
    made.add_special_tokens(SPECIAL)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def masked(model, rows, labels) -> dict[str, Tensor]:
    ids = padded(rows, 1)
    output = model(input_ids=ids, attention_mask=(ids != 1).long(), labels=padded(labels, -100))
    model.zero_grad()
    output.loss.backward()
    lengths = [len(row) for row in rows]
    asked = pack(padded(labels, -100), lengths) != -100
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": pack(output.logits, lengths)[asked], "loss": output.loss} | gradients


def classified(model, rows, labels) -> dict[str, Tensor]:
    ids = padded(rows, 1)
    output = model(input_ids=ids, attention_mask=(ids != 1).long(), labels=torch.tensor(labels))
    model.zero_grad()
    output.loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": output.logits, "loss": output.loss} | gradients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "crates" / "run" / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    setup()
    words = tokenizer()
    keys = dict(
        vocab_size=words.get_vocab_size() + 3, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=LENGTH + 2, type_vocab_size=1, layer_norm_eps=1e-5,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    rows = [words.encode(text).ids for text in TEXTS] + [words.encode(*PAIR).ids]
    hidden, labels = [], []
    for row in rows:
        places = range(2, len(row) - 1, 3)
        labels.append([row[at] if at in places else -100 for at in range(len(row))])
        hidden.append([4 if at in places else id for at, id in enumerate(row)])
    data = {
        "ids": torch.cat([torch.tensor(row) for row in hidden]),
        "lengths": torch.tensor([len(row) for row in hidden]),
        "asked": (torch.cat([torch.tensor(row) for row in labels]) != -100).nonzero()[:, 0],
        "answers": torch.cat([torch.tensor(row) for row in labels]),
    }
    data["answers"] = data["answers"][data["answers"] != -100]
    write(out / "roberta", RobertaForMaskedLM(RobertaConfig(**keys)), words,
          lambda model: masked(model, hidden, labels), data)
    answers = [0, 2, 1, 0, 1]
    data = {
        "ids": torch.cat([torch.tensor(row) for row in rows]),
        "lengths": torch.tensor([len(row) for row in rows]), "answers": torch.tensor(answers),
    }
    config = RobertaConfig(**keys, num_labels=3, id2label=LABELS, label2id={name: at for at, name in LABELS.items()})
    write(out / "roberta-classifier", RobertaForSequenceClassification(config), words,
          lambda model: classified(model, rows, answers), data)


if __name__ == "__main__":
    main()
