"""Makes transformer-xl-library.safetensors: TransfoXLLMHeadModel of the library Transformers, segment after segment.

The library removed the model after version 4.35, which needs an environment of its own (README.md). Texts are read in
segments, and the memories that the model returns for one are given to the next, as it is meant to be used. Three things
are not the library's defaults:

- The first segment is given memories of no tokens. Without any the library makes `mem_len` rows of zeros, which tokens
  attend to; the authors' own PyTorch code begins with none.
- There are no cutoffs: the adaptive embedding and softmax are one matrix, with a bias that stays zero.
- `Tensor.float` does nothing while the reference is made, as the library rounds scores to float32 where it masks them,
  and all else here is in float64. Beside it the script runs the library as it is, in float32.

`logits` and the loss with all gradients have every token see its segment and the memory; `logits.same_length` are those
of an evaluation with more memory, of which each token sees as many, and a bound on distances.
"""

import argparse
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from transformers import TransfoXLConfig, TransfoXLLMHeadModel

from ..common import default_folder, random, relative_error, save, setup

VOCABULARY, WIDTH, INNER, HEADS, LAYERS = 37, 32, 64, 4, 2
SEGMENT, MEMORY = 4, 6
LONGER_MEMORY, CLAMP = 9, 7
EPSILON = 1e-5
LABEL_SMOOTHING = 0.1
TOLERANCE = 3e-6
# The library's names, and those of taper-model.
NAMES = [
    ("transformer.word_emb.emb_layers.0", "embedding"),
    ("transformer.layers", "decoder.layers"),
    ("dec_attn.layer_norm", "self_attention_norm"),
    ("dec_attn.qkv_net", "self_attention.qkv"),
    ("dec_attn.o_net", "self_attention.out"),
    ("dec_attn.r_net", "self_attention.distance"),
    ("dec_attn.r_w_bias", "self_attention.content_bias"),
    ("dec_attn.r_r_bias", "self_attention.distance_bias"),
    ("pos_ff.layer_norm", "feed_forward_norm"),
    ("pos_ff.CoreNet.0", "feed_forward.up"),
    ("pos_ff.CoreNet.3", "feed_forward.down"),
]


def our_name(name: str) -> str:
    for theirs, ours in NAMES:
        name = name.replace(theirs, ours)
    return name


def library_model(seed: int, dtype: torch.dtype, **settings: object) -> TransfoXLLMHeadModel:
    """With random parameters, the same for each dtype."""
    config = TransfoXLConfig(
        vocab_size=VOCABULARY, cutoffs=[], div_val=1, d_model=WIDTH, d_embed=WIDTH, n_head=HEADS, d_head=WIDTH // HEADS,
        d_inner=INNER, n_layer=LAYERS, dropout=0.0, dropatt=0.0, layer_norm_epsilon=EPSILON, tie_word_embeddings=True,
        **settings,
    )
    model = TransfoXLLMHeadModel(config)
    torch.nn.init.zeros_(model.crit.out_layers[0].bias.requires_grad_(False))
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = parameter.shape[-1] ** -0.5 if name.endswith("weight") and parameter.dim() == 2 else 0.1
        scale = 0.5 if name.endswith(("r_w_bias", "r_r_bias")) else scale
        mean = 1.0 if name.endswith("layer_norm.weight") else 0.0
        parameter.data = random(generator, *parameter.shape, scale=scale, mean=mean)
    return model.to(dtype)


def read(model: TransfoXLLMHeadModel, text: Tensor) -> Tensor:
    """The logits of a text, segment after segment: (T, V)."""
    parameter = next(model.parameters())
    memories = [torch.zeros(0, 1, WIDTH, dtype=parameter.dtype) for _ in range(LAYERS)]
    found = []
    for segment in text.split(SEGMENT):
        states, next_memories = model.transformer(segment[None], mems=memories, return_dict=False)
        out = model.crit
        logits = out._compute_logit(states[0], out.out_layers[0].weight, out.out_layers[0].bias, out.out_projs[0])
        whole = model(segment[None], mems=memories)
        assert torch.equal(whole.prediction_scores[0], logits.log_softmax(-1))
        memories = next_memories
        found.append(logits)
    return torch.cat(found)


def run(rows: list[Tensor], seed: int, dtype: torch.dtype):
    settings = {"mem_len": MEMORY, "same_length": False, "clamp_len": -1}
    model = library_model(seed, dtype, **settings)
    nearest_kink = []
    for layer in model.transformer.layers:
        layer.pos_ff.CoreNet[0].register_forward_hook(lambda _, __, out: nearest_kink.append(out.abs().min().item()))
    logits = torch.cat([read(model, row[:-1]) for row in rows])
    assert min(nearest_kink) > 1e-4, "a ReLU is at its kink: another seed"
    answers = torch.cat([row[1:] for row in rows])
    loss, nll = (F.cross_entropy(logits, answers, label_smoothing=smoothing) for smoothing in (LABEL_SMOOTHING, 0.0))
    loss.backward()
    longer = library_model(seed, dtype, mem_len=LONGER_MEMORY, same_length=True, clamp_len=CLAMP)
    with torch.no_grad():
        same_length = torch.cat([read(longer, row[:-1]) for row in rows])
    results = {"logits": logits, "logits.same_length": same_length, "loss": loss, "nll": nll}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            results[f"grad.{our_name(name)}"] = parameter.grad
    return model, {name: tensor.detach() for name, tensor in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    setup()
    seed = 12
    generator = torch.Generator().manual_seed(100 + seed)
    rows = [torch.randint(1, VOCABULARY, (count,), generator=generator) for count in (22, 4, 10, 2)]
    _, single = run(rows, seed, torch.float32)
    rounding, torch.Tensor.float = torch.Tensor.float, lambda self: self
    model, results = run(rows, seed, torch.float64)
    torch.Tensor.float = rounding
    errors = {name: relative_error(single[name], results[name]) for name in results}
    worst = max(errors, key=errors.get)
    print(f"the library in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    assert relative_error(results["logits.same_length"], results["logits"]) > 1e-3, "more memory changes nothing"
    tensors = {our_name(name): tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    tensors |= results
    tensors["answers"] = torch.cat([row[1:] for row in rows])
    tensors["text_ids"] = torch.cat([row[:-1] for row in rows])
    tensors["lengths"] = torch.tensor([len(row) - 1 for row in rows])
    settings = {
        "segment": SEGMENT, "memory": MEMORY, "longer_memory": LONGER_MEMORY, "clamp": CLAMP, "heads": HEADS,
        "transformers": transformers.__version__,
    }
    save(arguments.out / "transformer-xl-library.safetensors", __file__, tensors, **settings)


if __name__ == "__main__":
    main()
