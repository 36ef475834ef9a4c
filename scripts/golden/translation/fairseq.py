"""Writes `crates/run/tests/golden/fairseq`: for the tokenizer of XLM-R, of mBART, of mBART-50 and of NLLB a small model of
SentencePiece, `config.json`, what the slow tokenizer of Transformers saves beside it, and the ids that it gives to texts
and to special tokens. The offset of one id, and the places of languages and `<mask>`, are only in these classes.

Needs Transformers 4.57.6, the last with slow tokenizers, and `pip install sentencepiece`.
"""

import json
import sys
from pathlib import Path

import sentencepiece
import transformers

OUT = Path(__file__).resolve().parents[3] / "crates/run/tests/golden/fairseq"
LINES = [
    "The seagulls sail on and on.", "Nothing is lost on us.", "We see far and wide.", "Old birds sing at sea.",
    "Die Möwen segeln weiter und weiter.", "Nichts ist für uns verloren.", "Wir sehen weit.", "Alte Vögel singen.",
] * 5
TEXTS = ["The seagulls sail on.", " two  spaces ", "Möwen 日本", "", "unknown: ÿ", "sea. sea"]
CLASSES = {
    "XLMRobertaTokenizer": ("xlm-roberta", "unigram", []),
    "MBartTokenizer": ("mbart", "unigram", ["ar_AR", "en_XX", "zh_CN"]),
    "MBart50Tokenizer": ("mbart", "unigram", ["ar_AR", "zh_CN", "sl_SI"]),
    "NllbTokenizer": ("m2m_100", "bpe", ["ace_Arab", "eng_Latn", "zul_Latn"]),
}


def main():
    if not transformers.__version__.startswith("4."):
        sys.exit("Transformers 5 has no slow tokenizers: pip install transformers==4.57.6")
    for name, (model_type, kind, languages) in CLASSES.items():
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        model = folder / "sentencepiece.bpe.model"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES), model_prefix=str(folder / "m"), model_type=kind, vocab_size=56, unk_id=0,
            bos_id=1, eos_id=2, pad_id=-1, normalization_rule_name="identity", minloglevel=2, num_threads=1)
        (folder / "m.model").rename(model)
        (folder / "m.vocab").unlink()
        tokenizer = getattr(transformers, name)(str(model))
        tokenizer.save_pretrained(folder)
        (folder / "special_tokens_map.json").unlink()
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        tokens = {one: tokenizer.convert_tokens_to_ids(one) for one in ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *languages]}
        texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in TEXTS]
        expected = {"transformers": transformers.__version__, "pieces": tokenizer.sp_model.get_piece_size(),
                    "size": len(tokenizer), "tokens": tokens, "texts": texts}
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False))


if __name__ == "__main__":
    main()
