#!/usr/bin/env python3
"""Asks `taper serve` with the clients that others have written, and has its formats read.

    scripts/check/serve/clients.py RUN [--taper TAPER]

RUN is a run of configs/quickstart.toml. OpenAI's client lists models, and completes texts, whole
and streamed; LibreTranslate's translates; openapi-spec-validator reads the description of the API,
and prometheus-client the counters.

Needs Python 3.11 and `pip install openai libretranslatepy openapi-spec-validator
prometheus-client`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import openai
from libretranslatepy import LibreTranslateAPI
from openapi_spec_validator import validate
from prometheus_client.openmetrics.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from browser import check
from server import TAPER, Serving, make_runs

KEY = "a key"


def completions(server, taper, run):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    models = [model.id for model in client.models.list()]
    check(models == ["text"], f"openai {openai.__version__}: models {models}")
    check(client.models.retrieve("text").id == "text", "openai: a model")
    asked = {"model": "text", "prompt": "the quick", "max_tokens": 40, "temperature": 0}
    whole = client.completions.create(**asked)
    printed = subprocess.run([taper, "generate", run, "--prompt", "the quick", "-n", "40"],
                             capture_output=True, text=True, check=True).stdout
    text = whole.choices[0].text
    check("the quick" + text + "\n" == printed, f"openai: what taper generate prints: {text!r}")
    check(whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 40
          and whole.usage.prompt_tokens == 9, f"openai: {whole.usage}")
    chunks = list(client.completions.create(**asked, stream=True,
                                            stream_options={"include_usage": True}))
    streamed = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    check(streamed == text and len(chunks) > 10 and chunks[-1].usage.total_tokens == 49,
          f"openai: the same in {len(chunks)} parts")
    stopped = client.completions.create(**{**asked, "stop": [","]})
    check(stopped.choices[0].text == " brown fox"
          and stopped.choices[0].finish_reason == "stop", "openai: stop")
    drawn = client.completions.create(**{**asked, "temperature": 1.5, "n": 3, "seed": 5})
    again = client.completions.create(**{**asked, "temperature": 1.5, "n": 3, "seed": 5})
    texts = [choice.text for choice in drawn.choices]
    check(len(set(texts)) == 3 and texts == [choice.text for choice in again.choices],
          "openai: three texts, the same by one seed")
    several = client.completions.create(**{**asked, "prompt": ["the quick", "and a"]})
    check(len(several.choices) == 2 and several.choices[0].text == text, "openai: two prompts")
    for error, change in [(openai.NotFoundError, {"model": "none"}),
                          (openai.BadRequestError, {"logprobs": 5}),
                          (openai.UnprocessableEntityError, {"max_tokens": 10 ** 6})]:
        try:
            client.completions.create(**{**asked, **change})
            check(False, f"openai: {change} is refused")
        except error as refused:
            check(bool(refused.message), f"openai: {refused.message}")
    try:
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="another").models.list()
        check(False, "openai: another key is refused")
    except openai.AuthenticationError as refused:
        check("key" in refused.message, "openai: another key is refused")


def translations(server):
    client = LibreTranslateAPI(server.url, api_key=KEY)
    languages = client.languages()
    check({"code": "en", "name": "English", "targets": ["zh"]} in languages,
          f"libretranslatepy: {languages}")
    found = client.translate("I love you.", "en", "zh")
    check(found == "我爱你。", f"libretranslatepy: {found}")
    found = client.translate("I love you.\nI love you.", "auto", "zh")
    check(found == "我爱你。\n我爱你。", "libretranslatepy: lines stay lines")
    try:
        client.translate("I love you.", "zh", "en")
        check(False, "libretranslatepy: the other direction is refused")
    except urllib.error.HTTPError as refused:
        check(refused.code == 400, f"libretranslatepy: {json.load(refused)['error']}")


def formats(server):
    with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
        described = json.load(answer)
    validate(described)
    check(True, f"openapi-spec-validator: {len(described['paths'])} paths")
    asked = urllib.request.Request(f"{server.url}/metrics",
                                   headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(asked) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    names = {family.name for family in families}
    wanted = {"taper_requests", "taper_request_seconds", "taper_lines", "taper_batch_lines",
              "taper_waiting_lines", "taper_queue_seconds", "taper_connections"}
    check(wanted <= names, f"prometheus-client: {len(names)} families")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--taper", type=Path, default=TAPER)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = make_runs(arguments.taper, folder)
        (folder / "key").write_text(f"{KEY}\n")
        server = Serving(arguments.taper, [arguments.run, *runs], "--api-key-file", folder / "key")
        try:
            completions(server, arguments.taper, runs[0])
            translations(server)
            formats(server)
        finally:
            code = server.end()
        check(code == 0, "the server ends when it is asked to")
    sys.exit(1 if check.failed else 0)


main()
