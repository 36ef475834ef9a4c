"""Makes bert-*.safetensors: outputs, loss and every gradient of small BERTs of the library Transformers.

`bert-pretraining` is a BertForPreTraining: hidden tokens, and whether one text follows another. `bert-classifier` is a
BertForSequenceClassification, `bert-tagger` a BertForTokenClassification, `bert-spans` a BertForQuestionAnswering, and
`bert-mean-classifier` a BertModel with a linear layer on the mean of its states. Parameters are random and under the
names that taper-model gives them; rows of texts lie one after another without padding, while Transformers sees padded
tensors and masks. (Of spans it sees one row at a time, since its softmax over places takes in padding.) The reference
runs in float64 from parameters that float32 holds exactly and is rounded once, on saving; Transformers' own float32 has
to agree with it.
"""

import argparse
import copy
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import (
    BertConfig, BertForPreTraining, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
    BertModel,
)

from ..common import default_folder, pack, relative_error, save, setup

VOCABULARY = 41
CLASSES = 3
TOLERANCE = 3e-6
MODULES = {
    "bert.embeddings.word_embeddings": "embedding",
    "bert.embeddings.position_embeddings": "encoder.positions",
    "bert.embeddings.token_type_embeddings": "encoder.segments",
    "bert.embeddings.LayerNorm": "encoder.embedding_norm",
    "bert.pooler.dense": "pooler",
    "cls.predictions": "output",
    "cls.predictions.transform.dense": "transform",
    "cls.predictions.transform.LayerNorm": "transform_norm",
    "cls.seq_relationship": "next_sentence",
    "classifier": "classes",
    "qa_outputs": "span",
}
PARTS = {
    "attention.output.dense": "self_attention.out",
    "attention.output.LayerNorm": "self_attention_norm",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_forward_norm",
}
PROJECTIONS = [f"attention.self.{name}" for name in ("query", "key", "value")]


def our_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same under our names, with the three projections of attention as one."""
    ours = {}
    for name, tensor in tensors.items():
        module, kind = name.rsplit(".", 1)
        if module in MODULES:
            ours[f"{MODULES[module]}.{kind}"] = tensor
            continue
        layer, part = module.removeprefix("bert.encoder.layer.").split(".", 1)
        if part in PARTS:
            ours[f"encoder.layers.{layer}.{PARTS[part]}.{kind}"] = tensor
        elif part == PROJECTIONS[0]:
            names = [f"bert.encoder.layer.{layer}.{projection}.{kind}" for projection in PROJECTIONS]
            ours[f"encoder.layers.{layer}.self_attention.qkv.{kind}"] = torch.cat([tensors[one] for one in names])
        else:
            assert part in PROJECTIONS, name
    return ours


def padded(rows: list[list[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def inputs(rows: list[list[int]], segments: list[list[int]]) -> dict[str, Tensor]:
    mask = padded([[1] * len(row) for row in rows], 0)
    return {"input_ids": padded(rows, 0), "token_type_ids": padded(segments, 0), "attention_mask": mask}


def gradients(model: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    named = our_names({name: parameter.grad for name, parameter in model.named_parameters()})
    return {f"grad.{name}": gradient for name, gradient in named.items()}


def pretraining(model, rows, segments, labels, follows) -> dict[str, Tensor]:
    output = model(
        **inputs(rows, segments), labels=padded(labels, -100), next_sentence_label=torch.tensor(follows)
    )
    lengths = [len(row) for row in rows]
    asked = pack(padded(labels, -100), lengths) != -100
    return {
        "logits": pack(output.prediction_logits, lengths)[asked],
        "next_sentence_logits": output.seq_relationship_logits, "loss": output.loss,
    } | gradients(model, output.loss)


def classifier(model, rows, segments, labels) -> dict[str, Tensor]:
    output = model(**inputs(rows, segments), labels=torch.tensor(labels))
    return {"logits": output.logits, "loss": output.loss} | gradients(model, output.loss)


def tagger(model, rows, segments, labels) -> dict[str, Tensor]:
    output = model(**inputs(rows, segments), labels=padded(labels, -100))
    lengths = [len(row) for row in rows]
    asked = pack(padded(labels, -100), lengths) != -100
    found = {"logits": pack(output.logits, lengths)[asked], "loss": output.loss} | gradients(model, output.loss)
    return {name.replace("grad.classes", "grad.tags"): tensor for name, tensor in found.items()}


class MeanClassifier(torch.nn.Module):
    """A linear layer on the mean over the tokens of each text, padding left out."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, **inputs: Tensor) -> Tensor:
        mask = inputs["attention_mask"].unsqueeze(2).to(self.classifier.weight.dtype)
        states = self.bert(**inputs).last_hidden_state
        return self.classifier((states * mask).sum(1) / mask.sum(1))


