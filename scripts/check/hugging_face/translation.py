"""Saves translation models as Transformers does, and compares what it says of them with what Taper
said of their runs.

    translation.py save FOLDER LINES   # so many of the bundled corpus
    translation.py compare FOLDER      # as scripts/check/hugging_face.py left it
"""

import json
import logging
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig
from versions import is_newer

ROOT = Path(__file__).resolve().parents[3]
CORPUS = ROOT / "data/everyday-en-zh"
# Sums of log-probabilities of a translation.
CLOSE = 1e-4
MORE = [
    "", " two  spaces and one behind ", "café naïve Ünïcode ﬁne ①", "日本語と中文。 ＡＢＣ", "emoji 😀👍🏽!",
    "a <s> b ▁ c", "Привет, мир! Как дела?", "naïve e\u0301 a\u0300", "tab\there\u00a0and\u3000there",
    "हिन्दी में लिखा", "عربي نص", "ไทย ภาษา", "한국어 문장", "ελληνικά", "עברית", "3.14159, isn't it?",
    # Characters whose normal forms depend on the marks behind them.
    "Ａ\u0301Ｂ\u0308 ｶﾞｷﾞ ﾊﾟ か\u3099", "\u0627\u0654\u0648\u0654\u064a\u0654 \u0627\u0653",
    "½\u0301 ①\u20dd №\u0327", "e\u0302\u0301 o\u031b\u0323 ﬁ\u0308 ﷺ", "한 \u1112\u1161\u11ab ㍿ …\u0308",
]


def corpus(split, language):
    return (CORPUS / f"{split}.{language}").read_text().splitlines()


def spm(path, lines, **more):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")),
        minloglevel=2, num_threads=1, **{
            "pad_id": -1, "bos_id": -1, "eos_id": 0, "unk_id": 1, "vocab_size": 500,
            "character_coverage": 0.995, **more})
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(at) for at in range(model.get_piece_size())]


def marian(folder, name, codes=(), drop=0, generation=None, two=False, **more):
    """A MarianMT with weights at random; with `two` it has a vocabulary for each language."""
    path = folder / name
    path.mkdir(parents=True)
    kind = more.pop("kind", "unigram")
    sides = [spm(path / f"{side}.spm", corpus("train", language)[:2000], model_type=kind)
             for side, language in [("source", "en"), ("target", "zh")]]
    if drop:
        sides = [[piece for at, piece in enumerate(pieces) if at < 4 or at % drop]
                 for pieces in sides]
    vocabularies = []
    for pieces in (sides if two else [sides[0] + sides[1]]):
        tokens = list(dict.fromkeys(["</s>", "<unk>", *pieces, *codes, "<pad>"]))
        vocabularies.append({token: at for at, token in enumerate(tokens)})
    ids = vocabularies[-1]
    names = ["vocab.json", "target_vocab.json"][:len(vocabularies)]
    for file, tokens in zip(names, vocabularies):
        (path / file).write_text(json.dumps(tokens, ensure_ascii=False))
    if two:
        # As the converter has it, paddings have the same id.
        assert len(vocabularies[0]) == len(ids)
        more |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(ids)}
    tokenizer = transformers.MarianTokenizer(
        str(path / "source.spm"), str(path / "target.spm"), *[str(path / file) for file in names],
        source_lang="en", target_lang="zh", separate_vocabs=two)
    config = transformers.MarianConfig(**{
        "vocab_size": len(ids), "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "max_position_embeddings": 128, "activation_function": "swish",
        "scale_embedding": True, "pad_token_id": ids["<pad>"], "eos_token_id": 0,
        "decoder_start_token_id": ids["<pad>"], "forced_eos_token_id": 0, "init_std": 0.3, **more})
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        model.final_logits_bias += torch.randn(1, len(ids))
        model.final_logits_bias[0, 0] += 1.5
    model.generation_config = GenerationConfig(**{
        "num_beams": 4, "max_length": 24, "bad_words_ids": [[ids["<pad>"]]], "eos_token_id": 0,
        "pad_token_id": ids["<pad>"], "decoder_start_token_id": ids["<pad>"],
        "forced_eos_token_id": 0, **(generation or {})})
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)


