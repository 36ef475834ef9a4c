"""Makes transformer-*.safetensors: loss, logits and every gradient of small encoder-decoder Transformers.

The reference is written from torch.nn parts and follows the paper; PyTorch sees padded tensors and masks, the files
hold only real positions, one sentence after another. It runs in float64 from parameters that float32 holds exactly
and is rounded once, on saving. Before a file is written, the script checks its own reference two ways: both stacks
against torch.nn.TransformerEncoder and TransformerDecoder, and everything against PyTorch's own float32.
"""

import argparse
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..common import (
    causal_mask, default_folder, pack, padding_mask, random, relative_error, save, setup,
)

MODEL_DIM = 32
HEADS = 4
FEED_FORWARD_DIM = 64
NORM_EPSILON = 1e-5
LABEL_SMOOTHING = 0.1
PAD, BEGIN, END = 0, 2, 3
# The bound that the Rust test holds itself to.
TOLERANCE = 1e-5

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


@dataclass(frozen=True)
class Case:
    """One golden file."""

    name: str
    seed: int
    norm: str = "pre"
    activation: str = "relu"
    tied: str = "all"
    vocab_source: int = 37
    vocab_target: int = 37
    encoder_layers: int = 2
    decoder_layers: int = 2
    norm_kind: str = "layer"
    feed_forward: str = "plain"
    biases: bool = True
    embedding_norm: bool = False
    output_bias: bool = False
    positions: str = "sinusoidal"
    first_position: int = 0

    def is_standard(self) -> bool:
        """Whether torch.nn has the same stacks."""
        return self.norm_kind == "layer" and self.feed_forward == "plain" and self.biases

    def settings(self) -> dict:
        """For the file; fields of blocks that came later are named where they are not the paper's."""
        defaults = asdict(Case("", 0))
        later = ["norm_kind", "feed_forward", "biases", "embedding_norm", "output_bias",
                 "positions", "first_position"]
        return {key: value for key, value in asdict(self).items() if key not in later or value != defaults[key]}


# The seeds of the ReLU cases keep every input of a ReLU away from its kink; see `check_kink`.
CASES = [
    Case("transformer-pre", seed=54),
    Case("transformer-post", seed=42, norm="post"),
    # Stacks of unequal depth, so that a mix-up of the two cannot pass.
    Case("transformer-untied-gelu", seed=3, activation="gelu", tied="none", vocab_source=41, decoder_layers=1),
    Case("transformer-decoder-tied-swish", seed=4, norm="post", activation="swish", tied="decoder", vocab_source=41),
    # What BART and Marian add: a norm of what is embedded, and a bias of the logits.
    Case("transformer-embedding-norm-output-bias", seed=5, activation="gelu", embedding_norm=True, output_bias=True),
    Case("transformer-rms-swiglu", seed=6, activation="swish", norm_kind="rms", feed_forward="gated", biases=False),
    Case(
        "transformer-norm-without-bias-geglu", seed=7, norm="post", activation="gelu", tied="decoder", vocab_source=41,
        norm_kind="layer-without-bias", feed_forward="gated", embedding_norm=True,
    ),
    Case(
        "transformer-rms-reglu", seed=8, norm="post", tied="none", vocab_source=41, decoder_layers=1,
        norm_kind="rms", feed_forward="gated", output_bias=True,
    ),
    # Positions of M2M100 and of BART.
    Case("transformer-sinusoids-from-2", seed=9, positions="tensor2tensor", first_position=2),
    Case(
        "transformer-learned-from-2", seed=10, norm="post", activation="gelu", positions="learned", first_position=2,
    ),
]
# Length of a learned table.
LONGEST = 9