def mean_classifier(model, rows, segments, labels) -> dict[str, Tensor]:
    logits = model(**inputs(rows, segments))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    return {"logits": logits, "loss": loss} | gradients(model, loss)


def spans(model, rows, segments, ends) -> dict[str, Tensor]:
    logits, losses = [], []
    for row, segment, (start, end) in zip(rows, segments, ends):
        output = model(
            **inputs([row], [segment]), start_positions=torch.tensor([start]), end_positions=torch.tensor([end])
        )
        logits.append(torch.stack([output.start_logits[0], output.end_logits[0]], dim=1))
        losses.append(output.loss)
    loss = torch.stack(losses).mean()
    return {"logits": torch.cat(logits), "loss": loss} | gradients(model, loss)


def write(path: Path, model: torch.nn.Module, run, data: dict[str, Tensor]) -> None:
    generator = torch.Generator().manual_seed(23)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "LayerNorm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (1.0 if is_norm else 0.0))
    model.eval()
    results, single = run(copy.deepcopy(model).double()), run(model)
    # A gradient that is only rounding, as that of what is added to all logits alike, has nothing to agree with.
    errors = {name: relative_error(single[name], value) for name, value in results.items() if value.norm() > 1e-9}
    worst = max(errors, key=errors.get)
    print(f"{path.stem}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    parameters = our_names({name: parameter for name, parameter in model.named_parameters()})
    if isinstance(model, BertForTokenClassification):
        parameters = {name.replace("classes", "tags"): parameter for name, parameter in parameters.items()}
    save(path, __file__, parameters | data | results, transformers=transformers.__version__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    out = parser.parse_args().out
    setup()
    shape = dict(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    config = BertConfig(**shape, num_labels=CLASSES)
    generator = torch.Generator().manual_seed(5)
    lengths = [7, 3, 12, 5]
    rows = [torch.randint(1, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    segments = [[0] * (length // 2) + [1] * (length - length // 2) for length in lengths]
    asked = [[1, 4], [2], [0, 3, 10], [4]]
    labels = [[(row[i] * 7 + 3) % VOCABULARY if i in at else -100 for i in range(len(row))]
              for row, at in zip(rows, asked)]
    follows = [0, 1, 1, 0]
    text = {
        "text_ids": torch.tensor(sum(rows, [])), "lengths": torch.tensor(lengths),
    }
    flat = sum(labels, [])
    data = text | {
        "segments": torch.tensor(sum(segments, [])), "follows": torch.tensor(follows),
        "asked": torch.tensor([i for i, label in enumerate(flat) if label != -100]),
        "answers": torch.tensor([label for label in flat if label != -100]),
    }
    write(
        out / "bert-pretraining.safetensors", BertForPreTraining(config),
        lambda model: pretraining(model, rows, segments, labels, follows), data,
    )
    nothing = [[0] * length for length in lengths]
    classes = [2, 0, 1, 1]
    write(
        out / "bert-classifier.safetensors", BertForSequenceClassification(config),
        lambda model: classifier(model, rows, nothing, classes), text | {"answers": torch.tensor(classes)},
    )
    tags = [[label % CLASSES if label != -100 else label for label in row] for row in labels]
    flat = [tag for tag in sum(tags, []) if tag != -100]
    write(
        out / "bert-tagger.safetensors", BertForTokenClassification(config),
        lambda model: tagger(model, rows, nothing, tags),
        text | {"asked": data["asked"], "answers": torch.tensor(flat)},
    )
    write(
        out / "bert-mean-classifier.safetensors", MeanClassifier(config),
        lambda model: mean_classifier(model, rows, nothing, classes), text | {"answers": torch.tensor(classes)},
    )
    # Where each answer starts and ends; the second text has none, for which its first token stands.
    ends = [(4, 6), (0, 0), (7, 7), (3, 4)]
    firsts = [sum(lengths[:at]) for at in range(len(lengths))]
    write(
        out / "bert-spans.safetensors", BertForQuestionAnswering(BertConfig(**shape)),
        lambda model: spans(model, rows, segments, ends),
        text | {
            "segments": data["segments"], "asked": torch.tensor([first for first in firsts for _ in range(2)]),
            "answers": torch.tensor(sum(ends, ())),
        },
    )


if __name__ == "__main__":
    main()
