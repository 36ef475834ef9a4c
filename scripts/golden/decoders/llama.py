"""Makes the folders llama, qwen2, qwen3, mistral and qwen2-windows: small models with random weights as Transformers saves them, and what they
give.

The Llama has grouped queries, heads wider than the width divided among them, rotary positions scaled as in Llama 3.1,
a tokenizer as Llama 3's (a split by a regular expression before bytes, and a template that puts a token before a text),
several ends, and weights in bf16 in several files with an index. The Qwen2 has biases of queries, keys and values, a
tied output and rotary positions scaled by YaRN, in f32 in one file; the Qwen3 has norms of queries and keys, heads of a
width of their own and an output of its own. The Mistral has a sliding window of 5 tokens, the second Qwen2 one of 4 in
its last layer: texts are longer. `expected.safetensors` has token ids of several
texts, one after another, and from them logits, the mean loss of each next token, and the gradient of every parameter
under the name that Transformers gives it; `expected.json` has greedy continuations. The reference runs in float64 from
the saved weights and is rounded once, on saving.
"""

import argparse
import copy
import json
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ..common import ROOT, relative_error, save, setup

TEXTS = ["The sea, the sea!", "!", "Nothing is lost, and 1234567 ships sail on\n\nto the sea.", "I'LL café  x"]
PROMPTS = ["The sea", "Nothing is", "12"]
TOLERANCE = 3e-6
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"


def tokenizer(special: list[str], begins: bool) -> Tokenizer:
    """BPE on bytes of pieces that a regular expression cuts, with special tokens behind the others."""
    made = Tokenizer(models.BPE(ignore_merges=begins))
    if not begins:
        made.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=276, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(TEXTS * 3, trainer)
    made.add_special_tokens(special)
    if begins:
        first = special[0]
        template = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, made.token_to_id(first))]
        )
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def run(model: torch.nn.Module, rows: list[list[int]]) -> dict[str, Tensor]:
    """Forward and backward over padded rows, which the causal mask keeps from mattering."""
    model.zero_grad()
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    output = model(ids, labels=labels)
    output.loss.backward()
    # The last token of a text is asked for nothing.
    logits = torch.cat([output.logits[i, : len(row) - 1] for i, row in enumerate(rows)])
    results = {"logits": logits, "loss": output.loss}
    results |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {name: tensor.detach().clone() for name, tensor in results.items()}


def write(
    out: Path, model: torch.nn.Module, words: Tokenizer, begins: bool, ends: list[int],
    renamed: tuple[str, str] = ("", ""), **saved: str,
) -> None:
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * 0.2 + (1.0 if "norm" in name else 0.0)
            parameter.copy_(drawn.bfloat16())
    first = "<|begin|>" if begins else "<|endoftext|>"
    start = words.token_to_id(first)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|end|>", chat_template=TEMPLATE, **({"bos_token": first} if begins else {})
    )
    model.eval().generation_config = GenerationConfig(bos_token_id=start, eos_token_id=ends)
    wide = copy.deepcopy(model).double()
    stored = copy.deepcopy(model).bfloat16() if begins else model
    stored.save_pretrained(out, **saved)
    fast.save_pretrained(out)
    rows = [[start] + words.encode(text, add_special_tokens=False).ids for text in TEXTS]
    results, single = run(wide, rows), run(model, rows)
    # Some modules have another name in files.
    results, single = ({name.replace(*renamed): it[name] for name in it} for it in (results, single))
    errors = {name: relative_error(single[name], results[name]) for name in results}
    worst = max(errors, key=errors.get)
    print(f"{out.name}: float32 is within {errors[worst]:.1e} relative of float64 ({worst})")
    assert errors[worst] < TOLERANCE
    tensors = {
        "ids": torch.tensor([token for row in rows for token in row]),
        "lengths": torch.tensor([len(row) for row in rows]),
    }
    save(out / "expected.safetensors", __file__, tensors | results, transformers=transformers.__version__)
    texts = {}
    for prompt in PROMPTS:
        ids = words.encode(prompt).ids
        # Rows that no token has are never written.
        empty = list(range(words.get_vocab_size(), wide.config.vocab_size)) or None
        told = wide.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=8, suppress_tokens=empty)[0].tolist()
        before, whole = words.decode(ids), words.decode(told)
        texts[prompt] = whole[len(before) :]
    ids = {text: words.encode(text, add_special_tokens=False).ids for text in TEXTS}
    (out / "expected.json").write_text(json.dumps({"texts": texts, "ids": ids}, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "crates" / "run" / "tests" / "golden")
    out = parser.parse_args().out
    setup()
    words = tokenizer(["<|begin|>", "<|end|>", "<|turn|>"], True)
    ends = [words.token_to_id("<|end|>"), words.token_to_id("<|turn|>")]
    scaled = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config = LlamaConfig(
        vocab_size=280, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=64, bos_token_id=ends[0] - 1, eos_token_id=ends,
        rope_parameters={**scaled, "rope_theta": 500.0, "original_max_position_embeddings": 16},
    )
    write(out / "llama", LlamaForCausalLM(config), words, True, ends, max_shard_size="6KB")
    words = tokenizer(["<|endoftext|>", "<|end|>"], False)
    start, end = words.token_to_id("<|endoftext|>"), words.token_to_id("<|end|>")
    config = Qwen2Config(
        vocab_size=278, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, max_position_embeddings=64, bos_token_id=start, eos_token_id=end,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        },
    )
    write(out / "qwen2", Qwen2ForCausalLM(config), words, False, [end, start])
    config = Qwen3Config(
        vocab_size=278, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, max_position_embeddings=64, bos_token_id=start, eos_token_id=end,
    )
    write(out / "qwen3", Qwen3ForCausalLM(config), words, False, [end, start])
    config = MistralConfig(
        vocab_size=278, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=start, eos_token_id=end, sliding_window=5,
    )
    write(out / "mistral", MistralForCausalLM(config), words, False, [end, start])
    config = Qwen2Config(
        vocab_size=278, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=start, eos_token_id=end,
        use_sliding_window=True, sliding_window=4, max_window_layers=1,
    )
    write(out / "qwen2-windows", Qwen2ForCausalLM(config), words, False, [end, start])


if __name__ == "__main__":
    main()
