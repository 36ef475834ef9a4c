"""Makes experts.safetensors: a mixture of experts by the Switch Transformer of transformers.

One sentence through SwitchTransformersSparseMLP, whose experts take so few tokens that some are dropped, with the
gradients of Σ output ⊙ output_gradient + BALANCE · balance loss + Z · z-loss. Before the file is written, the result is
compared with each token computed by itself.
"""

import argparse
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersConfig, SwitchTransformersSparseMLP, load_balancing_loss_func, router_z_loss_func,
)

from ..common import MODEL_DIM, default_folder, random, relative_error, save, setup

LENGTH, INNER, EXPERTS, CAPACITY = 18, 24, 4, 5
BALANCE, Z = 0.5, 0.25
TOLERANCE = 1e-12


def by_hand(x: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, int]:
    """One token after the other; how many are dropped."""
    rows, taken, dropped = [], [0] * EXPERTS, 0
    for token in x:
        probabilities = (weights["router"] @ token).softmax(0)
        expert = int(probabilities.argmax())
        taken[expert] += 1
        if taken[expert] > CAPACITY:
            dropped += 1
            rows.append(torch.zeros_like(token))
        else:
            inner = (weights[f"up.{expert}"] @ token).relu()
            rows.append(probabilities[expert] * (weights[f"down.{expert}"] @ inner))
    return torch.stack(rows), dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20210111)
    config = SwitchTransformersConfig(
        d_model=MODEL_DIM, d_ff=INNER, num_experts=EXPERTS, expert_capacity=CAPACITY, dropout_rate=0.0,
        router_jitter_noise=0.0, dense_act_fn="relu",
    )
    module = SwitchTransformersSparseMLP(config).double()
    module.router.dtype = torch.float64
    weights = {"router": random(generator, EXPERTS, MODEL_DIM, scale=MODEL_DIM**-0.5)}
    module.router.classifier.weight.data = weights["router"].clone()
    for index in range(EXPERTS):
        expert = module.experts[f"expert_{index}"]
        weights[f"up.{index}"] = random(generator, INNER, MODEL_DIM, scale=MODEL_DIM**-0.5)
        weights[f"down.{index}"] = random(generator, MODEL_DIM, INNER, scale=INNER**-0.5)
        expert.wi.weight.data, expert.wo.weight.data = weights[f"up.{index}"].clone(), weights[f"down.{index}"].clone()
    x = random(generator, LENGTH, MODEL_DIM).requires_grad_()
    output_gradient = random(generator, LENGTH, MODEL_DIM)
    output = module(x[None])[0]
    logits = module.router.classifier(x)[None]
    probabilities = logits.softmax(-1)
    balance = load_balancing_loss_func(probabilities, probabilities.argmax(-1))
    z = router_z_loss_func(logits)
    ((output * output_gradient).sum() + BALANCE * balance + Z * z).backward()
    expected, dropped = by_hand(x.detach(), weights)
    error = relative_error(output.detach(), expected)
    print(f"transformers is within {error:.1e} relative of each token by itself; {dropped} of {LENGTH} are dropped")
    assert error < TOLERANCE and 0 < dropped < LENGTH // 2
    stored = weights | {"input": x.detach(), "output_gradient": output_gradient, "output": output.detach()}
    stored |= {"balance": balance.detach(), "z": z.detach(), "grad.input": x.grad}
    stored["grad.router"] = module.router.classifier.weight.grad
    for index in range(EXPERTS):
        expert = module.experts[f"expert_{index}"]
        stored |= {f"grad.up.{index}": expert.wi.weight.grad, f"grad.down.{index}": expert.wo.weight.grad}
    save(
        arguments.out / "experts.safetensors", __file__, stored, model_dim=MODEL_DIM, experts=EXPERTS,
        capacity=CAPACITY, dropped=dropped, balance=BALANCE, z=Z, transformers=transformers.__version__,
    )


if __name__ == "__main__":
    main()