def sinusoids(case: Case, length: int) -> Tensor:
    """(L, D), sin and cos interleaved, section 3.5; or as Tensor2Tensor, sines first, with other frequencies. Rounded to
    float32, the precision in which they are applied."""
    half = torch.arange(MODEL_DIM // 2, dtype=torch.float64)
    at = case.first_position + torch.arange(length, dtype=torch.float64)[:, None]
    if case.positions == "tensor2tensor":
        angles = at * torch.exp(half * -(math.log(10000.0) / (MODEL_DIM // 2 - 1)))
        return torch.cat([angles.sin(), angles.cos()], dim=1).to(torch.float32)
    angles = at / 10000.0 ** (2 * half / MODEL_DIM)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, MODEL_DIM).to(torch.float32)


def norm(case: Case) -> nn.Module:
    """Layer norm, or the root mean square alone (Zhang and Sennrich 2019)."""
    if case.norm_kind == "rms":
        return nn.RMSNorm(MODEL_DIM, eps=NORM_EPSILON)
    return nn.LayerNorm(MODEL_DIM, eps=NORM_EPSILON, bias=case.norm_kind == "layer")


class FeedForward(nn.Module):
    """Section 3.3: down(activation(up(x))); gated, the second half of up(x) is the gate of the first (Shazeer 2020)."""

    def __init__(self, case: Case):
        super().__init__()
        self.gated = case.feed_forward == "gated"
        inner = 2 * FEED_FORWARD_DIM if self.gated else FEED_FORWARD_DIM
        self.up = nn.Linear(MODEL_DIM, inner, bias=case.biases)
        self.down = nn.Linear(FEED_FORWARD_DIM, MODEL_DIM, bias=case.biases)
        self.activation = ACTIVATIONS[case.activation]
        # The input of a ReLU nearest to its kink; see `check_kink`.
        self.nearest_zero = math.inf

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        value, gate = hidden.chunk(2, dim=-1) if self.gated else (1.0, hidden)
        self.nearest_zero = min(self.nearest_zero, float(gate.detach().abs().min()))
        return self.down(value * self.activation(gate))


class Layer(nn.Module):
    """An encoder layer, or a decoder layer where `cross` is set."""

    def __init__(self, case: Case, cross: bool):
        super().__init__()
        self.pre = case.norm == "pre"
        self.self_attention = nn.MultiheadAttention(MODEL_DIM, HEADS, batch_first=True, bias=case.biases)
        self.self_attention_norm = norm(case)
        if cross:
            self.cross_attention = nn.MultiheadAttention(MODEL_DIM, HEADS, batch_first=True, bias=case.biases)
            self.cross_attention_norm = norm(case)
        self.feed_forward = FeedForward(case)
        self.feed_forward_norm = norm(case)

    def residual(self, x: Tensor, norm: nn.Module, sublayer) -> Tensor:
        """Pre-LN: x + f(norm(x)). Post-LN: norm(x + f(x))."""
        return x + sublayer(norm(x)) if self.pre else norm(x + sublayer(x))

    def forward(
        self, x: Tensor, padding: Tensor, causal: Tensor | None = None,
        memory: Tensor | None = None, memory_padding: Tensor | None = None,
    ) -> Tensor:
        x = self.residual(
            x, self.self_attention_norm,
            lambda y: self.self_attention(y, y, y, key_padding_mask=padding, attn_mask=causal)[0],
        )
        if memory is not None:
            x = self.residual(
                x, self.cross_attention_norm,
                lambda y: self.cross_attention(y, memory, memory, key_padding_mask=memory_padding)[0],
            )
        return self.residual(x, self.feed_forward_norm, self.feed_forward)


class Stack(nn.Module):
    """Layers, then the final norm if Pre-LN."""

    def __init__(self, case: Case, layers: int, cross: bool):
        super().__init__()
        self.layers = nn.ModuleList(Layer(case, cross) for _ in range(layers))
        if case.norm == "pre":
            self.final_norm = norm(case)
        if case.embedding_norm:
            self.embedding_norm = norm(case)
        if case.positions == "learned":
            self.positions = nn.Embedding(LONGEST + case.first_position, MODEL_DIM)

    def forward(self, x: Tensor, *masks: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, *masks)
        return self.final_norm(x) if hasattr(self, "final_norm") else x


class Transformer(nn.Module):
    """Embeddings, both stacks and the output projection."""

    def __init__(self, case: Case):
        super().__init__()
        if case.tied == "all":
            self.embedding = nn.Embedding(case.vocab_target, MODEL_DIM)
        else:
            self.source_embedding = nn.Embedding(case.vocab_source, MODEL_DIM)
            self.target_embedding = nn.Embedding(case.vocab_target, MODEL_DIM)
        if case.tied == "none":
            self.output = nn.Linear(MODEL_DIM, case.vocab_target, bias=False)
        if case.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(case.vocab_target))
        self.case, self.tied = case, case.tied
        self.encoder = Stack(case, case.encoder_layers, cross=False)
        self.decoder = Stack(case, case.decoder_layers, cross=True)

    def embed(self, which: str, ids: Tensor) -> Tensor:
        """Section 3.4: embeddings times √D, plus positions."""
        embedding = self.embedding if self.tied == "all" else getattr(self, f"{which}_embedding")
        x = embedding(ids) * math.sqrt(MODEL_DIM)
        stack = self.encoder if which == "source" else self.decoder
        if hasattr(stack, "positions"):
            x = x + stack.positions(self.case.first_position + torch.arange(ids.shape[1]))
        else:
            x = x + sinusoids(self.case, ids.shape[1]).to(x.dtype)
        return stack.embedding_norm(x) if hasattr(stack, "embedding_norm") else x

    def encode(self, source: Tensor) -> Tensor:
        return self.encoder(self.embed("source", source), source == PAD)

    def decode(self, memory: Tensor, source: Tensor, target: Tensor) -> Tensor:
        causal = causal_mask(target.shape[1])
        return self.decoder(self.embed("target", target), target == PAD, causal, memory, source == PAD)

    def project(self, states: Tensor) -> Tensor:
        matrix = {"all": "embedding", "decoder": "target_embedding", "none": "output"}[self.tied]
        return F.linear(states, getattr(self, matrix).weight, getattr(self, "output_bias", None))


def fill(model: nn.Module, seed: int) -> None:
    """Every parameter is random, biases and norms included, so that none can be forgotten unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm.weight" in name:
                values = random(generator, *parameter.shape, scale=0.1, mean=1.0)
            elif parameter.dim() == 1:
                values = random(generator, *parameter.shape, scale=0.1)
            else:
                values = random(generator, *parameter.shape, scale=parameter.shape[1] ** -0.5)
            parameter.copy_(values)


def our_names(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """The name that taper-model gives a parameter; cross-attention keeps its query projection apart."""
    if name == "output_bias":
        return {"output.bias": tensor}
    if "out_proj" in name:
        return {name.replace("out_proj", "out"): tensor}
    if "in_proj_" not in name:
        return {name: tensor}
    prefix, kind = name.split("in_proj_")
    if "cross_attention" in prefix:
        return {f"{prefix}q.{kind}": tensor[:MODEL_DIM], f"{prefix}kv.{kind}": tensor[MODEL_DIM:]}
    return {f"{prefix}qkv.{kind}": tensor}


def sentences(case: Case) -> dict[str, list[list[int]]]:
    """Three pairs of different lengths, not in order of length, one target of two tokens."""
    generator = torch.Generator().manual_seed(100 + case.seed)

    def words(count: int, vocab: int) -> list[int]:
        return torch.randint(END + 1, vocab, (count,), generator=generator).tolist()

    source = [[*words(count, case.vocab_source), END] for count in (5, 2, 8)]
    target = [words(count, case.vocab_target) for count in (4, 7, 1)]
    return {
        "source": source,
        "target_in": [[BEGIN, *row] for row in target],
        "target_out": [[*row, END] for row in target],
    }


def padded(rows: list[list[int]]) -> Tensor:
    """(B, L), padding at the end."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def run(case: Case, text: dict[str, list[list[int]]], dtype: torch.dtype) -> tuple[Transformer, dict[str, Tensor]]:
    """Forward and backward; the outputs and every gradient."""
    model = Transformer(case).to(dtype)
    fill(model, case.seed)
    source, target_in, target_out = (padded(text[key]) for key in ["source", "target_in", "target_out"])
    memory = model.encode(source)
    logits = model.project(model.decode(memory, source, target_in))
    loss = F.cross_entropy(
        logits.flatten(0, 1), target_out.flatten(), label_smoothing=LABEL_SMOOTHING, ignore_index=PAD
    )
    loss.backward()
    results = {
        "encoder_output": pack(memory, [len(row) for row in text["source"]]),
        "logits": pack(logits, [len(row) for row in text["target_in"]]),
        "loss": loss,
        # Without smoothing, the number behind perplexity.
        "nll": F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD),
    }
    for name, parameter in model.named_parameters():
        gradients = our_names(name, parameter.grad)
        results |= {f"grad.{key}": gradient for key, gradient in gradients.items()}
    return model, {name: tensor.detach() for name, tensor in results.items()}


def check_stacks(case: Case, model: Transformer, text: dict[str, list[list[int]]]) -> None:
    """The same stacks by torch.nn.TransformerEncoder and TransformerDecoder, from the same parameters."""
    shared = dict(
        d_model=MODEL_DIM, nhead=HEADS, dim_feedforward=FEED_FORWARD_DIM, dropout=0.0, batch_first=True,
        activation=ACTIVATIONS[case.activation], norm_first=case.norm == "pre", layer_norm_eps=NORM_EPSILON,
    )

    def final_norm() -> nn.LayerNorm | None:
        return nn.LayerNorm(MODEL_DIM, eps=NORM_EPSILON) if case.norm == "pre" else None

    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**shared), case.encoder_layers, final_norm(), enable_nested_tensor=False
    ).double()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shared), case.decoder_layers, final_norm()).double()
    for ours, theirs, last in [(model.encoder, encoder, "norm2"), (model.decoder, decoder, "norm3")]:
        renames = [
            ("self_attention_norm", "norm1"), ("cross_attention_norm", "norm2"), ("feed_forward_norm", last),
            ("final_norm", "norm"), ("self_attention", "self_attn"), ("cross_attention", "multihead_attn"),
            ("feed_forward.up", "linear1"), ("feed_forward.down", "linear2"),
        ]
        state = {}
        for name, tensor in ours.state_dict().items():
            if name.startswith(("embedding_norm", "positions")):  # `embed` has applied it
                continue
            for old, new in renames:
                name = name.replace(old, new)
            state[name] = tensor
        theirs.load_state_dict(state)
    source, target = padded(text["source"]), padded(text["target_in"])
    memory = encoder(model.embed("source", source), src_key_padding_mask=source == PAD)
    states = decoder(
        model.embed("target", target), memory, tgt_mask=causal_mask(target.shape[1]),
        tgt_key_padding_mask=target == PAD, memory_key_padding_mask=source == PAD,
    )
    for keep, value, reference in [
        (source != PAD, memory, model.encode(source)),
        (target != PAD, states, model.decode(model.encode(source), source, target)),
    ]:
        assert relative_error(value[keep], reference[keep]) < 1e-12, case.name