def t5(folder, name, family="T5", pieces="", prefix="", **more):
    """A T5, mT5 or umT5 with weights at random. With `pieces` it has these files of a tokenizer alone:
    `spiece.model`, as on the hub, or `tokenizer.json`, as version 5 of Transformers saves it."""
    path = folder / name
    path.mkdir(parents=True)
    generation = more.pop("generation", {})
    lines = corpus("train", "en")[:2000] + corpus("train", "zh")[:1000] + [prefix] * 20
    spm(path / "spiece.model", lines, pad_id=0, eos_id=1, unk_id=2, vocab_size=700)
    arguments = {"tokenizer_class": "T5Tokenizer", "extra_ids": 10}
    (path / "tokenizer_config.json").write_text(json.dumps(arguments))
    tokenizer = transformers.T5Tokenizer.from_pretrained(path)
    if pieces != "spiece.model":
        tokenizer.save_pretrained(path)
        # Version 4 knows no such list.
        kept = json.loads((path / "tokenizer_config.json").read_text())
        kept["additional_special_tokens"] = kept.pop("extra_special_tokens")[2:]
        (path / "tokenizer_config.json").write_text(json.dumps(kept))
        if pieces:
            (path / "spiece.model").unlink()
    configuration = getattr(transformers, f"{family}Config")
    tasks = {"translation_en_to_zh": {"prefix": prefix}}
    config = configuration(**{
        "vocab_size": len(tokenizer) + 6, "d_model": 32, "d_kv": 12, "d_ff": 64, "num_layers": 3,
        "num_decoder_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, **more},
        **({"task_specific_params": tasks} if prefix else {}))
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    is_tied = more.get("tie_word_embeddings", True)
    if not is_tied:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = 0.1 if name.endswith((".q.weight", ".k.weight")) else 0.3
            parameter.copy_(torch.randn_like(parameter) * size + ("norm" in name))
    model.generation_config = GenerationConfig(**{
        "num_beams": 4, "max_length": 24, "eos_token_id": 1, "pad_token_id": 0,
        "forced_eos_token_id": 1, "decoder_start_token_id": 0, **generation})
    model.save_pretrained(path)
    if not is_tied:
        # As version 4 writes it, which cannot read what version 5 writes.
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))


def byt5(folder, name, **more):
    """A ByT5: a byte is a token, and the tokenizer has no file."""
    path = folder / name
    path.mkdir(parents=True)
    config = transformers.T5Config(
        vocab_size=384, d_model=32, d_kv=12, d_ff=64, num_layers=3, num_decoder_layers=1,
        num_heads=4, decoder_start_token_id=0, feed_forward_proj="gated-gelu", **more)
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight, parameter in model.named_parameters():
            size = 0.1 if weight.endswith((".q.weight", ".k.weight")) else 0.3
            parameter.copy_(torch.randn_like(parameter) * size + ("norm" in weight))
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=24, eos_token_id=1, pad_token_id=0, forced_eos_token_id=1,
        decoder_start_token_id=0, bad_words_ids=[[byte + 3] for byte in [*range(32), 127]])
    model.save_pretrained(path)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    (path / "case.json").write_text(json.dumps({"around": [0, 1], "bytes": True}))


def pegasus(folder, name, pieces="", **more):
    """A Pegasus; with `pieces` it has this file of a tokenizer alone."""
    path = folder / name
    path.mkdir(parents=True)
    spm(path / "spiece.model", corpus("train", "en")[:2000] + corpus("train", "zh")[:1000],
        pad_id=0, eos_id=1, unk_id=2, vocab_size=700)
    arguments = {"tokenizer_class": "PegasusTokenizer", "offset": 20}
    (path / "tokenizer_config.json").write_text(json.dumps(arguments))
    tokenizer = transformers.PegasusTokenizer.from_pretrained(path)
    config = transformers.PegasusConfig(**{
        **SHAPE, "pad_token_id": 0, "eos_token_id": 1, "vocab_size": 720, **more})
    saved(path, transformers.PegasusForConditionalGeneration(config), tokenizer,
          {"bos_token_id": None, "pad_token_id": 0, "eos_token_id": 1, "forced_eos_token_id": 1,
           "decoder_start_token_id": 0}, around=[0, 1], strips=bool(pieces))
    if pieces:
        (path / "tokenizer.json").unlink(missing_ok=True)
        (path / "tokenizer_config.json").write_text(json.dumps(arguments))
        (path / "special_tokens_map.json").unlink(missing_ok=True)


SHAPE = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 128, "init_std": 0.3, "pad_token_id": 1, "eos_token_id": 2}
BOTH = ["en", "zh"]


def of_all():
    return [line for language in BOTH for line in corpus("train", language)[:1500]]


