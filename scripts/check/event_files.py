#!/usr/bin/env python3
"""Reads the event file of a run with TensorBoard's own reader, beside its `metrics.jsonl`.

    scripts/check/event_files.py RUN...

Every step that the record has is there once, in order, with the same values; so are the recipe as
hyper-parameters and, where there were validations, the spread of weights, the samples, and pictures
of attention on the first of them.

Needs Python 3.11 and the package tensorboard (2.20).
"""

import json
import struct
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2


def close(left, right):
    return abs(left - right) <= 1e-6 * max(abs(right), 1e-6)


def check(run):
    lines = [json.loads(line) for line in open(run / "metrics.jsonl")]
    files = list(run.glob("events.out.tfevents.*"))
    if len(files) != 1:
        sys.exit(f"{run}: {len(files)} event files, where one is expected")
    events = EventAccumulator(str(files[0]), size_guidance={
        "scalars": 0, "histograms": 0, "tensors": 0, "images": 0})
    events.Reload()
    tags = events.Tags()

    def compare(tag, expected):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        same = len(found) == len(expected) and all(
            a[0] == b[0] and close(a[1], b[1]) for a, b in zip(found, expected))
        if not same:
            sys.exit(f"{run}: {tag} is {found}, where the record has {expected}")

    logged = [line for line in lines if line["event"] == "log"]
    for key in ("loss", "nll", "accuracy", "learning_rate", "gradient_norm"):
        compare(f"train/{key}", [(line["step"], line[key]) for line in logged])
    for layer in logged[-1].get("layers", {}) if logged else []:
        for kind in ("gradient", "weight"):
            compare(f"{kind}_norms/{layer}",
                    [(line["step"], line["layers"][layer][kind]) for line in logged])
    validated = [line for line in lines if line["event"] == "validation"]
    for name in validated[-1]["scores"] if validated else []:
        compare(f"validation/{name}",
                [(line["step"], line["scores"][name]) for line in validated])
    steps = [line["step"] for line in validated]
    for tag in tags["histograms"]:
        found = events.Histograms(tag)
        if [event.step for event in found] != steps:
            sys.exit(f"{run}: {tag} has steps {[event.step for event in found]}, not {steps}")
        for event in found:
            value = event.histogram_value
            if value.num <= 0 or not close(sum(value.bucket), value.num):
                sys.exit(f"{run}: {tag} counts {sum(value.bucket)} of {value.num} values")
    texts = [tag for tag in tags["tensors"] if tag.startswith("samples/")]
    for tag in texts:
        found = [(event.step, event.tensor_proto.string_val[0].decode())
                 for event in events.Tensors(tag)]
        number = int(tag.split("/")[1])
        for (step, text), line in zip(found, validated, strict=True):
            if step != line["step"] or line["samples"][number]["hypothesis"] not in text:
                sys.exit(f"{run}: {tag} at {step} is {text!r}")
    for tag in tags["images"]:
        found = events.Images(tag)
        # Samples begin with the first validation that translates.
        if [event.step for event in found] != steps[-len(found):]:
            sys.exit(f"{run}: {tag} has steps {[event.step for event in found]}, not {steps}")
        for event in found:
            # A PNG file begins with its name, and has its size in its first chunk.
            size = struct.unpack(">II", event.encoded_image_string[16:24])
            if event.encoded_image_string[1:4] != b"PNG" or size != (event.width, event.height):
                sys.exit(f"{run}: {tag} at {event.step} is no picture of {event.width} x "
                         f"{event.height}")
    metadata = events.SummaryMetadata("_hparams_/session_start_info").plugin_data
    content = plugin_data_pb2.HParamsPluginData.FromString(metadata.content)
    parameters = content.session_start_info.hparams
    if metadata.plugin_name != "hparams" or "model.d_model" not in parameters:
        sys.exit(f"{run}: no hyper-parameters: {metadata}")
    if "recipe" not in tags["tensors"]:
        sys.exit(f"{run}: the recipe is not among {tags['tensors']}")
    print(f"{run}: {len(tags['scalars'])} curves of {len(logged)} + {len(validated)} steps, "
          f"{len(tags['histograms'])} histograms, {len(texts)} samples, "
          f"{len(tags['images'])} pictures, "
          f"{len(parameters)} hyper-parameters")


for name in sys.argv[1:] or sys.exit(__doc__):
    check(Path(name))
