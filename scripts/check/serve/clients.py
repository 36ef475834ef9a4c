#!/usr/bin/env python3
"""Asks `taper serve` with the clients that others have written, and has its formats read.

    scripts/check/serve/clients.py RUN [--taper TAPER]

RUN is a run of configs/quickstart.toml. OpenAI's client lists models, completes texts and talks,
whole and streamed; LibreTranslate's translates, and detects languages; openapi-spec-validator reads
the description of the API, and prometheus-client the counters.

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
    scored = client.completions.create(**asked, logprobs=2).choices[0].logprobs
    check("".join(scored.tokens) == text and len(scored.top_logprobs[0]) == 2
          and all(value <= 0 for value in scored.token_logprobs), "openai: log-probabilities")
    penalised = client.completions.create(**asked, presence_penalty=2, frequency_penalty=2)
    check(penalised.choices[0].text != text, "openai: penalties")
    tokens = client.completions.create(**{**asked, "prompt": [[4, 5], [6]]})
    check(len(tokens.choices) == 2, "openai: prompts as tokens")
    for error, change in [(openai.NotFoundError, {"model": "none"}),
                          (openai.BadRequestError, {"logit_bias": {"5": 1}}),
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


def chats(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
    asked = {"model": "text", "messages": [{"role": "user", "content": "the quick"}],
             "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3)
    choice = whole.choices[0]
    check(choice.message.role == "assistant" and choice.message.content == " brown fox, "
          and choice.finish_reason == "length", f"openai: a chat: {choice.message.content!r}")
    check("".join(one.token for one in choice.logprobs.content) == choice.message.content
          and len(choice.logprobs.content[0].top_logprobs) == 3, "openai: its log-probabilities")
    with client.chat.completions.stream(**asked) as events:
        streamed = "".join(event.delta for event in events if event.type == "content.delta")
    check(streamed == choice.message.content, "openai: the same in parts")
    try:
        client.chat.completions.create(**{**asked, "messages": [{"role": "tool", "content": "a"}]})
        check(False, "openai: what the template refuses")
    except openai.BadRequestError as refused:
        check("only users" in refused.message, f"openai: {refused.message}")


def translations(server):
    client = LibreTranslateAPI(server.url, api_key=KEY)
    languages = client.languages()
    check({"code": "en", "name": "English", "targets": ["zh"]} in languages,
          f"libretranslatepy: {languages}")
    found = client.translate("I love you.", "en", "zh")
    check(found == "我爱你。", f"libretranslatepy: {found}")
    found = client.translate("I love you.\nI love you.", "auto", "zh")
    check(found == "我爱你。\n我爱你。", "libretranslatepy: lines stay lines")
    found = client.translate("I love you.\r\nI love you.", "EN", "zh-Hans")
    check(found == "我爱你。\n我爱你。", "libretranslatepy: other codes and line ends")
    found = client.detect("I love you.")
    check(found[0]["language"] == "en" and found[0]["confidence"] > 90,
          f"libretranslatepy: {found}")
    found = client.detect("我爱你。")
    check(found[0]["language"] == "en" and found[0]["confidence"] < 10,
          f"libretranslatepy: {found}")
    check(file(server, "I love you.\r\n\r\nI love you.\n") == "我爱你。\r\n\r\n我爱你。\n",
          "a file, to the byte")
    try:
        client.translate("I love you.", "zh", "en")
        check(False, "libretranslatepy: the other direction is refused")
    except urllib.error.HTTPError as refused:
        check(refused.code == 400, f"libretranslatepy: {json.load(refused)['error']}")


def file(server, text):
    """The translation of a file, sent as a browser sends a form."""
    fields = [("source", "en"), ("target", "zh"), ("api_key", KEY)]
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
             for name, value in fields]
    parts.append('--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n'
                 f"Content-Type: text/plain\r\n\r\n{text}\r\n--b--\r\n")
    asked = urllib.request.Request(
        f"{server.url}/translate_file", "".join(parts).encode(),
        {"Content-Type": "multipart/form-data; boundary=b"})
    with urllib.request.urlopen(asked) as answer:
        address = json.load(answer)["translatedFileUrl"]
    with urllib.request.urlopen(address) as answer:
        return answer.read().decode()


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
        runs = make_runs(arguments.taper, folder, ("text", "reviews", "shapes"))
        (folder / "key").write_text(f"{KEY}\n")
        (runs[0] / "chat_template.jinja").write_text(
            "{% if messages[0].role != 'user' %}{{ raise_exception('only users') }}{% endif %}"
            "{{ messages | map(attribute='content') | join(' ') }}")
        server = Serving(arguments.taper, [arguments.run, *runs], "--api-key-file", folder / "key")
        try:
            completions(server, arguments.taper, runs[0])
            chats(server)
            translations(server)
            formats(server)
        finally:
            code = server.end()
        check(code == 0, "the server ends when it is asked to")
    sys.exit(1 if check.failed else 0)


main()
