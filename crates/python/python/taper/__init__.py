"""Train Transformers and use them: what the program ``taper`` does, for Python.

>>> import taper
>>> run = taper.Run.load("runs/quickstart")
>>> run.translate(["I love you."])[0].text

Everything is computed by the program's own library, with the same results and the same messages.
Python's lock is released meanwhile, and Ctrl-C is obeyed.
"""

import os as _os

# As the program does: Candle's short operations stay on one thread. It reads this once, later.
_os.environ.setdefault("CANDLE_NUM_THREADS", "1")

from ._attention import Attention, AttentionLayer
from ._metrics import Score, bleu, chrf, ter
from ._native import TaperError, __version__
from ._page import Report, report
from ._pipeline import pipeline
from ._records import (
    Alignment,
    GeneratedText,
    LineTranslations,
    Prediction,
    SpanAnswer,
    TaggedText,
    TextScore,
    Translation,
)
from ._run import Generation, Run, set_threads
from ._tokenizer import Tokenizer
from ._training import Event, StopTraining, Trained, resume, train

__all__ = [
    "Alignment",
    "Attention",
    "AttentionLayer",
    "Event",
    "GeneratedText",
    "Generation",
    "LineTranslations",
    "Prediction",
    "Report",
    "Run",
    "Score",
    "SpanAnswer",
    "StopTraining",
    "TaggedText",
    "TaperError",
    "TextScore",
    "Tokenizer",
    "Trained",
    "Translation",
    "__version__",
    "bleu",
    "chrf",
    "pipeline",
    "report",
    "resume",
    "set_threads",
    "ter",
    "train",
]
