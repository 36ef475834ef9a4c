"""Makes convolutions.safetensors: outputs, loss and every gradient of a small convolutional network of torch's functions.

Three convolutions of 3 x 3 pixels, of which the second moves by two, each with gelu and a layer norm over channels; the
mean of all places; a linear layer. Parameters are under the names that taper-model gives them, a matrix of a convolution
with the channels of one neighbour after those of another. The reference runs in float64 from parameters that float32
holds exactly and is rounded once, on saving; float32 has to agree with it.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import conv2d, cross_entropy, gelu, layer_norm

from ..common import default_folder, random, relative_error, save, setup

TOLERANCE = 5e-6
SIZE, CLASSES = 7, 4
CHANNELS = [3, 6, 12, 12]
MEAN, DEVIATION = [0.4, 0.5, 0.45], [0.25, 0.3, 0.2]


def run(images: Tensor, classes: Tensor, parameters: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    weights = {name: tensor.to(dtype).requires_grad_() for name, tensor in parameters.items()}
    mean, deviation = (torch.tensor(of, dtype=torch.float64).reshape(1, 3, 1, 1) for of in (MEAN, DEVIATION))
    x = ((images.to(torch.float64) / 255 - mean) / deviation).to(dtype)
    for layer, (inputs, outputs) in enumerate(zip(CHANNELS, CHANNELS[1:])):
        matrix = weights[f"convolutions.{layer}.weight"].reshape(outputs, 3, 3, inputs)
        x = gelu(conv2d(
            x, matrix.permute(0, 3, 1, 2), weights[f"convolutions.{layer}.bias"], stride=1 + layer % 2, padding=1
        ))
        norm = f"convolutions.{layer}_norm"
        x = layer_norm(x.permute(0, 2, 3, 1), [outputs], weights[f"{norm}.weight"], weights[f"{norm}.bias"])
        x = x.permute(0, 3, 1, 2)
    logits = x.mean((2, 3)) @ weights["classes.weight"].T + weights["classes.bias"]
    loss = cross_entropy(logits, classes)
    loss.backward()
    results = {"logits": logits, "loss": loss}
    results |= {f"grad.{name}": weight.grad for name, weight in weights.items()}
    return {name: tensor.detach() for name, tensor in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    out = parser.parse_args().out
    setup()
    generator = torch.Generator().manual_seed(17)
    parameters = {}
    for layer, (inputs, outputs) in enumerate(zip(CHANNELS, CHANNELS[1:])):
        name = f"convolutions.{layer}"
        parameters[f"{name}.weight"] = random(generator, outputs, 9 * inputs, scale=0.3)
        parameters[f"{name}.bias"] = random(generator, outputs, scale=0.3)
        parameters[f"{name}_norm.weight"] = random(generator, outputs, scale=0.3, mean=1.0)
        parameters[f"{name}_norm.bias"] = random(generator, outputs, scale=0.3)
    parameters["classes.weight"] = random(generator, CLASSES, CHANNELS[-1], scale=0.3)
    parameters["classes.bias"] = random(generator, CLASSES, scale=0.3)
    parameters = {name: tensor.float() for name, tensor in parameters.items()}
    images = torch.randint(0, 256, (3, 3, SIZE, SIZE), generator=generator)
    classes = torch.tensor([2, 0, 3])
    results = run(images, classes, parameters, torch.float64)
    single = run(images, classes, parameters, torch.float32)
    errors = {name: relative_error(single[name], results[name]) for name in results}
    worst = max(errors, key=errors.get)
    print(f"float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    data = {"images": images.flatten(), "classes": classes}
    save(out / "convolutions.safetensors", __file__, data | parameters | results)


if __name__ == "__main__":
    main()
