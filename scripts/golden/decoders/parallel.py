"""Makes the folders gpt-neox, gptj and phi: small models with random weights as Transformers saves them, and what they
give.

Feed-forward layers run beside attention: in the GPT-NeoX with a norm of their own, in the GPT-J and the Phi with that
of attention. All rotate a part of each head: the GPT-NeoX a quarter of it in halves, scaled linearly; the GPT-J 6 of 8
elements as neighbours; the Phi one half, with grouped queries. The files are those of `llama.py`.
"""

import argparse
from pathlib import Path

from transformers import GPTJConfig, GPTJForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM, PhiConfig, PhiForCausalLM

from ..common import ROOT, setup
from .llama import tokenizer, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    words = tokenizer(["<|endoftext|>", "<|end|>"], False)
    start, end = words.token_to_id("<|endoftext|>"), words.token_to_id("<|end|>")
    tokens = {"vocab_size": 278, "bos_token_id": start, "eos_token_id": end}
    config = GPTNeoXConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=64,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0, "partial_rotary_factor": 0.25},
        **tokens,
    )
    write(out / "gpt-neox", GPTNeoXForCausalLM(config), words, False, [end, start], ("lm_head", "embed_out"))
    config = GPTJConfig(n_embd=16, n_inner=24, n_layer=2, n_head=2, n_positions=64, rotary_dim=6, **tokens)
    write(out / "gptj", GPTJForCausalLM(config), words, False, [end, start])
    config = PhiConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}, **tokens,
    )
    write(out / "phi", PhiForCausalLM(config), words, False, [end, start])


if __name__ == "__main__":
    main()