def check_kink(case: Case, model: Transformer) -> None:
    """A ReLU input too near zero could change sign in float32 and make a gradient differ by more than rounding."""
    nearest = min(module.nearest_zero for module in model.modules() if isinstance(module, FeedForward))
    assert case.activation != "relu" or nearest > 1e-4, f"{case.name}: ReLU input {nearest:.1e}, choose another seed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    setup()
    for case in CASES:
        text = sentences(case)
        model, results = run(case, text, torch.float64)
        if case.is_standard():
            check_stacks(case, model, text)
        check_kink(case, model)
        _, single = run(case, text, torch.float32)
        errors = {name: relative_error(single[name], results[name]) for name in results}
        worst = max(errors, key=errors.get)
        print(f"{case.name}: PyTorch in float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
        assert errors[worst] < TOLERANCE

        tensors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            tensors |= our_names(name, parameter)
        for key, rows in text.items():
            tensors[f"{key}_ids"] = torch.tensor([token for row in rows for token in row])
        tensors["source_lengths"] = torch.tensor([len(row) for row in text["source"]])
        tensors["target_lengths"] = torch.tensor([len(row) for row in text["target_in"]])
        settings = case.settings() | {
            "model_dim": MODEL_DIM, "heads": HEADS, "feed_forward_dim": FEED_FORWARD_DIM,
            "norm_epsilon": NORM_EPSILON, "label_smoothing": LABEL_SMOOTHING,
        }
        save(arguments.out / f"{case.name}.safetensors", __file__, tensors | results, **settings)


if __name__ == "__main__":
    main()
