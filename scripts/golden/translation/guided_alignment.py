"""Makes guided-alignment.safetensors: loss and gradients of a Transformer whose attention is drawn to links.

The model and its sentences are those of transformer-pre.safetensors, whose parameters are not stored again. The
weights of the head are those that torch.nn.MultiheadAttention returns; the loss is that of Garg et al. 2019, section
4.2, as fairseq's criterion label_smoothed_cross_entropy_with_alignment adds it up: over target tokens the sum of the
cross entropy, plus λ times the sum over links of −log of the weight, each divided by the links of its target token.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ..common import default_folder, relative_error, save, setup
from .transformer import CASES, LABEL_SMOOTHING, PAD, TOLERANCE, Transformer, fill, our_names, padded, sentences

WEIGHT, LAYER, HEAD = 0.3, 0, 2
# (sentence, target position, source position): a token with two links, tokens with none, one to `</s>`.
LINKS = [(0, 0, 1), (0, 0, 3), (0, 2, 0), (0, 3, 5), (1, 0, 0), (1, 1, 2), (1, 6, 1), (2, 0, 7), (2, 0, 2), (2, 0, 4)]


def run(dtype: torch.dtype) -> dict[str, Tensor]:
    case = CASES[0]
    text = sentences(case)
    model = Transformer(case).to(dtype)
    fill(model, case.seed)
    attention = model.decoder.layers[LAYER].cross_attention
    seen = []
    original = attention.forward

    def forward(query: Tensor, key: Tensor, value: Tensor, **masks: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = original(query, key, value, need_weights=True, average_attn_weights=False, **masks)
        seen.append(weights)
        return output, weights

    attention.forward = forward
    source, target_in, target_out = (padded(text[key]) for key in ["source", "target_in", "target_out"])
    logits = model.project(model.decode(model.encode(source), source, target_in))
    (weights,) = seen  # (B, H, Tq, Tk)
    loss = F.cross_entropy(
        logits.flatten(0, 1), target_out.flatten(), label_smoothing=LABEL_SMOOTHING, ignore_index=PAD, reduction="sum"
    )
    for sentence, query, key in LINKS:
        share = sum(link[:2] == (sentence, query) for link in LINKS)
        loss = loss - WEIGHT / share * weights[sentence, HEAD, query, key].log()
    loss = loss / sum(len(row) for row in text["target_out"])
    loss.backward()
    results = {"loss": loss.detach()}
    for name, parameter in model.named_parameters():
        results |= {f"grad.{key}": value.detach() for key, value in our_names(name, parameter.grad).items()}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    results, single = run(torch.float64), run(torch.float32)
    errors = {name: relative_error(single[name], results[name]) for name in results}
    worst = max(errors, key=errors.get)
    print(f"PyTorch in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    text = sentences(CASES[0])
    # As packed rows: the sentences of each side one after another.
    first = {key: [sum(map(len, text[key][:i])) for i in range(len(text[key]))] for key in ["source", "target_in"]}
    links = [(first["target_in"][i] + query, first["source"][i] + key) for i, query, key in LINKS]
    tensors = {"links": torch.tensor(links)}
    settings = {"weight": WEIGHT, "layer": LAYER, "head": HEAD}
    save(arguments.out / "guided-alignment.safetensors", __file__, tensors | results, **settings)


if __name__ == "__main__":
    main()
