"""Makes low-rank-attention.safetensors: Performers and Linformers by the packages performer-pytorch and linformer.

Cases `performer` and `performer_causal`: the kernel and the two attentions of performer-pytorch with the vectors ω of
its own drawing, one sentence. Its kernel adds 1e-4 to each feature, which is no part of the paper; here it is called
with 0. Cases `linformer` and `linformer_short`: its layer without a projection of the result, on a sentence that is as
long as it can be and on a shorter one.

Before the file is written, Performers are compared with sums over all weights, and Linformers with the equation.
"""

import argparse
from importlib.metadata import version
from pathlib import Path

import torch
from linformer.linformer import LinformerSelfAttention
from performer_pytorch.performer_pytorch import (
    causal_linear_attention_noncuda, gaussian_orthogonal_random_matrix, linear_attention, softmax_kernel,
)
from torch import Tensor

from ..common import HEADS, MODEL_DIM, default_folder, random, relative_error, save, setup

HEAD = MODEL_DIM // HEADS
FEATURES, LENGTH, RANK = 10, 24, 6
TOLERANCE = 1e-12


def heads(x: Tensor) -> Tensor:
    """(T, D) as (1, H, T, Dh)."""
    return x.reshape(x.shape[0], HEADS, HEAD).transpose(0, 1)[None]


def together(x: Tensor) -> Tensor:
    return x[0].transpose(0, 1).reshape(-1, MODEL_DIM)


def performer(qkv: Tensor, omega: Tensor, causal: bool) -> Tensor:
    query, key, value = (heads(part) for part in qkv.chunk(3, dim=1))
    query = softmax_kernel(query, projection_matrix=omega, is_query=True, eps=0.0)
    key = softmax_kernel(key, projection_matrix=omega, is_query=False, eps=0.0)
    if causal:
        return together(causal_linear_attention_noncuda(query, key, value, chunk_size=5, eps=0.0))
    return together(linear_attention(query, key, value))


def by_weights(qkv: Tensor, omega: Tensor, causal: bool) -> Tensor:
    """exp(ωq − ‖q‖²/2)·exp(ωk − ‖k‖²/2) for each query and key."""
    query, key, value = (heads(part) for part in qkv.chunk(3, dim=1))
    phi = lambda x: ((x @ omega.T) - x.square().sum(-1, keepdim=True) / 2).exp()
    weights = phi(query * HEAD**-0.25) @ phi(key * HEAD**-0.25).transpose(2, 3)
    weights = weights.tril() if causal else weights
    return together(weights / weights.sum(-1, keepdim=True) @ value)


def by_equation(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    query, key, value = (x @ part.T for part in weights["qkv.weight"].chunk(3))
    length = x.shape[0]
    key, value = (heads(weights[f"{name}_sums"][:, :length] @ part) for name, part in (("key", key), ("value", value)))
    return together((heads(query) @ key.transpose(2, 3) * HEAD**-0.5).softmax(-1) @ value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    generator = torch.Generator().manual_seed(20200930)
    torch.manual_seed(20200930)
    tensors: dict[str, Tensor] = {}
    for case, causal in (("performer", False), ("performer_causal", True)):
        omega = gaussian_orthogonal_random_matrix(FEATURES, HEAD).float().double()
        qkv = random(generator, 37, 3 * MODEL_DIM).requires_grad_()
        output_gradient = random(generator, 37, MODEL_DIM)
        output = performer(qkv, omega, causal)
        output.backward(output_gradient)
        again = qkv.detach().clone().requires_grad_()
        by_weights(again, omega, causal).backward(output_gradient)
        errors = [relative_error(output.detach(), by_weights(qkv.detach(), omega, causal))]
        errors.append(relative_error(qkv.grad, again.grad))
        print(f"{case}: performer-pytorch is within {max(errors):.1e} relative of its weights")
        assert max(errors) < TOLERANCE, case
        stored = {"omega": omega, "qkv": qkv.detach(), "output_gradient": output_gradient}
        stored |= {"output": output.detach(), "grad.qkv": qkv.grad}
        tensors |= {f"{case}.{name}": tensor for name, tensor in stored.items()}
    for case, length in (("linformer", LENGTH), ("linformer_short", 17)):
        module = LinformerSelfAttention(MODEL_DIM, LENGTH, k=RANK, heads=HEADS).double()
        module.to_out = torch.nn.Identity()
        weights = {"qkv.weight": random(generator, 3 * MODEL_DIM, MODEL_DIM, scale=MODEL_DIM**-0.5)}
        weights |= {f"{name}_sums": random(generator, RANK, LENGTH, scale=LENGTH**-0.5) for name in ("key", "value")}
        for name, part in zip("qkv", weights["qkv.weight"].chunk(3)):
            getattr(module, f"to_{name}").weight.data = part.clone()
        module.proj_k.data, module.proj_v.data = weights["key_sums"].T.clone(), weights["value_sums"].T.clone()
        x = random(generator, length, MODEL_DIM).requires_grad_()
        output_gradient = random(generator, length, MODEL_DIM)
        output = module(x[None])[0]
        output.backward(output_gradient)
        error = relative_error(output.detach(), by_equation(x.detach(), weights))
        print(f"{case}: linformer is within {error:.1e} relative of the equation")
        assert error < TOLERANCE, case
        stored = weights | {"input": x.detach(), "output_gradient": output_gradient, "output": output.detach()}
        stored |= {"grad.input": x.grad, "grad.key_sums": module.proj_k.grad.T, "grad.value_sums": module.proj_v.grad.T}
        tensors |= {f"{case}.{name}": tensor.contiguous() for name, tensor in stored.items()}
    save(
        arguments.out / "low-rank-attention.safetensors", __file__, tensors, model_dim=MODEL_DIM,
        heads=HEADS, **{name: version(name) for name in ("performer-pytorch", "linformer")},
    )


if __name__ == "__main__":
    main()
