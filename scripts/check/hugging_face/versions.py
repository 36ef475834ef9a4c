"""Folders that a version of Transformers cannot read."""

import json

import transformers


def is_newer(path):
    """Whether version 5 saved the tokenizer of a folder in a way that version 4 does not read."""
    config = path / "tokenizer_config.json"
    keys = json.loads(config.read_text()) if config.exists() else {}
    is_newer = keys.get("tokenizer_class") == "TokenizersBackend" or isinstance(
        keys.get("extra_special_tokens"), list)
    return is_newer and transformers.__version__.startswith("4.")
