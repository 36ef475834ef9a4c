"""What folders of the library Transformers with translation models have in common: what a model gives, and its files.

`expected.safetensors` has token ids of sources and targets, one after another, and from them the logits and the gradient of
every parameter under the name that Transformers gives it, in float64. `expected.json` has ids of texts, and what `generate`
writes, greedily and with a beam of 4.
"""

import copy
import json
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from ..common import relative_error, save

TOLERANCE = 3e-6


def draw(model: PreTrainedModel, seed: int) -> None:
    """Random weights and biases; sinusoids stay."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            is_norm = "norm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (1.0 if is_norm else 0.0))
        if hasattr(model, "final_logits_bias"):
            bias = model.final_logits_bias
            bias += torch.randn(bias.shape, generator=generator) * 0.5


def learn_padding(model: PreTrainedModel) -> None:
    """The row of padding learns nothing in Transformers, where targets may begin with it, and here it does."""
    if hasattr(model.model, "shared"):
        model.model.shared.padding_idx = None
    for part in (model.model.encoder, model.model.decoder):
        part.embed_tokens.padding_idx = None


def outputs(model: PreTrainedModel, sources: list[list[int]], goals: list[list[int]]) -> dict[str, Tensor]:
    logits, loss = [], 0.0
    trained = list(model.named_parameters())
    if hasattr(model, "final_logits_bias"):
        # A bias that Transformers does not train, and Taper does.
        model.final_logits_bias = model.final_logits_bias.detach().requires_grad_()
        trained.append(("final_logits_bias", model.final_logits_bias))
    for source, goal in zip(sources, goals):
        output = model(input_ids=torch.tensor([source]), labels=torch.tensor([goal]))
        logits.append(output.logits[0])
        loss = loss + output.loss * len(goal)
    loss = loss / sum(map(len, goals))
    model.zero_grad()
    loss.backward()
    gradients = {f"grad.{name}": parameter.grad for name, parameter in trained if parameter.grad is not None}
    return {"logits": torch.cat(logits), "loss": loss} | gradients


def expect(out: Path, script: str, model: PreTrainedModel, decode, texts: dict, sources: list, goals: dict) -> None:
    """Writes what `model` gives for the ids of texts: `texts` are facts of the JSON file, `goals` have their ids."""
    targets = list(goals.values())
    rows = sources[: len(targets)]
    results, single = outputs(copy.deepcopy(model).double(), rows, targets), outputs(model, rows, targets)
    errors = {name: relative_error(single[name], value) for name, value in results.items() if value.norm() > 1e-9}
    worst = max(errors, key=errors.get)
    print(f"{out.name}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    flat = lambda lists: torch.tensor([item for one in lists for item in one])
    lengths = lambda lists: torch.tensor([len(one) for one in lists])
    data = {
        "sources": flat(rows), "source_lengths": lengths(rows), "targets": flat(targets), "target_lengths": lengths(targets),
    }
    results = {name: value.detach().clone() for name, value in results.items()}
    save(out / "expected.safetensors", script, data | results, transformers=transformers.__version__)
    model.requires_grad_(False)

    def written(beams: int) -> list[str]:
        found = [model.generate(torch.tensor([row]), num_beams=beams)[0] for row in sources]
        return [decode(row, skip_special_tokens=True) for row in found]

    expected = texts | {"sources": sources, "goals": goals, "greedy": written(1), "beam": written(4)}
    (out / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n")
