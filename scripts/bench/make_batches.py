"""Makes the file of batches that `taper bench train` and pytorch_peer.py read.

    python make_batches.py SOURCE TARGET OUT.safetensors [--vocab 10000] [--max-tokens 4096] [--count 24]

A joint BPE is trained on both texts; pairs of like length make batches of at most --max-tokens positions a side, padding included; --count of
them are drawn. Ids: 0 padding, 1 unknown, 2 begin, 3 end.
"""
import argparse
import random

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BEGIN, END = 2, 3


def padded(sentences):
    matrix = np.zeros((len(sentences), max(map(len, sentences))), np.int32)
    for row, sentence in zip(matrix, sentences):
        row[: len(sentence)] = sentence
    return matrix


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source"), parser.add_argument("target"), parser.add_argument("out")
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--count", type=int, default=24)
    arguments = parser.parse_args()

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    tokenizer.train([arguments.source, arguments.target], trainers.BpeTrainer(vocab_size=arguments.vocab, special_tokens=special))

    def encode(path):
        with open(path, encoding="utf-8", newline="\n") as file:
            return [encoding.ids for encoding in tokenizer.encode_batch(file.read().rstrip("\n").split("\n"))]

    pairs = [(source + [END], [BEGIN] + target + [END]) for source, target in zip(encode(arguments.source), encode(arguments.target), strict=True)]
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    batches, batch, longest = [], [], 0
    for pair in pairs:
        length = max(longest, *map(len, pair))
        if batch and length * (len(batch) + 1) > arguments.max_tokens:
            batches.append(batch)
            batch, length = [], max(map(len, pair))
        batch.append(pair)
        longest = length
    batches.append(batch)
    random.Random(7).shuffle(batches)
    tensors = {}
    for number, batch in enumerate(batches[: arguments.count]):
        tensors[f"src.{number}"], tensors[f"tgt.{number}"] = padded([source for source, _ in batch]), padded([target for _, target in batch])
    save_file(tensors, arguments.out, metadata={"vocab": str(tokenizer.get_vocab_size())})


if __name__ == "__main__":
    main()
