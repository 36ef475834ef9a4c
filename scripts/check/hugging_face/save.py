"""Saves folders with weights at random, as Transformers does, with all sorts of tokenizers.

    save.py FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from transformers import (
    BertConfig, BertForSequenceClassification, BertTokenizer, GenerationConfig, GPT2Config,
    GPT2LMHeadModel, GPT2Tokenizer, GPTJConfig, GPTJForCausalLM, GPTNeoXConfig,
    GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
    PhiConfig, PhiForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
    Qwen3ForCausalLM, RobertaConfig, RobertaForSequenceClassification, RobertaTokenizer,
    XLMRobertaConfig, XLMRobertaForSequenceClassification)

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "data/everyday-en-zh/train.en").read_text().splitlines()[:600]
TEXT += (ROOT / "data/everyday-en-zh/train.zh").read_text().splitlines()[:200]
SIZE = 500
# As Llama 3 cuts a text before bytes.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_pairs(special, split=None):
    """BPE on bytes, cut as GPT-2 does or by `split`, with these special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    cut = [pre_tokenizers.Split(Regex(split), behavior="isolated")] if split else []
    of_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cut, of_bytes]) if cut else of_bytes
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def pieces(lowercase, special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")):
    """WordPiece."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=special[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def template(tokenizer, first, last):
    marks = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    return processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B:1 {last}:1", special_tokens=marks)


def vocabulary(tokenizer):
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    return [token for token, _ in by_id]


class Saved:
    """The folders, and what there is to know of each."""

    def __init__(self, folder):
        self.folder, self.cases = folder, []
        torch.manual_seed(1)

    def writes(self, name, tokenizer, size=None, generation=None, **more):
        keys = {key: more.pop(key) for key in list(more) if key.endswith("_token_id")}
        size = size or len(tokenizer)
        config = GPT2Config(
            vocab_size=size, n_positions=64, n_embd=32, n_layer=2, n_head=4,
            initializer_range=0.25, **{"bos_token_id": None, "eos_token_id": None, **keys})
        model = GPT2LMHeadModel(config)
        if generation:
            model.generation_config = GenerationConfig(**generation)
        return self.save(name, model, tokenizer, "lines", **more)

    def decodes(self, name, family, tokenizer, ends, sharded=False, half=False, keys=(), **case):
        """A language model of the shape of Llama, or with all its `keys`."""
        configuration, model = family
        usual = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "max_position_embeddings": 64}
        keys = dict(keys) if "n_embd" in keys else {**usual, **dict(keys)}
        config = configuration(
            vocab_size=len(tokenizer), initializer_range=0.25, bos_token_id=0, eos_token_id=ends,
            **keys)
        model = model(config)
        model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=ends)
        if half:
            model = model.bfloat16()
        more = {"max_shard_size": "20KB"} if sharded else {}
        return self.save(name, model, tokenizer, "lines", more, **case)

    def reads(self, name, tokenizer, size=None, labels=2, **more):
        config = BertConfig(
            vocab_size=size or len(tokenizer), hidden_size=32, num_hidden_layers=2,
            num_attention_heads=4, intermediate_size=64, max_position_embeddings=64,
            initializer_range=0.25, num_labels=labels,
            id2label={at: f"label {at}" for at in range(labels)},
            label2id={f"label {at}": at for at in range(labels)})
        model = BertForSequenceClassification(config)
        return self.save(name, model, tokenizer, "classifier", **more)

    def reads_without_segments(self, name, family, tokenizer, **more):
        """An encoder of the shape of RoBERTa."""
        configuration, model = family
        config = configuration(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=64, max_position_embeddings=66, type_vocab_size=1,
            initializer_range=0.25, num_labels=3, layer_norm_eps=1e-5,
            pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id)
        return self.save(name, model(config), tokenizer, "classifier", **more)

    def save(self, name, model, tokenizer, reads, more=(), **case):
        path = self.folder / name
        model.eval().save_pretrained(path, **dict(more))
        tokenizer.save_pretrained(path)
        self.cases.append({"name": name, "model": reads, **case})
        return path


def fast(tokenizer, **names):
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def decoders_of_today(saved):
    """Llama 3, SmolLM, Qwen2, Qwen3 and Mistral: heads, scalings, biases, norms, and files."""
    llama, qwen2 = (LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM)
    cut = byte_pairs(["<|begin|>", "<|end|>", "<|turn|>"], SPLIT)
    cut.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
            special_tokens=[("<|begin|>", 0)])])
    begun = fast(
        cut, bos_token="<|begin|>", eos_token="<|end|>",
        chat_template="{% for message in messages %}{{ message['content'] }}{% endfor %}")
    rotary = {"rope_theta": 5e4, "original_max_position_embeddings": 16, "factor": 4.0}
    scaled = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **rotary}
    saved.decodes(
        "llama3", llama, begun, [1, 2], sharded=True, before=[0],
        keys={"num_key_value_heads": 2, "head_dim": 12, "rope_parameters": scaled})
    saved.decodes(
        "llama-half", llama, begun, 1, before=[0], half=True,
        keys={"num_key_value_heads": 1, "attention_bias": True,
              "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}})
    plain = fast(
        byte_pairs(["<|begin|>", "<|end|>"], SPLIT), bos_token="<|begin|>", eos_token="<|end|>")
    saved.decodes("smollm", llama, plain, 1, keys={"tie_word_embeddings": True})
    saved.decodes(
        "qwen2", qwen2, plain, [1, 0], keys={
            "num_key_value_heads": 2, "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "yarn", **rotary}})
    saved.decodes(
        "qwen3", (Qwen3Config, Qwen3ForCausalLM), plain, [1, 0],
        keys={"num_key_value_heads": 2, "head_dim": 12})
    saved.decodes(
        "mistral", (MistralConfig, MistralForCausalLM), plain, 1,
        keys={"num_key_value_heads": 2, "sliding_window": None})
    saved.decodes(
        "mistral-window", (MistralConfig, MistralForCausalLM), plain, 1,
        keys={"num_key_value_heads": 2, "sliding_window": 5})
    neox = GPTNeoXConfig, GPTNeoXForCausalLM
    saved.decodes("neox", neox, plain, 1)
    saved.decodes(
        "neox-behind", neox, plain, 1,
        keys={"use_parallel_residual": False, "tie_word_embeddings": True,
              "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                  "partial_rotary_factor": 1.0}})
    saved.decodes(
        "gptj", (GPTJConfig, GPTJForCausalLM), plain, 1,
        keys={"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4})
    saved.decodes(
        "phi", (PhiConfig, PhiForCausalLM), plain, 1, keys={"num_key_value_heads": 2})
    saved.decodes(
        "qwen2-window", qwen2, plain, [1, 0],
        keys={"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 4,
              "max_window_layers": 1})


def robertas(saved):
    """RoBERTa with BPE on bytes, with and without `tokenizer.json`, and XLM-R with a Unigram."""
    roberta = RobertaConfig, RobertaForSequenceClassification
    plain = byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    merges = [tuple(pair) for pair in json.loads(plain.to_str())["model"]["merges"]]
    saved.reads_without_segments(
        "roberta", roberta, RobertaTokenizer(vocab=plain.get_vocab(), merges=merges))
    spaced = RobertaTokenizer(vocab=plain.get_vocab(), merges=merges, add_prefix_space=True)
    path = saved.reads_without_segments("roberta-merges", roberta, spaced)
    (path / "vocab.json").write_text(json.dumps(plain.get_vocab()))
    lines = [" ".join(pair) for pair in merges]
    (path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    (path / "tokenizer.json").unlink()
    pieces_of_all = Tokenizer(models.Unigram())
    pieces_of_all.normalizer = normalizers.NFKC()
    pieces_of_all.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces_of_all.decoder = decoders.Metaspace()
    pieces_of_all.train_from_iterator(TEXT, trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>", show_progress=False))
    pieces_of_all.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)])
    saved.reads_without_segments(
        "xlm-r", (XLMRobertaConfig, XLMRobertaForSequenceClassification), fast(
            pieces_of_all, bos_token="<s>", cls_token="<s>", sep_token="</s>", eos_token="</s>",
            pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
            model_input_names=["input_ids", "attention_mask"]), has_special_pieces=True)


def main(folder):
    transformers.logging.disable_progress_bar()
    folder.mkdir(parents=True)
    saved = Saved(folder)
    plain = byte_pairs(["<|endoftext|>"])
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    merges = [tuple(pair) for pair in json.loads(plain.to_str())["model"]["merges"]]
    as_gpt2 = GPT2Tokenizer(vocab=plain.get_vocab(), merges=merges)

    saved.writes("gpt2", as_gpt2, bos_token_id=0, eos_token_id=0)
    saved.writes("padded", as_gpt2, size=SIZE + 28, bos_token_id=0, eos_token_id=0)
    saved.writes(
        "ends", as_gpt2, bos_token_id=0, eos_token_id=0,
        generation={"bos_token_id": 0, "eos_token_id": [0, *range(260, 330)]})
    saved.writes("end-in-config", as_gpt2, bos_token_id=0, eos_token_id=[300, 400])
    other = byte_pairs(["<s>", "</s>", "<pad>"])
    saved.writes(
        "other-ends", fast(other, bos_token="<s>", eos_token="</s>", pad_token="<pad>"),
        bos_token_id=0, eos_token_id=1)
    named = byte_pairs(["<start>", "<stop>"])
    saved.writes(
        "named-ends", fast(named, bos_token="<start>", eos_token="<stop>"), start=0,
        generation={"eos_token_id": 1})
    begun = byte_pairs(["<s>", "</s>"])
    begun.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    saved.writes(
        "begun", fast(begun, bos_token="<s>", eos_token="</s>"), bos_token_id=0, eos_token_id=1,
        before=[0])
    gaps = byte_pairs(["<|endoftext|>"])
    gaps.add_tokens([AddedToken("Tom", normalized=False), AddedToken("<tool>", special=True)])
    saved.writes("added", fast(gaps, **end), bos_token_id=0, eos_token_id=0)
    chinese = pieces(True)
    chinese.post_processor = template(chinese, "[CLS]", "[SEP]")
    as_bert = BertTokenizer(vocab=chinese.get_vocab())
    saved.writes("chinese", as_bert, bos_token_id=2, eos_token_id=3)

    path = saved.writes("merges", as_gpt2, bos_token_id=0, eos_token_id=0)
    (path / "vocab.json").write_text(json.dumps(plain.get_vocab()))
    lines = [" ".join(pair) for pair in merges]
    (path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
    (path / "tokenizer.json").unlink()
    path = saved.writes("no-config", as_gpt2, bos_token_id=0, eos_token_id=0)
    (path / "tokenizer_config.json").unlink()

    decoders_of_today(saved)
    robertas(saved)
    for name, lowercase in [("bert", True), ("cased", False)]:
        tokenizer = pieces(lowercase)
        as_bert = BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lowercase)
        saved.reads(name, as_bert, labels=3)
        saved.reads(f"padded-{name}", as_bert, size=SIZE + 12)
        path = saved.reads(f"vocab-{name}", as_bert)
        (path / "vocab.txt").write_text("\n".join([*vocabulary(tokenizer), ""]))
        (path / "tokenizer.json").unlink()
    spelled = pieces(False, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"))
    spelled.post_processor = template(spelled, "<s>", "</s>")
    saved.reads("spelled", fast(
        spelled, cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>",
        mask_token="<mask>", model_input_names=["input_ids", "token_type_ids", "attention_mask"]))

    (folder / "cases.json").write_text(json.dumps(saved.cases))


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    main(Path(sys.argv[1]))
