"""Makes clip.safetensors: a small CLIP with random weights, and what Transformers' CLIPModel makes of it.

Images as bytes, channel by channel and row by row, and texts that begin with `<s>` and end with `</s>`, of different
lengths; the rows of both that their encoders give, the logits of images by texts, the symmetric loss, and the gradient of
every parameter. Parameters and gradients are under the names that taper-model gives them.

The reference runs in float64 from parameters that float32 holds exactly, and is rounded once, on saving; float32 has to
agree with it.
"""

import argparse
import copy
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import CLIPConfig, CLIPModel

from ..common import default_folder, relative_error, save, setup
from .vit import pixels

TOLERANCE = 3e-6
SIZE, PATCH, VOCABULARY, START, END = 12, 4, 20, 2, 3
TEXTS = [[START, 7, 9, END], [START, 5, END], [START, 12, 9, 4, 19, END], [START, 8, 8, END], [START, END]]
MODULES = {
    "vision_model.embeddings.patch_embedding": "patches",
    "vision_model.embeddings.position_embedding": "encoder.positions",
    "vision_model.pre_layrnorm": "encoder.embedding_norm",
    "vision_model.post_layernorm": "encoder.final_norm",
    "visual_projection": "image_projection",
    "text_model.embeddings.token_embedding": "text_embedding",
    "text_model.embeddings.position_embedding": "text.positions",
    "text_model.final_layer_norm": "text.final_norm",
    "text_projection": "text_projection",
}
STACKS = {"vision_model.encoder.layers.": "encoder.layers.", "text_model.encoder.layers.": "text.layers."}
PARTS = {
    "self_attn.out_proj": "self_attention.out",
    "layer_norm1": "self_attention_norm",
    "layer_norm2": "feed_forward_norm",
    "mlp.fc1": "feed_forward.up",
    "mlp.fc2": "feed_forward.down",
}
PROJECTIONS = [f"self_attn.{name}_proj" for name in "qkv"]


def our_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same under our names, with the three projections of attention as one."""
    ours = {}
    for name, tensor in tensors.items():
        if name == "logit_scale":
            ours["scale"] = tensor.reshape(1)
            continue
        if name == "vision_model.embeddings.class_embedding":
            ours["class_token.weight"] = tensor.reshape(1, -1)
            continue
        module, kind = name.rsplit(".", 1)
        if module in MODULES:
            rows = tensor.flatten(1) if kind == "weight" and tensor.dim() > 1 else tensor
            ours[f"{MODULES[module]}.{kind}"] = rows
            continue
        stack = next(stack for stack in STACKS if name.startswith(stack))
        layer, part = module.removeprefix(stack).split(".", 1)
        if part in PARTS:
            ours[f"{STACKS[stack]}{layer}.{PARTS[part]}.{kind}"] = tensor
        elif part == PROJECTIONS[0]:
            names = [f"{stack}{layer}.{projection}.{kind}" for projection in PROJECTIONS]
            ours[f"{STACKS[stack]}{layer}.self_attention.qkv.{kind}"] = torch.cat([tensors[one] for one in names])
        else:
            assert part in PROJECTIONS, name
    return ours


def results(model: CLIPModel, images: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    longest = max(map(len, TEXTS))
    ids = torch.tensor([text + [END] * (longest - len(text)) for text in TEXTS])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in TEXTS])
    output = model(input_ids=ids, attention_mask=mask, pixel_values=pixels(images, model.dtype), return_loss=True)
    output.loss.backward()
    found = {
        "image_rows": output.image_embeds, "text_rows": output.text_embeds,
        "logits": output.logits_per_image, "loss": output.loss,
    }
    gradients = our_names({name: parameter.grad for name, parameter in model.named_parameters()})
    found |= {f"grad.{name}": gradient for name, gradient in gradients.items()}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    out = parser.parse_args().out
    setup()
    text = {
        "vocab_size": VOCABULARY, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 3, "max_position_embeddings": 9, "bos_token_id": START, "eos_token_id": END,
        "pad_token_id": 0,
    }
    vision = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": SIZE, "patch_size": PATCH, "num_channels": 3,
    }
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=10, attn_implementation="eager")
    model = CLIPModel(config).eval()
    generator = torch.Generator().manual_seed(29)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name and name.endswith("weight")
            mean = 1.7 if name == "logit_scale" else 1.0 if is_norm else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + mean)
    images = torch.randint(0, 256, (len(TEXTS), 3, SIZE, SIZE), generator=generator)
    exact, single = results(copy.deepcopy(model).double(), images), results(model, images)
    # A key bias has no gradient in exact arithmetic: what is there is rounding.
    thirds = {name: tensor.shape[0] // 3 for name, tensor in exact.items() if name.endswith("qkv.bias")}
    for name, third in thirds.items():
        for tensors in (exact, single):
            tensors[name][third:2 * third] = 0.0
    errors = {name: relative_error(single[name], exact[name]) for name in exact}
    worst = max(errors, key=errors.get)
    print(f"float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    lengths = torch.tensor([len(text) for text in TEXTS])
    data = {"images": images.flatten(), "texts": torch.tensor(sum(TEXTS, [])), "lengths": lengths}
    parameters = our_names(dict(model.named_parameters()))
    save(out / "clip.safetensors", __file__, data | parameters | exact, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