def saved(path, model, tokenizer, generation=None, **case):
    """Saves a model with weights at random, and what there is to know of it."""
    model.eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                weight += torch.randn_like(weight) * 0.1
        for name, bias in model.named_buffers():
            if name == "final_logits_bias":
                bias += torch.randn_like(bias)
    model.generation_config = GenerationConfig(**{
        "num_beams": 4, "max_length": 24, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 2, "forced_eos_token_id": 2, **(generation or {})})
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / "case.json").write_text(json.dumps({"around": [1, 1], **case}))


def m2m100(folder, name, **more):
    """An M2M100: one model of SentencePiece, and languages behind the vocabulary."""
    path = folder / name
    path.mkdir(parents=True)
    pieces = spm(path / "m.model", of_all(), model_type="bpe", vocab_size=2000, bos_id=0, pad_id=1,
                 eos_id=2, unk_id=3)
    (path / "v.json").write_text(json.dumps({piece: at for at, piece in enumerate(pieces)}))
    tokenizer = transformers.M2M100Tokenizer(
        str(path / "v.json"), str(path / "m.model"), src_lang="en", tgt_lang="zh")
    config = transformers.M2M100Config(**{**SHAPE, "vocab_size": len(pieces) + 100, **more})
    model = transformers.M2M100ForConditionalGeneration(config)
    # As published, no end is forced at the maximum length.
    saved(path, model, tokenizer, {"forced_eos_token_id": None}, languages=BOTH,
          tokens=["__en__", "__zh__"])
    (path / "m.model").unlink()
    (path / "v.json").unlink()


def nllb(folder, name, languages, legacy=False, **more):
    """An NLLB with these languages: a fast tokenizer of BPE."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.train_from_iterator(of_all(), trainers.BpeTrainer(
        vocab_size=2000, special_tokens=special, show_progress=False))
    bpe = json.loads(made.to_str())["model"]
    tokenizer = transformers.NllbTokenizer(
        vocab=bpe["vocab"], merges=[tuple(pair) for pair in bpe["merges"]], src_lang=languages[0],
        extra_special_tokens=languages, legacy_behaviour=legacy)
    config = transformers.M2M100Config(**{**SHAPE, "vocab_size": len(tokenizer) + 3, **more})
    model = transformers.M2M100ForConditionalGeneration(config)
    saved(folder / name, model, tokenizer, languages=languages[:2], tokens=languages[:2],
          around=[0, 2] if legacy else [1, 1], legacy=legacy)


def nllb_of_pieces(folder, name, languages, **more):
    """An NLLB whose tokenizer is a model of SentencePiece alone, with ids of the languages."""
    path = folder / name
    path.mkdir(parents=True)
    model_file = path / "sentencepiece.bpe.model"
    pieces = spm(model_file, of_all(), model_type="bpe", vocab_size=2000, unk_id=0, bos_id=1, eos_id=2)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    ids = dict(enumerate(special)) | {
        len(pieces) + 1 + at: token for at, token in enumerate(["<mask>", *languages])}
    token = lambda text: {
        "content": text, "lstrip": text == "<mask>", "normalized": text == "<mask>",
        "rstrip": False, "single_word": False, "special": True}
    arguments = {
        "tokenizer_class": "NllbTokenizer", "src_lang": languages[0],
        "additional_special_tokens": languages,
        "added_tokens_decoder": {str(at): token(text) for at, text in ids.items()}}
    (path / "tokenizer_config.json").write_text(json.dumps(arguments))
    tokenizer = transformers.NllbTokenizer.from_pretrained(path)
    config = transformers.M2M100Config(**{**SHAPE, "vocab_size": len(ids) + len(pieces), **more})
    saved(path, transformers.M2M100ForConditionalGeneration(config), tokenizer,
          languages=languages[:2], tokens=languages[:2], strips=True)
    for file in path.glob("*token*.json"):
        file.unlink()
    (path / "tokenizer_config.json").write_text(json.dumps(arguments))


def bart(folder, name, generation=None, **more):
    """A BART: BPE on bytes."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(of_all(), trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    bpe = json.loads(made.to_str())["model"]
    tokenizer = transformers.BartTokenizer(
        vocab=bpe["vocab"], merges=[tuple(pair) for pair in bpe["merges"]])
    config = transformers.BartConfig(**{**SHAPE, "vocab_size": len(tokenizer), **more})
    saved(folder / name, transformers.BartForConditionalGeneration(config), tokenizer,
          {"forced_bos_token_id": 0, **(generation or {})})


