"""Makes the folder vit, a small ViT with random weights as Transformers saves it and what it gives, and vit-mean.

`config.json`, `model.safetensors` and `preprocessor_config.json` are those that `save_pretrained` of
`ViTForImageClassification` and of its image processor write. `expected.safetensors` has images as bytes, channel by
channel and row by row, their classes, and from them logits, the mean loss, the gradient of every parameter under the
name that Transformers saves it by, and the attention weights of each layer.

`vit-mean.safetensors` is for a classifier on the mean of all patches with sinusoids of two dimensions: the parts are
those of Transformers' ViT, the sinusoids those of its ViTMAE, under the names that taper-model gives parameters.

The references run in float64 from parameters that float32 holds exactly, and are rounded once, on saving; float32 has to
agree with them.
"""

import argparse
import copy
from pathlib import Path

import torch
import transformers
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor
from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

from ..common import ROOT, default_folder, relative_error, save, setup

TOLERANCE = 3e-6
MEAN, DEVIATION = [0.4, 0.5, 0.45], [0.25, 0.3, 0.2]
SIZE, PATCH, CLASSES = 12, 4, 5
OURS = {
    "vit.embeddings.patch_embeddings.projection": "patches",
    "vit.layernorm": "encoder.final_norm",
    "classifier": "classes",
}
PARTS = {
    "attention.o_proj": "self_attention.out",
    "layernorm_before": "self_attention_norm",
    "layernorm_after": "feed_forward_norm",
    "mlp.fc1": "feed_forward.up",
    "mlp.fc2": "feed_forward.down",
}
PROJECTIONS = [f"attention.{name}_proj" for name in "qkv"]
SAVED = {
    "attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense",
}


def pixels(images: Tensor, dtype: torch.dtype) -> Tensor:
    shaped = images.to(torch.float64) / 255
    mean, deviation = (torch.tensor(of, dtype=torch.float64).reshape(1, 3, 1, 1) for of in (MEAN, DEVIATION))
    return ((shaped - mean) / deviation).to(dtype)


def saved_name(name: str) -> str:
    """What `save_pretrained` calls a parameter."""
    for ours, saved in SAVED.items():
        name = name.replace(f".{ours}.", f".{saved}.")
    return name.replace("vit.layers.", "vit.encoder.layer.")


def our_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same under our names, with the three projections of attention as one."""
    ours = {}
    for name, tensor in tensors.items():
        module, kind = name.rsplit(".", 1)
        if module in OURS:
            rows = tensor.flatten(1) if kind == "weight" and tensor.dim() > 1 else tensor
            ours[f"{OURS[module]}.{kind}"] = rows
        elif module.startswith("vit.layers."):
            layer, part = module.removeprefix("vit.layers.").split(".", 1)
            if part in PARTS:
                ours[f"encoder.layers.{layer}.{PARTS[part]}.{kind}"] = tensor
            elif part == PROJECTIONS[0]:
                names = [f"vit.layers.{layer}.{projection}.{kind}" for projection in PROJECTIONS]
                ours[f"encoder.layers.{layer}.self_attention.qkv.{kind}"] = torch.cat([tensors[one] for one in names])
            else:
                assert part in PROJECTIONS, name
    return ours


def of_class_token(model: ViTForImageClassification, images: Tensor, classes: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    output = model(pixels(images, model.dtype), labels=classes, output_attentions=True)
    output.loss.backward()
    results = {"logits": output.logits, "loss": output.loss}
    results |= {f"attention.{layer}": weights for layer, weights in enumerate(output.attentions)}
    results |= {f"grad.{saved_name(name)}": parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in results.items()}


def of_mean(model: ViTForImageClassification, images: Tensor, classes: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    side, width = SIZE // PATCH, model.config.hidden_size
    x = model.vit.embeddings.patch_embeddings(pixels(images, model.dtype))
    x = x + build_2d_sinusoidal_position_embedding(side, side, width, dtype=model.dtype)
    for layer in model.vit.layers:
        x = layer(x)
        x = x[0] if isinstance(x, tuple) else x
    logits = model.classifier(model.vit.layernorm(x).mean(1))
    loss = torch.nn.functional.cross_entropy(logits, classes)
    loss.backward()
    named = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    results = {"logits": logits, "loss": loss}
    results |= {f"grad.{name}": gradient for name, gradient in our_names(named).items()}
    return {name: tensor.detach().clone() for name, tensor in results.items()}


def checked(model: ViTForImageClassification, run, images: Tensor, classes: Tensor) -> dict[str, Tensor]:
    results, single = run(copy.deepcopy(model).double(), images, classes), run(model, images, classes)
    # A key bias has no gradient in exact arithmetic: what is there is rounding.
    errors = {name: relative_error(single[name], results[name]) for name in results if not name.endswith("key.bias")}
    worst = max(errors, key=errors.get)
    print(f"{run.__name__}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "crates" / "run" / "tests" / "golden" / "vit"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    setup()
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, image_size=SIZE,
        patch_size=PATCH, num_channels=3, attn_implementation="eager",
        id2label=dict(enumerate(["ant", "bee", "cat", "dog", "elk"])),
        label2id={label: index for index, label in enumerate(["ant", "bee", "cat", "dog", "elk"])},
    )
    model = ViTForImageClassification(config).eval()
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "layernorm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (1.0 if is_norm else 0.0))
    images = torch.randint(0, 256, (4, 3, SIZE, SIZE), generator=generator)
    classes = torch.tensor([3, 0, 4, 1])
    model.save_pretrained(out)
    size = {"height": SIZE, "width": SIZE}
    ViTImageProcessor(size=size, image_mean=MEAN, image_std=DEVIATION).save_pretrained(out)
    data = {"images": images.flatten(), "classes": classes}
    results = checked(model, of_class_token, images, classes)
    versions = {"transformers": transformers.__version__}
    save(out / "expected.safetensors", __file__, data | results, **versions)
    results = checked(model, of_mean, images, classes)
    parameters = our_names(dict(model.named_parameters()))
    folder = default_folder(__file__) if out == default else out
    save(folder / "vit-mean.safetensors", __file__, data | parameters | results, **versions)


if __name__ == "__main__":
    main()
