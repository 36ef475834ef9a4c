"""Makes positions.safetensors: every position encoding from the direct formula of its paper.

The formulas are evaluated by NumPy in float64 and rounded once, on saving; PyTorch only writes the file.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from ..common import default_folder, save

THETA = 10000.0
POSITIONS = 32
MODEL_DIM = 32
ROTARY_HEADS, ROTARY_LENGTH, ROTARY_DIM = 2, 9, 8
# A continuation, as in cached decoding: the same rows at positions that start here.
ROTARY_OFFSET = 57
BIAS_LENGTH = 7
BUCKETS, MAX_DISTANCE = 32, 128
T5_HEADS = 4


def sinusoidal_angles() -> np.ndarray:
    """(L, D/2): pos / 10000^(2i/D), "Attention Is All You Need", section 3.5."""
    frequencies = THETA ** (-np.arange(0, MODEL_DIM, 2) / MODEL_DIM)
    return np.outer(np.arange(POSITIONS), frequencies)


def interleaved() -> np.ndarray:
    """The paper's order: sin, cos, sin, cos, …"""
    encoding = np.empty((POSITIONS, MODEL_DIM))
    encoding[:, 0::2] = np.sin(sinusoidal_angles())
    encoding[:, 1::2] = np.cos(sinusoidal_angles())
    return encoding


def halves() -> np.ndarray:
    """The same values with every sine before every cosine."""
    return np.concatenate([np.sin(sinusoidal_angles()), np.cos(sinusoidal_angles())], axis=1)