def mbart(folder, name, is_first, **more):
    """An mBART of 25 languages, if `is_first`, or of 50: Unigram."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.train_from_iterator(of_all(), trainers.UnigramTrainer(
        vocab_size=2000, unk_token="<unk>", show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"]))
    vocabulary = json.loads(made.to_str())["model"]["vocab"]
    of = transformers.MBartTokenizer if is_first else transformers.MBart50Tokenizer
    tokenizer = of(vocab=[tuple(piece) for piece in vocabulary], src_lang="en_XX", tgt_lang="zh_CN")
    config = transformers.MBartConfig(**{
        **SHAPE, "vocab_size": len(tokenizer), "activation_function": "relu", **more})
    model = transformers.MBartForConditionalGeneration(config)
    languages = ["en_XX", "zh_CN"]
    start = tokenizer.convert_tokens_to_ids("zh_CN") if is_first else 2
    saved(folder / name, model, tokenizer, {"decoder_start_token_id": start}, tokens=languages,
          languages=languages, around=[0, 2] if is_first else [1, 1], is_first=is_first)


def save(folder, count):
    transformers.logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    marian(folder, "marian")
    marian(folder, "marian-codes", codes=[">>fra<<", ">>zho<<"], drop=7, encoder_layers=1,
           generation={"early_stopping": True, "length_penalty": 0.6})
    marian(folder, "marian-bpe", kind="bpe", scale_embedding=False,
           generation={"length_penalty": 2.0, "no_repeat_ngram_size": 3})
    marian(folder, "marian-greedy", activation_function="relu",
           generation={"num_beams": 1})
    marian(folder, "marian-two", two=True, decoder_layers=1, generation={"early_stopping": True})
    prefix = "translate English to Chinese: "
    t5(folder, "t5", prefix=prefix)
    t5(folder, "t5-of-today", pieces="tokenizer.json", feed_forward_proj="gelu_new",
       relative_attention_num_buckets=9, relative_attention_max_distance=20,
       generation={"forced_eos_token_id": None})
    t5(folder, "flan-t5", pieces="spiece.model", feed_forward_proj="gated-gelu", prefix=prefix,
       tie_word_embeddings=False, generation={"length_penalty": 0.6, "early_stopping": True})
    t5(folder, "mt5", "MT5", pieces="spiece.model", tie_word_embeddings=False,
       generation={"no_repeat_ngram_size": 3, "num_beams": 1})
    # Version 5 finds no tokenizer for an umT5 that has nothing but a model of SentencePiece.
    t5(folder, "umt5", "UMT5", tie_word_embeddings=False, generation={"early_stopping": True})
    byt5(folder, "byt5")
    pegasus(folder, "pegasus", scale_embedding=True)
    pegasus(folder, "pegasus-pieces", "spiece.model", activation_function="relu")
    m2m100(folder, "m2m100")
    nllb_of_pieces(folder, "nllb-pieces", ["eng_Latn", "zho_Hans", "deu_Latn"])
    nllb(folder, "nllb", ["eng_Latn", "zho_Hans", "deu_Latn"])
    nllb(folder, "nllb-legacy", ["eng_Latn", "zho_Hans"], legacy=True, scale_embedding=False)
    bart(folder, "bart")
    bart(folder, "bart-summary", {"no_repeat_ngram_size": 3, "early_stopping": True,
                                  "length_penalty": 2.0, "min_length": 6}, scale_embedding=True)
    mbart(folder, "mbart-25", is_first=True)
    mbart(folder, "mbart-50", is_first=False, scale_embedding=True)
    lines = corpus("test", "en")[:count] + MORE
    (folder / "lines.json").write_text(json.dumps(lines))


class Compared:
    def __init__(self, path, case, told):
        self.path, self.case, self.told, self.checks = path, case, told, 0
        # Before every text of a T5.
        self.prefix = case.get("prefix", "")
        languages = dict(zip(["src_lang", "tgt_lang"], case.get("languages", [])))
        self.tokenizer = AutoTokenizer.from_pretrained(path, **languages)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(path).eval()
        self.begins = {}
        if "tokens" in case:
            name = "decoder_start" if case.get("is_first") else "forced_bos"
            written = self.tokenizer.convert_tokens_to_ids(case["tokens"][1])
            self.begins = {f"{name}_token_id": written}

    def same(self, what, theirs, ours):
        self.checks += 1
        if theirs != ours:
            self.told(f"{what}: Transformers {theirs!r}, Taper {ours!r}")

    def run(self):
        case = self.case
        # Text that spells a special token is text in Taper.
        spells = lambda line: any(token in line for token in self.tokenizer.all_special_tokens) or (
            # Version 5 keeps a space at the end, which SentencePiece and version 4 drop.
            case.get("strips") and line.endswith(" "))
        for asked in ("ids", "scores"):
            case[asked] = [one for one in case[asked] if not spells(one[0])]
        for beams, texts in case["texts"].items():
            case["texts"][beams] = [one for one in texts if not spells(one[0])]
        for line, ours in case["ids"]:
            theirs = self.tokenizer(line).input_ids
            before, behind = case.get("around", [0, 1])
            self.same(f"ids of {line!r}", theirs[before:len(theirs) - behind], ours)
        for beams, texts in case["texts"].items():
            found = self.generated([line for line, _ in texts], int(beams))
            for (line, ours), (ids, theirs) in zip(texts, found):
                self.checks += 1
                # The translation of a line is a line.
                theirs = theirs.replace("\n", " ").replace("\r", " ").strip()
                if case.get("bytes"):
                    # Bytes that are no text: Transformers leaves them out.
                    ours, theirs = (text.replace("\ufffd", "").strip() for text in (ours, theirs))
                if theirs != ours.strip() and not self.is_tie(line, ids, ours, int(beams)):
                    what = f"beam of {beams}: {line!r}"
                    self.told(f"{what}: Transformers {theirs!r}, Taper {ours!r}")
        # A legacy NLLB tokenizer has targets, too, with their language behind the end.
        for source, target, ours in [] if case.get("legacy") else case["scores"]:
            row = self.tokenizer([self.prefix + source], return_tensors="pt")
            goal = self.tokenizer(text_target=[target], return_tensors="pt").input_ids
            logits = self.model(**row, labels=goal).logits[0].double().log_softmax(-1)
            wanted = goal[0].tolist()
            # mBART of 25 languages has its language behind the end.
            wanted = wanted[:-1] if case.get("is_first") else wanted
            theirs = sum(logits[at, token].item() for at, token in enumerate(wanted))
            self.checks += 1
            if not abs(theirs - ours) <= CLOSE * max(1, abs(ours)):
                self.told(f"score of {source!r}: Transformers {theirs}, Taper {ours}")
        return self.checks


    def generated(self, lines, beams):
        """Ids and text of each line; lines of the same length together, so that none is padded."""
        rows = [self.tokenizer(self.prefix + line).input_ids for line in lines]
        found = [None] * len(lines)
        for length in {len(row) for row in rows}:
            places = [at for at, row in enumerate(rows) if len(row) == length]
            together = torch.tensor([rows[at] for at in places])
            written = self.model.generate(together, num_beams=beams, **self.begins)
            for at, ids in zip(places, written):
                # The tokenizer of M2M100 does not know its languages as special tokens.
                languages = getattr(self.tokenizer, "lang_token_to_id", {}).values()
                words = [one for one in ids.tolist() if one not in languages]
                found[at] = ids, self.tokenizer.decode(words, skip_special_tokens=True)
        return found

    def is_tie(self, line, theirs, ours, beams):
        """Whether greedy search could have gone on as in Taper: models with weights at random find
        two tokens equally likely now and then."""
        if beams > 1:
            return False
        row = self.tokenizer([self.prefix + line], return_tensors="pt")
        likeliest = self.model(**row, decoder_input_ids=theirs[None]).logits[0, :-1].topk(2)
        for place, (values, tokens) in enumerate(zip(*likeliest)):
            if values[0] - values[1] < CLOSE and theirs[place + 1] in tokens:
                other = tokens.tolist()
                other.remove(theirs[place + 1].item())
                begin = [*theirs[:place + 1].tolist(), *other]
                begin = self.tokenizer.decode(begin, skip_special_tokens=True)
                if ours.startswith(begin):
                    return True
        return False


def compare(folder):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    failed, checks = [], 0
    for case in json.loads((folder / "translation.json").read_text()):
        for path in case["folders"]:
            if path.startswith("saved") and is_newer(folder / path):
                continue
            told = lambda message: failed.append(f"{path}: {message}")
            checks += Compared(folder / path, case, told).run()
    for message in failed[:40]:
        print(message)
    print(f"Transformers {transformers.__version__}: {checks} checks of translation, "
          f"{len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    if sys.argv[1] == "save":
        save(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(compare(Path(sys.argv[2])))
