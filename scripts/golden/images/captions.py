"""Makes captions.safetensors: a writer of captions with random weights, and its logits, loss and every gradient.

Images are read by the embeddings and the layers of Transformers' ViT, a token for the class included; text is written
by a decoder of torch.nn parts that attends to all rows of them, with its embedding as the output projection (see
`translation/transformer.py`). Images are bytes, channel by channel and row by row; captions have different lengths.
Parameters and gradients are under the names that taper-model gives them.

The reference runs in float64 from parameters that float32 holds exactly, and is rounded once, on saving; float32 has to
agree with it.
"""

import argparse
import copy
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import ViTConfig, ViTModel

from ..common import causal_mask, default_folder, pack, padding_mask, relative_error, save, setup
from ..translation import transformer
from . import vit

# Narrower than the models of that script, which read these when they build one.
transformer.MODEL_DIM, transformer.FEED_FORWARD_DIM = 16, 24
TOLERANCE = 3e-6
VOCABULARY, POSITIONS, LAYERS = 23, 8, 2
CAPTIONS = [[7, 9, 4], [5], [12, 9, 4, 19, 6]]


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        width = transformer.MODEL_DIM
        case = transformer.Case("captions", seed=0, activation="gelu")
        config = ViTConfig(
            hidden_size=width, num_hidden_layers=LAYERS, num_attention_heads=transformer.HEADS,
            intermediate_size=transformer.FEED_FORWARD_DIM, image_size=vit.SIZE, patch_size=vit.PATCH, num_channels=3,
            layer_norm_eps=transformer.NORM_EPSILON, attn_implementation="eager",
        )
        self.vit = ViTModel(config, add_pooling_layer=False)
        self.target_embedding = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.decoder = transformer.Stack(case, LAYERS, cross=True)

    def forward(self, images: Tensor, inputs: Tensor, lengths: list[int]) -> Tensor:
        memory = self.vit(vit.pixels(images, self.positions.weight.dtype)).last_hidden_state
        x = self.target_embedding(inputs) + self.positions.weight[: inputs.shape[1]]
        states = self.decoder(x, padding_mask(lengths), causal_mask(inputs.shape[1]), memory)
        return pack(F.linear(states, self.target_embedding.weight), lengths)


def our_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    ours = {}
    for name, tensor in tensors.items():
        if name == "vit.embeddings.cls_token":
            ours["class_token.weight"] = tensor.reshape(1, -1)
        elif name == "vit.embeddings.position_embeddings":
            ours["encoder.positions.weight"] = tensor.squeeze(0)
        elif name == "positions.weight":
            ours["decoder.positions.weight"] = tensor
        elif not name.startswith("vit."):
            ours |= transformer.our_names(name, tensor)
    return ours | vit.our_names({
        name: tensor for name, tensor in tensors.items()
        if name.startswith("vit.") and "token" not in name and "position_embeddings" not in name
    })


def results(model: Captioner, images: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    lengths = [len(caption) + 1 for caption in CAPTIONS]
    rows = [[transformer.BEGIN, *caption] + [0] * (max(lengths) - 1 - len(caption)) for caption in CAPTIONS]
    logits = model(images, torch.tensor(rows), lengths)
    answers = torch.tensor([id for caption in CAPTIONS for id in [*caption, transformer.END]])
    loss = F.cross_entropy(logits, answers)
    loss.backward()
    gradients = our_names({name: parameter.grad for name, parameter in model.named_parameters()})
    found = {"logits": logits, "loss": loss} | {f"grad.{name}": gradient for name, gradient in gradients.items()}
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    out = parser.parse_args().out
    setup()
    model = Captioner().eval()
    generator = torch.Generator().manual_seed(31)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if is_norm else 0.0))
    images = torch.randint(0, 256, (len(CAPTIONS), 3, vit.SIZE, vit.SIZE), generator=generator)
    exact, single = results(copy.deepcopy(model).double(), images), results(model, images)
    # A key bias has no gradient in exact arithmetic: what is there is rounding.
    errors = {name: relative_error(single[name], exact[name]) for name in exact}
    worst = max(errors, key=errors.get)
    print(f"float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    captions = torch.tensor([id for caption in CAPTIONS for id in caption])
    lengths = torch.tensor([len(caption) for caption in CAPTIONS])
    data = {"images": images.flatten(), "captions": captions, "lengths": lengths}
    parameters = our_names(dict(model.named_parameters()))
    save(out / "captions.safetensors", __file__, data | parameters | exact, transformers=transformers.__version__)


if __name__ == "__main__":
    main()
