"""Grammar and lexicon of the everyday English-Chinese corpus; see ../make_corpus.py."""