def halves_tensor2tensor() -> np.ndarray:
    """Sines before cosines at Tensor2Tensor's frequencies, 10000^(-i / (D/2 - 1)): the last is exactly 1/10000."""
    half = MODEL_DIM // 2
    angles = np.outer(np.arange(POSITIONS), THETA ** (-np.arange(half) / (half - 1)))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def rotate(rows: np.ndarray, first_position: int) -> np.ndarray:
    """RoPE (RoFormer, section 3.2) on (H, L, Dh): dimensions i and i + Dh/2 turn together by pos · θ^(-2i/Dh).

    Written as multiplication of complex numbers, which is what the rotation is.
    """
    half = ROTARY_DIM // 2
    positions = first_position + np.arange(rows.shape[1])
    angles = np.outer(positions, THETA ** (-2 * np.arange(half) / ROTARY_DIM))
    turned = (rows[..., :half] + 1j * rows[..., half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def alibi_slopes(heads: int) -> np.ndarray:
    """ALiBi (Press et al.), section 3: for a power of two, the geometric series that starts at its ratio 2^(-8/n).

    Otherwise the slopes of the next lower power of two, then every other slope of the next higher one.
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 / power * np.arange(1, power + 1))
    if power == heads:
        return slopes
    return np.concatenate([slopes, alibi_slopes(2 * power)[0::2][: heads - power]])


def alibi_bias(heads: int) -> np.ndarray:
    """(H, L, L): −slope · |query − key|; at the keys that a causal query sees this is the paper's bias."""
    distance = np.abs(np.arange(BIAS_LENGTH)[:, None] - np.arange(BIAS_LENGTH)[None, :])
    return -alibi_slopes(heads)[:, None, None] * distance


def logarithmic_bucket(distance: int, buckets: int) -> int:
    """T5 (Raffel et al.), section 2.1: one bucket a distance for the first half, then logarithmic up to the maximum.

    The bucket is exact + floor(log(distance / exact) / log(maximum / exact) · exact), exact being buckets / 2. Whole
    numbers decide it here, so that distances on a boundary do not depend on how a logarithm rounds:
    log(d/e) / log(m/e) · e ≥ k  ⇔  d^e · e^k ≥ m^k · e^e.
    """
    exact = buckets // 2
    if distance < exact:
        return distance
    step = 0
    while step + 1 < exact and distance**exact * exact ** (step + 1) >= MAX_DISTANCE ** (step + 1) * exact**exact:
        step += 1
    return exact + step


def bidirectional_bucket(relative: int) -> int:
    """`relative` is key − query: half of the buckets for keys at or before the query, half for those after it."""
    half = BUCKETS // 2
    return (half if relative > 0 else 0) + logarithmic_bucket(abs(relative), half)


def causal_bucket(relative: int) -> int:
    """All buckets look back; keys after the query, which a causal mask hides anyway, share bucket 0."""
    return logarithmic_bucket(max(-relative, 0), BUCKETS)


def check_buckets(distances: np.ndarray, bidirectional: np.ndarray, causal: np.ndarray) -> None:
    """The usual float32 evaluation of the formula must give the same buckets."""
    single = np.float32
    for relative, both, back in zip(distances.tolist(), bidirectional.tolist(), causal.tolist()):
        for distance, buckets, found in [(abs(relative), 16, both % 16), (max(-relative, 0), 32, back)]:
            exact = buckets // 2
            if distance >= exact:
                share = np.log(single(distance) / single(exact)) / single(np.log(MAX_DISTANCE / exact))
                expected = min(exact + int(share * single(exact)), buckets - 1)
                assert found == expected, (relative, buckets, found, expected)


def random(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal values as float64 that float32 holds exactly."""
    return generator.standard_normal(shape).astype(np.float32).astype(np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=default_folder(__file__))
    arguments = parser.parse_args()
    generator = np.random.default_rng(20170612)

    tensors = {
        "sinusoidal.interleaved": interleaved(),
        "sinusoidal.halves": halves(),
        "sinusoidal.halves_tensor2tensor": halves_tensor2tensor(),
    }

    query, key = (random(generator, ROTARY_HEADS, ROTARY_LENGTH, ROTARY_DIM) for _ in range(2))
    tensors |= {
        "rotary.query": query,
        "rotary.key": key,
        "rotary.query_rotated": rotate(query, 0),
        "rotary.key_rotated": rotate(key, 0),
        "rotary.query_rotated_from_offset": rotate(query, ROTARY_OFFSET),
        "rotary.key_rotated_from_offset": rotate(key, ROTARY_OFFSET),
        "rotary.offset": np.array([ROTARY_OFFSET]),
    }
    # What RoPE is for: scores depend only on the distance, so an offset changes none.
    scores = rotate(query, 0) @ rotate(key, 0).transpose(0, 2, 1)
    moved = rotate(query, ROTARY_OFFSET) @ rotate(key, ROTARY_OFFSET).transpose(0, 2, 1)
    assert np.allclose(scores, moved, rtol=0, atol=1e-12)

    for heads in [4, 6, 8]:
        tensors[f"alibi.slopes.{heads}"] = alibi_slopes(heads)
        tensors[f"alibi.bias.{heads}"] = alibi_bias(heads)

    distances = np.arange(-200, 201)
    bidirectional = np.array([bidirectional_bucket(relative) for relative in distances.tolist()])
    causal = np.array([causal_bucket(relative) for relative in distances.tolist()])
    check_buckets(distances, bidirectional, causal)
    table = random(generator, BUCKETS, T5_HEADS)
    tensors |= {
        "t5.relative_positions": distances,
        "t5.buckets.bidirectional": bidirectional,
        "t5.buckets.causal": causal,
        "t5.table": table,
    }
    # (H, L, L), long enough to reach the logarithmic buckets of both kinds.
    length = 20
    for name, bucket in [("bidirectional", bidirectional_bucket), ("causal", causal_bucket)]:
        grid = np.array([[bucket(key - query) for key in range(length)] for query in range(length)])
        tensors[f"t5.bias.{name}"] = table[grid].transpose(2, 0, 1)

    stored = {name: torch.from_numpy(values) for name, values in tensors.items()}
    save(arguments.out / "positions.safetensors", __file__, stored, numpy=np.__version__)


if __name__ == "__main__":
    main()
