"""Makes recurrent-*.safetensors and convolutional.safetensors: loss, logits and every gradient of small translation
models of before the Transformer.

Recurrent layers are torch.nn.GRU and LSTM over packed sequences, and torch.nn.GRUCell and LSTMCell where attention
stands between steps; convolutions are torch.nn.functional.conv1d and glu. What is around them follows the papers,
with the departures that taper-model names. Files hold only real positions, one sentence after another. References
are computed in float64 from parameters that float32 holds exactly, rounded once, and compared with PyTorch's float32
before they are saved.
"""

import argparse
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..common import default_folder, pack, random, relative_error, save, setup
from .transformer import END, LABEL_SMOOTHING, PAD, TOLERANCE, padded, sentences

MODEL_DIM = 16
WIDTH = 10
KERNEL = 3


@dataclass(frozen=True)
class Case:
    """One golden file."""

    name: str
    seed: int
    cell: str = "gru"
    attention: str = "additive"
    bidirectional: bool = True
    encoder_layers: int = 2
    decoder_layers: int = 2
    tied: str = "all"
    vocab_source: int = 37
    vocab_target: int = 37


CASES = [
    Case("recurrent-gru-additive", seed=1),
    Case(
        "recurrent-lstm-additive", seed=2, cell="lstm", encoder_layers=1, decoder_layers=1, tied="decoder",
        vocab_source=41,
    ),
    Case("recurrent-lstm-none", seed=3, cell="lstm", attention="none", bidirectional=False),
    Case("recurrent-gru-dot", seed=4, attention="dot", encoder_layers=1, tied="none", vocab_source=41),
    Case("convolutional", seed=5, cell="convolution"),
]


class Model(nn.Module):
    """Embeddings times √D and the output projection, which never has a bias."""

    def __init__(self, case: Case):
        super().__init__()
        self.case = case
        if case.tied == "all":
            self.embedding = nn.Embedding(case.vocab_target, MODEL_DIM)
        else:
            self.source_embedding = nn.Embedding(case.vocab_source, MODEL_DIM)
            self.target_embedding = nn.Embedding(case.vocab_target, MODEL_DIM)
        if case.tied == "none":
            self.output = nn.Linear(MODEL_DIM, case.vocab_target, bias=False)

    def embed(self, which: str, ids: Tensor) -> Tensor:
        embedding = self.embedding if self.case.tied == "all" else getattr(self, f"{which}_embedding")
        return embedding(ids) * math.sqrt(MODEL_DIM)

    def project(self, states: Tensor) -> Tensor:
        if self.case.tied == "none":
            return self.output(states)
        return F.linear(states, (self.embedding if self.case.tied == "all" else self.target_embedding).weight)


