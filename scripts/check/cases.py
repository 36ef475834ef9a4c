#!/usr/bin/env python3
"""Runs the program on small inputs of others that once came out wrong, each with what is right.

    scripts/check/cases.py FOLDER [CASE...]      (CASE: the beginning of a case's name, such as 06)

FOLDER holds a folder a case, `01-libretranslate-crlf` to `24-language-model-jsonl`; a case whose
folder is absent is skipped, and so is the whole where FOLDER is. What is right was told by another
program: Transformers, Pillow, fast_align, gensim. TAPER names the program (default:
target/release/taper), RUN a run of configs/quickstart.toml (default: one is trained).

Needs Python 3.11; with the package transformers, cases 04 and 19 load what is exported.
"""

import contextlib
import functools
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAPER = Path(os.environ.get("TAPER", ROOT / "target/release/taper")).resolve()
CASES = {}


class Skipped(Exception):
    """A case that cannot be tried here, with the reason."""


def case(name):
    """Registers the check of the case `name`."""
    def register(check):
        CASES[name] = check
        return check
    return register


def require(holds, message):
    if not holds:
        raise AssertionError(message)


def taper(*arguments, text=None, code=0):
    """What the program prints, having ended with `code` (a number, or several)."""
    command = [str(TAPER), *map(str, arguments)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600)
    codes = code if isinstance(code, tuple) else (code,)
    shown = " ".join(command[1:])
    require(done.returncode in codes,
            f"taper {shown}: exit code {done.returncode} in place of {codes}\n{done.stderr}")
    require("panicked" not in done.stderr, f"taper {shown}: a panic\n{done.stderr}")
    return done


def imported(source, folder, name="run"):
    """The run that a folder of another library becomes."""
    run = folder / name
    taper("import", source, run, "--threads", "1")
    return run


def distribution(run, text=None, *arguments):
    """The probabilities of the labels of one text or image, in the order of the labels."""
    done = taper("predict", run, *arguments, "--json", "--threads", "1", text=text)
    return json.loads(done.stdout.splitlines()[0])["probabilities"]


def require_close(found, right, within=2e-3):
    """Requires probabilities to be the right ones, as many as are known."""
    close = all(abs(one - other) <= within for one, other in zip(found, right))
    require(close and len(found) >= len(right), f"probabilities {found}, right are {right}")


