"""Taper's encoder-decoder Transformer and its search in plain PyTorch, on padded batches; see pytorch_baseline.py.

With the weights of a run the loss is Taper's to the fifth digit, and the translations are the same.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

PAD, UNKNOWN, START, END = range(4)
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


def padded(rows: list[list[int]]) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def linear(model: dict, inputs: int, outputs: int, parts: int = 1) -> nn.Linear:
    """A layer drawn as Taper's: Xavier uniform, each part of a fused projection by itself; biases zero."""
    layer = nn.Linear(inputs, outputs, bias=model["biases"])
    for part in layer.weight.data.chunk(parts):
        nn.init.xavier_uniform_(part)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Dropout(nn.Dropout):
    """Dropout whose random numbers take a fifth of the time of PyTorch's on a CPU: 16 bits for each value."""

    def forward(self, x):
        if x.device.type != "cpu" or not self.training or not self.p:
            return super().forward(x)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(self.p * 2**16) - 2**15
        return x * kept.to(x.dtype).div_(1 - self.p)


class Attention(nn.Module):
    """Multi-head attention of `x` to `memory`, or to `x` itself where there is none."""

    def __init__(self, model: dict, crosses: bool):
        super().__init__()
        width, self.heads, self.dropout = model["d_model"], model["heads"], model["attention_dropout"]
        if crosses:
            self.query, self.key_value = linear(model, width, width), linear(model, width, 2 * width, 2)
        else:
            self.projection = linear(model, width, 3 * width, 3)
        self.out = linear(model, width, width)

    def forward(self, x, mask, causal=False, memory=None):
        if memory is None:
            parts = self.projection(x).chunk(3, -1)
        else:
            parts = (self.query(x), *self.key_value(memory).chunk(2, -1))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        dropout = self.dropout if self.training else 0.0
        if x.device.type == "cpu":
            # PyTorch's backward pass of it takes ten times as long in bf16 as in f32 there.
            query, key, value = query.float(), key.float(), value.float()
        with torch.autocast(x.device.type, enabled=False):
            mixed = F.scaled_dot_product_attention(query, key, value, mask, dropout, causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Self-attention, in a decoder attention to the encoder, and feed-forward, each with norm and residual."""

    def __init__(self, model: dict, decoder: bool):
        super().__init__()
        width, self.decoder, self.pre = model["d_model"], decoder, model["norm"] == "pre"
        self.attention = Attention(model, False)
        self.cross = Attention(model, True) if decoder else None
        self.up, self.down = linear(model, width, model["d_ff"]), linear(model, model["d_ff"], width)
        self.activation = ACTIVATIONS[model["activation"]]
        self.norms = nn.ModuleList(nn.LayerNorm(width, model["norm_epsilon"]) for _ in range(3 if decoder else 2))
        self.dropout, self.inner_dropout = Dropout(model["residual_dropout"]), Dropout(model["feed_forward_dropout"])

    def sublayer(self, x, norm, function):
        if self.pre:
            return x + self.dropout(function(norm(x)))
        return norm(x + self.dropout(function(x)))

    def forward(self, x, mask, memory=None):
        own_mask = None if self.decoder else mask
        x = self.sublayer(x, self.norms[0], lambda x: self.attention(x, own_mask, causal=self.decoder))
        if self.decoder:
            x = self.sublayer(x, self.norms[1], lambda x: self.cross(x, mask, memory=memory))
        return self.sublayer(x, self.norms[-1], lambda x: self.down(self.inner_dropout(self.activation(self.up(x)))))


class Translator(nn.Module):
    """An encoder-decoder Transformer on padded batches."""

    def __init__(self, model: dict, vocabulary: int):
        super().__init__()
        width = model["d_model"]

        def embedding(rows):
            return nn.Parameter(torch.randn(rows, width) * width**-0.5)

        self.source = embedding(vocabulary)
        self.target = self.source if model["tied"] == "all" else embedding(vocabulary)
        self.output = embedding(vocabulary) if model["tied"] == "none" else self.target
        self.scale = math.sqrt(width) if model["scale_embeddings"] else 1.0
        self.dropout = Dropout(model["embedding_dropout"])
        if model["positions"] == "learned":
            self.source_positions, self.target_positions = embedding(model["max_positions"]), embedding(model["max_positions"])
        else:
            angles = torch.arange(model["max_positions"])[:, None] * 1e4 ** (-torch.arange(0, width, 2) / width)
            parts = torch.stack([angles.sin(), angles.cos()], 1 if model["positions"] == "sinusoidal-halves" else 2)
            self.register_buffer("source_positions", parts.flatten(1), persistent=False)
            self.target_positions = self.source_positions
        self.encoder = nn.ModuleList(Layer(model, False) for _ in range(model["encoder_layers"]))
        self.decoder = nn.ModuleList(Layer(model, True) for _ in range(model["decoder_layers"]))
        last = [nn.LayerNorm(width, model["norm_epsilon"]) if model["norm"] == "pre" else nn.Identity() for _ in range(2)]
        self.encoder_norm, self.decoder_norm = last

    def encode(self, source):
        mask = (source != PAD)[:, None, None]
        x = self.dropout(F.embedding(source, self.source) * self.scale + self.source_positions[: source.shape[1]])
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def decode(self, target, memory, mask):
        x = self.dropout(F.embedding(target, self.target) * self.scale + self.target_positions[: target.shape[1]])
        for layer in self.decoder:
            x = layer(x, mask, memory)
        return self.decoder_norm(x)


@torch.no_grad()
def search(model, sources: list[list[int]], config: dict, beam: int) -> list[list[int]]:
    """The best translation of each source by beam search, or greedily; stops when nothing can change it."""

    def score(log_probability, length):
        base = length if config["length_penalty_form"] == "power" else (5 + length) / 6
        return log_probability / base ** config["length_penalty"] + config.get("length_reward", 0.0) * length

    count, device = len(sources), model.output.device
    memory, mask = model.encode(padded([row + [END] for row in sources]).to(device))
    memory, mask = memory.repeat_interleave(beam, 0), mask.repeat_interleave(beam, 0)
    ratio, offset, most = config["max_length_ratio"], config["max_length_offset"], config["max_length"]
    limits = torch.tensor([min(int(ratio * len(row)) + offset, most) for row in sources], device=device)
    tokens = torch.full((count, beam, 1), START, device=device)
    scores = torch.full((count, beam), -math.inf, device=device)
    scores[:, 0] = 0.0
    best, results = torch.full((count,), -math.inf, device=device), [[] for _ in sources]
    for length in range(1, int(limits.max()) + 2):
        hidden = model.decode(tokens.flatten(0, 1), memory, mask)[:, -1]
        logits = F.linear(hidden, model.output).float().log_softmax(-1).unflatten(0, (count, beam))
        logits[:, :, [PAD, UNKNOWN, START]] = -math.inf
        over = length > limits
        logits[over, :, :END] = logits[over, :, END + 1 :] = -math.inf
        vocabulary = logits.shape[-1]
        values, places = (scores[:, :, None] + logits).flatten(1).topk(2 * beam)
        hypotheses, words = places // vocabulary, places % vocabulary
        ended = words == END
        # Among the first `beam` candidates only: others would not have been followed.
        finished, which = score(values.masked_fill(~ended, -math.inf), length)[:, :beam].max(1)
        for row in (finished > best).nonzero().flatten().tolist():
            best[row] = finished[row]
            results[row] = tokens[row, hypotheses[row, which[row]], 1:].tolist()
        scores, chosen = values.masked_fill(ended, -math.inf).topk(beam)
        parents = hypotheses.gather(1, chosen)[:, :, None].expand(-1, -1, length)
        tokens = torch.cat([tokens.gather(1, parents), words.gather(1, chosen)[:, :, None]], 2)
        if (best >= score(scores[:, 0], limits + 1)).all():
            break
    return results