class Recurrent(Model):
    """Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015."""

    def __init__(self, case: Case):
        super().__init__(case)
        layers = nn.GRU if case.cell == "gru" else nn.LSTM
        cell = nn.GRUCell if case.cell == "gru" else nn.LSTMCell
        directions = 2 if case.bidirectional else 1
        self.annotation, self.vectors = WIDTH * directions, 1 if case.cell == "gru" else 2
        self.encoder = layers(
            MODEL_DIM, WIDTH, case.encoder_layers, batch_first=True, bidirectional=case.bidirectional
        )
        ends = self.annotation * directions
        self.bridges = nn.ModuleList(
            nn.Linear(ends, self.vectors * WIDTH) for _ in range(case.decoder_layers)
        )
        plain = case.decoder_layers - (case.attention == "additive")
        self.decoder = layers(MODEL_DIM, WIDTH, plain, batch_first=True) if plain else None
        read = WIDTH
        if case.attention == "additive":
            self.last = cell((WIDTH if plain else MODEL_DIM) + self.annotation, WIDTH)
            self.query = nn.Linear(WIDTH, WIDTH, bias=False)
            self.key = nn.Linear(self.annotation, WIDTH)
            self.energy = nn.Parameter(torch.zeros(WIDTH))
            read += self.annotation
        elif case.attention == "dot":
            self.key_value = nn.Linear(self.annotation, 2 * WIDTH)
            read += WIDTH
        self.readout = nn.Linear(read, MODEL_DIM)

    def encode(self, source: Tensor) -> Tensor:
        lengths = (source != PAD).sum(1)
        packed = pack_padded_sequence(
            self.embed("source", source), lengths, batch_first=True, enforce_sorted=False
        )
        return pad_packed_sequence(self.encoder(packed)[0], batch_first=True)[0]

    def decode(self, memory: Tensor, source: Tensor, target: Tensor) -> Tensor:
        rows = torch.arange(len(source))
        last = memory[rows, (source != PAD).sum(1) - 1]
        ends = torch.cat([memory[:, 0], last], 1) if self.case.bidirectional else last
        initial = [torch.tanh(bridge(ends)) for bridge in self.bridges]
        x = self.embed("target", target)
        if self.decoder is not None:
            states = torch.stack(initial[: self.decoder.num_layers])
            begin = states if self.vectors == 1 else tuple(
                part.contiguous() for part in states.split(WIDTH, 2)
            )
            x = self.decoder(x, begin)[0]
        if self.case.attention == "additive":
            x = self.attend_and_step(x, memory, source == PAD, initial[-1])
        elif self.case.attention == "dot":
            key, value = self.key_value(memory).split(WIDTH, 2)
            mask = (source != PAD)[:, None]
            x = torch.cat([x, F.scaled_dot_product_attention(x, key, value, attn_mask=mask)], 2)
        return torch.tanh(self.readout(x))

    def attend_and_step(self, x: Tensor, memory: Tensor, padding: Tensor, state: Tensor) -> Tensor:
        """Appendix A.1.2 of Bahdanau et al."""
        keys = self.key(memory)
        state = state if self.vectors == 1 else tuple(state.split(WIDTH, 1))
        rows = []
        for step in x.unbind(1):
            hidden = state if self.vectors == 1 else state[0]
            energies = torch.tanh(self.query(hidden)[:, None] + keys) @ self.energy
            weights = energies.masked_fill(padding, -math.inf).softmax(1)
            context = (weights[:, :, None] * memory).sum(1)
            state = self.last(torch.cat([step, context], 1), state)
            rows.append(torch.cat([state if self.vectors == 1 else state[0], context], 1))
        return torch.stack(rows, 1)

    def our_names(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        for old, new in [
            ("readout.", "decoder.readout."), ("key_value.", "decoder.attention.kv."),
        ]:
            if name.startswith(old):
                return {new + name.removeprefix(old): tensor}
        last = f"decoder.layers.{self.case.decoder_layers - 1}"
        if name.split(".")[0] in ("query", "key", "energy"):
            return {f"{last}.attention.{name}": tensor}
        if name.startswith("bridges."):
            _, layer, kind = name.split(".")
            return {f"decoder.layers.{layer}.bridge.{kind}": tensor}
        stack, _, rest = name.partition(".")
        if stack not in ("encoder", "decoder", "last"):
            return {name: tensor}
        kind, what, *where = rest.split("_")
        part = {"ih": "input", "hh": "recurrent"}[what]
        if stack == "last":
            if kind == "weight" and part == "input":
                inputs = tensor.shape[1] - self.annotation
                return {
                    f"{last}.input.weight": tensor[:, :inputs],
                    f"{last}.attention.context.weight": tensor[:, inputs:],
                }
            return {f"{last}.{part}.{kind}": tensor}
        direction = ("backward." if "reverse" in where else "forward.") if stack == "encoder" else ""
        return {f"{stack}.layers.{where[0][1:]}.{direction}{part}.{kind}": tensor}


class Convolutional(Model):
    """Gehring et al. 2017, sections 3.1 to 3.3 and 3.5."""

    def __init__(self, case: Case):
        super().__init__(case)
        convolution = lambda: nn.Conv1d(MODEL_DIM, 2 * MODEL_DIM, KERNEL)
        linear = lambda: nn.Linear(MODEL_DIM, MODEL_DIM)
        self.encoder = nn.ModuleList(convolution() for _ in range(case.encoder_layers))
        self.decoder = nn.ModuleList(convolution() for _ in range(case.decoder_layers))
        self.query = nn.ModuleList(linear() for _ in range(case.decoder_layers))
        self.out = nn.ModuleList(linear() for _ in range(case.decoder_layers))
        self.readout = linear()

    def place(self, which: str, ids: Tensor) -> Tensor:
        angles = torch.arange(ids.shape[1], dtype=torch.float64)[:, None] / 10000.0 ** (
            torch.arange(0, MODEL_DIM, 2, dtype=torch.float64) / MODEL_DIM
        )
        sines = torch.stack([angles.sin(), angles.cos()], -1).reshape(-1, MODEL_DIM).to(torch.float32)
        x = self.embed(which, ids)
        return (x + sines.to(x.dtype)) * (ids != PAD)[..., None]

    @staticmethod
    def gated(layer: nn.Conv1d, x: Tensor, before: int) -> Tensor:
        x = F.pad(x.transpose(1, 2), (before, KERNEL - 1 - before))
        return F.glu(layer(x), 1).transpose(1, 2)

    def encode(self, source: Tensor) -> Tensor:
        """Keys and values side by side."""
        embedded = self.place("source", source)
        is_word = (source != PAD)[..., None]
        x = embedded
        for layer in self.encoder:
            # What lies beyond a sentence is zero at each layer.
            x = (self.gated(layer, x, KERNEL // 2) + x) * math.sqrt(0.5) * is_word
        return torch.cat([x, (x + embedded) * math.sqrt(0.5)], 2)

    def decode(self, memory: Tensor, source: Tensor, target: Tensor) -> Tensor:
        keys, values = memory.split(MODEL_DIM, 2)
        words = (source != PAD).sum(1).to(memory.dtype)
        embedded = self.place("target", target)
        x = embedded
        for layer, query, out in zip(self.decoder, self.query, self.out):
            state = self.gated(layer, x, KERNEL - 1)
            scores = (query(state) + embedded) * math.sqrt(0.5) @ keys.transpose(1, 2)
            weights = scores.masked_fill((source == PAD)[:, None], -math.inf).softmax(2)
            contexts = weights @ values * words.sqrt()[:, None, None]
            x = ((state + out(contexts)) * math.sqrt(0.5) + x) * math.sqrt(0.5)
        return self.readout(x)

    def our_names(self, name: str, tensor: Tensor) -> dict[str, Tensor]:
        stack, _, rest = name.partition(".")
        if stack in ("encoder", "decoder"):
            layer, kind = rest.split(".")
            if kind == "weight":
                # (2D, D, K): neighbours lie one after the other.
                tensor = tensor.transpose(1, 2).reshape(2 * MODEL_DIM, KERNEL * MODEL_DIM)
            return {f"{stack}.layers.{layer}.convolution.{kind}": tensor}
        if stack in ("query", "out"):
            layer, kind = rest.split(".")
            return {f"decoder.layers.{layer}.attention.{stack}.{kind}": tensor}
        return {f"decoder.{name}" if stack == "readout" else name: tensor}


def fill(model: nn.Module, seed: int) -> None:
    """Every parameter is random, biases included, so that none can be forgotten unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.dim() == 1 else parameter[0].numel() ** -0.5
            parameter.copy_(random(generator, *parameter.shape, scale=scale))


def run(case: Case, text: dict[str, list[list[int]]], dtype: torch.dtype) -> tuple[Model, dict[str, Tensor]]:
    """Forward and backward; the outputs and every gradient."""
    model = (Convolutional if case.cell == "convolution" else Recurrent)(case).to(dtype)
    fill(model, case.seed)
    source, target_in, target_out = (padded(text[key]) for key in ["source", "target_in", "target_out"])
    memory = model.encode(source)
    logits = model.project(model.decode(memory, source, target_in))
    flat = (logits.flatten(0, 1), target_out.flatten())
    loss = F.cross_entropy(*flat, label_smoothing=LABEL_SMOOTHING, ignore_index=PAD)
    loss.backward()
    results = {
        "encoder_output": pack(memory, [len(row) for row in text["source"]]),
        "logits": pack(logits, [len(row) for row in text["target_in"]]),
        "loss": loss,
        "nll": F.cross_entropy(*flat, ignore_index=PAD),
    }
    for name, parameter in model.named_parameters():
        gradients = model.our_names(name, parameter.grad)
        results |= {f"grad.{key}": gradient for key, gradient in gradients.items()}
    return model, {name: tensor.detach() for name, tensor in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    for case in CASES:
        text = sentences(case)
        assert text["source"][0][-1] == END
        model, results = run(case, text, torch.float64)
        _, single = run(case, text, torch.float32)
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case.name}: PyTorch in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
        assert errors[worst] < TOLERANCE
        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            tensors |= model.our_names(name, parameter.detach())
        for key, rows in text.items():
            tensors[f"{key}_ids"] = torch.tensor([token for row in rows for token in row])
        tensors["source_lengths"] = torch.tensor([len(row) for row in text["source"]])
        tensors["target_lengths"] = torch.tensor([len(row) for row in text["target_in"]])
        settings = asdict(case) | {
            "model_dim": MODEL_DIM, "width": WIDTH, "kernel": KERNEL, "label_smoothing": LABEL_SMOOTHING,
        }
        save(arguments.out / f"{case.name}.safetensors", __file__, tensors | results, **settings)


if __name__ == "__main__":
    main()