@functools.cache
def quickstart():
    """A run of the quickstart."""
    if "RUN" in os.environ:
        return Path(os.environ["RUN"]).resolve()
    run = Path(tempfile.mkdtemp()) / "quickstart"
    print("    training the quickstart", flush=True)
    command = [TAPER, "train", "configs/quickstart.toml", "--run", run]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return run


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def served(run, *arguments):
    """The address of a server of `run`."""
    port = free_port()
    command = [TAPER, "serve", run, "--address", f"127.0.0.1:{port}", "--threads", "1", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            require(process.poll() is None, "the server has ended")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def post(url, body, kind="application/json", **headers):
    """Status and body of an answer."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, {"Content-Type": kind, **headers})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def left_after_sending(url, route, body, kind, seconds, clients, *headers):
    """Sends requests of long lines, and leaves before they are answered."""
    address = urllib.parse.urlparse(url)
    sockets = []
    for client in range(clients):
        data = body(client)
        head = [f"POST {route} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}",
                f"Content-Length: {len(data)}", *headers, "", ""]
        one = socket.create_connection((address.hostname, address.port))
        one.sendall("\r\n".join(head).encode() + data)
        sockets.append(one)
    time.sleep(seconds)
    for one in sockets:
        one.close()


def transformers():
    try:
        import transformers as library
    except ImportError as error:
        raise Skipped("the package transformers is not installed") from error
    return library


@case("01-libretranslate-crlf")
def line_ends(folder, scratch):
    run = quickstart()
    right = taper("translate", run, text=(folder / "crlf.txt").read_text()).stdout.splitlines()
    with served(run) as url:
        request = (folder / "request.json").read_bytes()
        asked = json.loads(request)
        answers = [post(f"{url}/translate", request)]
        for ends in ["\r\n", "\r", "\n"]:
            text = asked["q"].replace("\r\n", "\n").replace("\n", ends)
            form = urllib.parse.urlencode({**asked, "q": text}).encode()
            answers.append(post(f"{url}/translate", form, "application/x-www-form-urlencoded"))
            answers.append(post(f"{url}/translate", json.dumps({**asked, "q": text}).encode()))
    for status, body in answers:
        found = json.loads(body).get("translatedText", "").split("\n")
        require(status == 200 and found == right, f"{status}: {found}, right is {right}")


@case("02-truncated-jpeg")
def truncated_images(folder, scratch):
    run = imported(folder / "vit", scratch)
    require_close(distribution(run, None, folder / "whole.jpg"), [0.7258, 0.0336, 0.2406])
    for name in ["cut90.jpg", "cut50.jpg", "cut50.png"]:
        done = taper("predict", run, folder / name, "--json", "--threads", "1", code=(1, 2))
        require(name in done.stderr, f"the error does not name {name}: {done.stderr}")
        require("probability" not in done.stdout, f"{name} was labelled: {done.stdout}")
    with served(run) as url:
        for name in ["cut90.jpg", "cut50.jpg"]:
            data = (folder / name).read_bytes()
            status, body = post(f"{url}/api/classify-image", data, "image/jpeg")
            require(400 <= status < 500, f"{name}: {status} {body[:200]}")


@case("04-export-tokenizer")
def exported_tokenizers(folder, scratch):
    library = transformers()
    taper("export", imported(folder / "gpt2-bpe", scratch, "lm"), scratch / "gpt2")
    tokenizer = library.AutoTokenizer.from_pretrained(scratch / "gpt2")
    found = tokenizer.tokenize("I love you.")
    require(found == ["I", "▁l", "o", "ve", "▁you", "."], f"tokens {found}")
    require(tokenizer.eos_token_id == 3, f"the end is {tokenizer.eos_token_id}, right is 3")
    taper("export", imported(folder / "bert-cls", scratch, "cls"), scratch / "bert")
    classify = library.pipeline("text-classification", str(scratch / "bert"), top_k=None)
    answers = classify(["I think the film was great and lovely"])[0]
    require_close(sorted(one["score"] for one in answers), [0.3046, 0.6954])


@case("05-eos-token-id")
def end_of_generation(folder, scratch):
    run = imported(folder / "gpt2", scratch)
    done = taper("generate", run, "--prompt", "I love", "--max-tokens", "12", "--temperature", "0",
                 "--threads", "1")
    require(done.stdout.rstrip("\n") == "I love0ive", f"{done.stdout!r}, right is 'I love0ive'")


@case("06-vit-preprocessing")
def image_preprocessing(folder, scratch):
    right = {"bicubic": [0.7114, 0.0307, 0.2578], "crop": [0.3058, 0.6255, 0.0687]}
    crop = scratch / "crop"
    subprocess.run(["cp", "-r", folder / "bicubic", crop], check=True)
    path = crop / "preprocessor_config.json"
    path.chmod(0o644)
    crop.chmod(0o755)
    processor = json.loads(path.read_text())
    processor |= {"resample": 2, "size": {"shortest_edge": 32}, "do_center_crop": True,
                  "crop_size": {"height": 32, "width": 32}}
    path.write_text(json.dumps(processor))
    for name, source in [("bicubic", folder / "bicubic"), ("crop", crop)]:
        run = imported(source, scratch, f"run-{name}")
        require_close(distribution(run, None, folder / "big.png"), right[name])
        taper("export", run, scratch / f"out-{name}")
        written = scratch / f"out-{name}" / "preprocessor_config.json"
        written = json.loads(written.read_text())
        asked = json.loads((source / "preprocessor_config.json").read_text())
        for key in ["resample", "size", "do_center_crop"]:
            require(written.get(key) == asked.get(key) or not asked.get(key),
                    f"{name}: {key} is written as {written.get(key)}, read as {asked.get(key)}")


@case("08-nbsp-words")
def words_at_spaces(folder, scratch):
    done = taper("align", quickstart(), "--source", folder / "al.en", "--target", folder / "al.zh",
                 "--threads", "1")
    lines = [[link.split("-") for link in line.split()] for line in done.stdout.splitlines()]
    require(lines and max(int(source) for source, _ in lines[0]) == 2,
            f"the first line has three words, 0 to 2: {done.stdout}")
    recipe = scratch / "tags.toml"
    recipe.write_text(f"""
name = "tags"
task = "tagging"
[data]
dir = "{scratch}"
train = "tag"
validation = {{ name = "again", file = "tag.conll" }}
test = []
[data.labelled]
labels = ["O", "B-Y"]
[data.tokenizer]
kind = "char"
[model]
d_model = 16
d_ff = 16
heads = 2
encoder_layers = 1
[training]
max_updates = 1
validate_every = 1
""")
    (scratch / "tag.conll").write_bytes((folder / "tag.conll").read_bytes())
    run = scratch / "tags"
    taper("train", recipe, "--run", run)
    done = taper("predict", run, text="10\u00a0000 Tom\n")
    require("10\u00a0000" in done.stdout, f"10<NBSP>000 is one word: {done.stdout!r}")


@case("09-word2vec-bom")
def byte_order_mark(folder, scratch):
    out = scratch / "out.txt"
    taper("embeddings", "convert", folder / "bom.txt", out, "--format", "text")
    lines = out.read_text().splitlines()
    require(lines[0] == "4 5" and lines[1].startswith("cat 0.125"), f"{lines[:2]}")
    binary = scratch / "more.bin"
    vector = struct.pack("<5f", *range(5))
    words = [b"cat", b"dog", b"tree", b"more"]
    binary.write_bytes(b"3 5\n" + b"".join(word + b" " + vector + b"\n" for word in words))
    done = taper("embeddings", "nearest", binary, "cat", code=2)
    require("3" in done.stderr, f"the error does not tell how many there may be: {done.stderr}")


@case("11-imported-pair-classifier")
def pairs(folder, scratch):
    run = imported(folder / "bert", scratch)
    found = distribution(run, "I love you.\tTom is a student\n")
    require_close(found, [0.3704, 0.1395, 0.4901])


@case("13-default-labels")
def default_labels(folder, scratch):
    for source in sorted(path for path in folder.iterdir() if path.is_dir()):
        run = imported(source, scratch, source.name)
        if source.name == "bert-two-default-labels":
            found = distribution(run, "I love you.\n")
            require_close(found, [0.166, 0.834])


@case("14-safetensors-bool")
def buffers(folder, scratch):
    imported(folder / "gpt2", scratch)


@case("15-sharded")
def shards(folder, scratch):
    imported(folder / "gpt2", scratch)
    outside = scratch / "outside"
    subprocess.run(["cp", "-r", folder / "gpt2", outside], check=True)
    outside.chmod(0o755)
    index = outside / "model.safetensors.index.json"
    index.chmod(0o644)
    named = json.loads(index.read_text())
    first = sorted(named["weight_map"])[0]
    named["weight_map"][first] = "../" + named["weight_map"][first]
    index.write_text(json.dumps(named))
    taper("import", outside, scratch / "none", code=2)


@case("16-padded-vocabulary")
def padded_vocabulary(folder, scratch):
    run = imported(folder / "gpt2", scratch)
    right = sum(json.loads((folder / "expected.txt").read_text())[0])
    done = taper("score", run, "--text", "-", "--json", "--threads", "1", text="I love you.\n")
    found = json.loads(done.stdout.splitlines()[0])["log_probability"]
    require(abs(found - right) < 1e-3, f"log-probability {found}, right is {right}")


@case("17-gpt2-without-endoftext")
def another_end(folder, scratch):
    run = imported(folder / "gpt2", scratch)
    taper("generate", run, "--prompt", "I love", "--max-tokens", "4", "--temperature", "0")


@case("18-bert-base-and-tagger")
def without_head(folder, scratch):
    imported(folder / "bert-model", scratch, "model")
    tagger = imported(folder / "bert-tagger", scratch, "tagger")
    taper("predict", tagger, text="I love you.\n")
    taper("export", tagger, scratch / "out")
    config = json.loads((scratch / "out/config.json").read_text())
    require(config["architectures"] == ["BertForTokenClassification"], config["architectures"])


@case("19-cased-bert")
def cased(folder, scratch):
    run = imported(folder, scratch)
    taper("export", run, scratch / "out")
    library = transformers()
    text = "Tom LOVES Émile, tom loves emile."
    theirs = library.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    ours = library.AutoTokenizer.from_pretrained(scratch / "out")(text)["input_ids"]
    require(ours == theirs, f"ids {ours}, right are {theirs}")


@case("20-regex-panic")
def backtracking(folder, scratch):
    run = imported(folder, scratch)
    hostile = "a" * 200 + "!"
    taper("generate", run, "--prompt", hostile, "--max-tokens", "4", code=(0, 1, 2))
    done = taper("score", run, "--text", "-", "--json", text=f"bb\n{hostile}\nbb\n", code=(0, 1, 2))
    require(done.returncode == 0 or done.stderr, "an error without a word")
    with served(run) as url:
        ask = {"model": "run", "prompt": hostile, "max_tokens": 2}
        status, body = post(f"{url}/v1/completions", json.dumps(ask).encode())
        require(status != 503, f"{status} {body[:200]}")
        ask["prompt"] = "bb"
        status, body = post(f"{url}/v1/completions", json.dumps(ask).encode())
        require(status == 200, f"after the text that cannot be divided: {status} {body[:200]}")


@case("21-nan-classifier")
def not_finite(folder, scratch):
    done = taper("import", folder, scratch / "run", code=2)
    require("finite" in done.stderr, f"the error does not say why: {done.stderr}")
    require(not (scratch / "run/config.toml").exists(), "a run was made")


@case("22-serve")
def others_requests(folder, scratch):
    with served(quickstart()) as url:
        short = json.dumps({"text": ["I love you."]}).encode()

        def seconds():
            begun = time.monotonic()
            status, body = post(f"{url}/api/translate", short)
            require(status == 200, f"a short line: {status} {body[:200]}")
            return time.monotonic() - begun

        def long_lines(client):
            ask = {"text": [f"c{client} " + "a" * 16000], "beam": 16, "alternatives": 16}
            return json.dumps(ask).encode()

        seconds()
        left_after_sending(url, "/api/translate", long_lines, "application/json", 4, 64)
        waited = max(seconds() for _ in range(3))
        require(waited < 10, f"a short line waits {waited:.1f} s for 64 clients that have left")
        form = urllib.parse.urlencode({"q": "I love you.", "source": "en", "target": "zh"}).encode()
        kind = "application/x-www-form-urlencoded"
        for headers in [{"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}]:
            status, body = post(f"{url}/translate", form, kind, **headers)
            require(status == 403, f"a form of another site: {status} {body[:200]}")
        status, body = post(f"{url}/translate", form, kind)
        require(status == 200, f"a form of no site: {status} {body[:200]}")


@case("23-exchange")
def strangers(folder, scratch):
    recipe = scratch / "tiny.toml"
    recipe.write_text(f"""
name = "tiny"
task = "language-model"
[data]
train = {{ file = "{ROOT}/README.md" }}
validation = ""
test = []
[data.text]
block_length = 16
hold_out = 0.1
[data.tokenizer]
kind = "char"
[data.batching]
max_tokens = 256
[model]
d_model = 16
d_ff = 16
heads = 2
decoder_layers = 1
[training]
max_updates = 4
validate_every = 4
""")

    def garbage(stranger):
        stranger.sendall(os.urandom(4096))

    def greeting(stranger):
        stranger.sendall(b"TAPERNET" + struct.pack("<IIIH", 2, 1, 2, 1) + bytes(32))

    def slow(stranger):
        stranger.sendall(b"T")

    for name, attack in [("silent", lambda stranger: None), ("garbage", garbage),
                         ("greeting", greeting), ("slow", slow)]:
        port, run = free_port(), scratch / name
        def start(rank):
            names = dict(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                         LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, TAPER_KEY="secret")
            environment = os.environ | {key: str(value) for key, value in names.items()}
            return subprocess.Popen([TAPER, "train", recipe, "--run", run], env=environment,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        processes = [start(0)]
        strangers = []
        while len(strangers) < 6:
            try:
                stranger = socket.create_connection(("127.0.0.1", port))
            except OSError:
                require(processes[0].poll() is None, "the first process has ended")
                time.sleep(0.02)
                continue
            strangers.append(stranger)
            with contextlib.suppress(OSError):
                attack(stranger)
        begun = time.monotonic()
        processes.append(start(1))
        outputs = [process.communicate(timeout=120)[0].decode() for process in processes]
        took = time.monotonic() - begun
        for process, output in zip(processes, outputs, strict=True):
            require(process.returncode == 0, f"{name}: {process.returncode}\n{output[-600:]}")
        require(took < 25, f"{name}: six strangers hold the meeting up for {took:.1f} s")
        for stranger in strangers:
            stranger.close()


@case("24-language-model-jsonl")
def fields(folder, scratch):
    recipe = scratch / "lm.toml"
    recipe.write_text(f"""
name = "lm"
task = "language-model"
[data]
train = {{ file = "{folder / "lm.jsonl"}" }}
validation = ""
test = []
[data.text]
block_length = 8
hold_out = 0.2
[data.tokenizer]
kind = "char"
[model]
d_model = 16
d_ff = 16
heads = 2
decoder_layers = 1
[training]
max_updates = 1
validate_every = 1
""")
    done = taper("train", recipe, "--run", scratch / "run", code=(0, 2))
    if done.returncode == 2:
        require("lm.jsonl" in done.stderr, f"the error does not name the file: {done.stderr}")
        return
    vocabulary = json.loads((scratch / "run/tokenizer.json").read_text())["model"]["vocab"]
    require("{" not in json.dumps(vocabulary)[1:-1], "the syntax of JSON is trained on")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    passed, failed, skipped = 0, 0, 0
    for name, check in CASES.items():
        if wanted and not any(name.startswith(one) for one in wanted):
            continue
        if not (folder / name).is_dir():
            print(f"skipped {name}: no such folder", flush=True)
            skipped += 1
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                check(folder / name, Path(scratch))
            except Skipped as reason:
                print(f"skipped {name}: {reason}", flush=True)
                skipped += 1
            except Exception as error:
                print(f"FAILED  {name}: {error or repr(error)}", flush=True)
                failed += 1
            else:
                print(f"passed  {name}", flush=True)
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
