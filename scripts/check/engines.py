#!/usr/bin/env python3
"""Has CTranslate2 and ONNX Runtime read what `taper export` writes for them.

    scripts/check/engines.py [TAPER] [--run RUN] [--python PYTHON] [--keep FOLDER]

Small runs of many shapes are trained for a few updates and exported: each engine has to give the
log-probabilities of tokens that Taper gives; ONNX Runtime for padded batches, for texts alone, and
step by step with past keys and values. A run of translations that is really trained, RUN or
one of configs/quickstart.toml, must also be translated alike, greedily and with beams, and after
export in 16 and 8 bits almost alike. A run that was imported as a MarianMT is one of the shapes. A run
that is made of an exported folder again must give the same log-probabilities and translations as
the run before. The model cards are read as Hugging Face's hub reads them.

TAPER is the program, by default target/release/taper. PYTHON has the PACKAGES already; without it
they are installed from PyPI into a virtual environment that is made for the check.

Needs Python 3.11.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAPER = ROOT / "target/release/taper"
CORPUS = ROOT / "data/everyday-en-zh"
PACKAGES = ["ctranslate2==4.8.5", "onnxruntime==1.32.0", "tokenizers==0.23.3", "sacrebleu==2.6.0",
            "huggingface_hub==2.4.0", "pyyaml==6.0.4"]

RECIPE = """
name = "check"
task = "{task}"
dtype = "f32"
[data]
dir = "{data}"
source_language = "en"
target_language = "zh"
train = "{train}"
validation = "{validation}"
test = []
[data.tokenizer]
kind = "{kind}"
vocabulary_size = 1000
joint = {joint}
[data.batching]
max_tokens = 1024
[model]
d_model = 48
d_ff = 96
heads = 4
encoder_layers = 2
decoder_layers = 3
{shape}
[training]
max_updates = 60
validate_every = 60
[training.schedule]
kind = "constant"
learning_rate = 3e-3
warmup = 0
"""

# Shapes of translation models; of one tokenizer unless a name ends with -two.
TRANSLATION = {
    "pre": 'activation = "gelu"\nsinusoid_frequencies = "tensor2tensor"\nposition_offset = 2',
    "marian": 'norm = "post"\nactivation = "swish"\npositions = "sinusoidal-halves"\noutput_bias = true',
    "bart-two": 'norm = "post"\nactivation = "gelu-tanh"\npositions = "learned"\ntied = "decoder"\n'
                "embedding_norm = true\nscale_embeddings = false\nposition_offset = 2",
    "t5": 'norm_kind = "rms"\npositions = "t5"\nattention_scale = 1.0\nbiases = false\n'
          'feed_forward = "gated"\nactivation = "gelu-tanh"\ntied = "none"',
    "umt5": 'norm_kind = "rms"\npositions = "t5"\nrelative_by_layer = true\nattention_scale = 1.0\n'
            'biases = false\nfeed_forward = "gated"\nactivation = "gelu-tanh"\ntied = "embeddings"',
    "rotary-two": 'norm_kind = "layer-without-bias"\npositions = "rotary"\ntied = "none"\n'
                  'feed_forward = "gated"\nactivation = "quick-gelu"\nkey_value_heads = 2',
    "one-key": 'positions = "none"\nkey_value_heads = 1\nhead_width = 8\nactivation = "relu"\n'
               'query_key_value_biases = false',
}
# Shapes of language models, with their keys of rotary positions.
LANGUAGE_MODELS = {
    "gpt2": 'positions = "learned"\nactivation = "gelu-tanh"\nscale_embeddings = false',
    "llama": 'norm_kind = "rms"\npositions = "rotary"\nfeed_forward = "gated"\nactivation = "swish"\n'
             'biases = false\nkey_value_heads = 2\ntied = "none"\nscale_embeddings = false',
    "llama3": 'norm_kind = "rms"\npositions = "rotary"\nfeed_forward = "gated"\nactivation = "swish"\n'
              'biases = false\nkey_value_heads = 1\nhead_width = 16\n[model.rotary]\n'
              'scaling = "llama3"\nfactor = 4.0\noriginal_length = 16\nbase = 5000.0',
    "ntk": 'positions = "rotary"\n[model.rotary]\nscaling = "ntk"\nfactor = 4.0\npairs = "interleaved"',
    "interpolated": 'positions = "rotary"\n[model.rotary]\nscaling = "interpolation"\nfactor = 4.0',
    "neox": 'positions = "rotary"\nactivation = "gelu"\nparallel_feed_forward = "own-norm"\n'
            '[model.rotary]\nwidth = 4',
    "gptj": 'positions = "rotary"\nactivation = "gelu-tanh"\nparallel_feed_forward = "shared-norm"\n'
            'output_bias = true\nquery_key_value_biases = false\nattention_output_biases = false\n'
            '[model.rotary]\nwidth = 6\npairs = "interleaved"',
    "alibi": 'positions = "alibi"\nactivation = "gelu"',
}
# Shapes whose graphs have their weights in a file beside them.
EXTERNAL = ["umt5", "llama"]
# Largest difference between log-probabilities of a token. Tokens that an imported MarianMT forbids
# have no share of the probability there.
CLOSE, CLOSE_WITHOUT_FORBIDDEN = 1e-4, 2e-3
# The same for graphs of ONNX, and for logits of tokens one by one.
CLOSE_GRAPH = 1e-5
# The same for lines scored by a run of what was exported.
CLOSE_READ_BACK = 1e-4
# Of 500 translations in f32 so many may differ: sums are in another order, and hypotheses can be
# equally likely.
MOST_OTHERS = 2
# Largest difference between scores in BLEU: 16 bits hardly change a model, 8 bits change one as
# small as this by some tenths.
CLOSE_BLEU = {"float16": 0.1, "bfloat16": 0.5, "int8": 1.0}
# Settings in which the rules of both searches agree.
SEARCH = {
    "decoding.length_penalty_form": "power", "decoding.length_penalty": 1, "decoding.patience": 1,
    "decoding.max_length_ratio": 0, "decoding.max_length_offset": 100, "decoding.max_length": 100,
    "decoding.allow_unknown": "true",
}


def taper(program, *arguments, lines=None):
    text = None if lines is None else "".join(line + "\n" for line in lines)
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def settings(keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def pairs(count):
    return [(CORPUS / f"test.{side}").read_text().splitlines()[:count] for side in ("en", "zh")]


def train(program, folder, name, shape, task):
    """Makes a run of a shape, and gives its path."""
    translates = task == "translation"
    recipe = RECIPE.format(
        task=task, shape=shape, kind="bpe" if translates else "bytes",
        data=CORPUS if translates else folder, train="train" if translates else "text",
        validation="val" if translates else "", joint="false" if name.endswith("-two") else "true")
    if not translates:
        recipe += '[data.text]\nblock_length = 32\ndocuments = "lines"\nhold_out = 0.1\n'
    path = folder / f"{name}.toml"
    path.write_text(recipe)
    taper(program, "train", path, "--run", folder / name, "--threads", "1")
    return folder / name


def case_of(program, folder, run, task):
    """Exports a run, and says what Taper gives for it."""
    exported = folder / "exported" / run.name
    taper(program, "export", run, exported, "--format", "ctranslate2")
    graph = folder / "onnx" / run.name
    external = ["--external-data"] if run.name in EXTERNAL else []
    taper(program, "export", run, graph, "--format", "onnx", *external)
    if external and not all(Path(f"{path}_data").exists() for path in graph.glob("*.onnx")):
        sys.exit(f"{run.name}: the weights are not beside the graphs")
    case = {"name": run.name, "task": task, "folder": str(exported), "graph": str(graph)}
    sources, targets = pairs(50)
    if task == "translation":
        for name, side in [("sources", sources), ("targets", targets)]:
            (folder / name).write_text("".join(line + "\n" for line in side))
        found = taper(program, "score", run, "--source", folder / "sources", "--target",
                      folder / "targets", "--json")
        case["scores"] = [one["log_probability"] for one in records(found)]
    else:
        (folder / "lines").write_text("".join(line + "\n" for line in sources))
        found = taper(program, "score", run, "--text", folder / "lines", "--json")
        case["scores"] = [[one["tokens"], one["token_log_probabilities"]] for one in records(found)]
    return case


def read_back(program, folder, run, case):
    """Makes a run of what was exported of a run, which has to give the same."""
    back = folder / "back" / run.name
    languages = ["--source", "en", "--target", "zh"] if case["task"] == "translation" else []
    taper(program, "import", case["folder"], back, *languages)
    if case["task"] == "translation":
        found = taper(program, "score", back, "--source", folder / "sources", "--target",
                      folder / "targets", "--json")
        scores = [one["log_probability"] for one in records(found)]
        gaps = [abs(one - other) for one, other in zip(scores, case["scores"], strict=True)]
    else:
        found = taper(program, "score", back, "--text", folder / "lines", "--json")
        gaps = [abs(one - other) for row, (_, ours) in zip(records(found), case["scores"], strict=True)
                for one, other in zip(row["token_log_probabilities"], ours, strict=True)]
    if not all(gap <= CLOSE_READ_BACK for gap in gaps):
        sys.exit(f"{run.name}: read back, log-probabilities differ by {max(gaps):.1e}")


def translated(program, folder, run):
    """What Taper translates with a trained run, and the folders of its exports."""
    sources, targets = pairs(500)
    case = {"sources": sources, "references": targets, "texts": {}, "folders": {}}
    for beam in ["1", "4"]:
        found = taper(program, "translate", run, "--beam", beam, "--weights", "f32",
                      *settings(SEARCH), lines=sources)
        case["texts"][beam] = found.splitlines()
    for kind in ["float32", "float16", "bfloat16", "int8", "int8_float16", "int8_bfloat16"]:
        exported = folder / "exported" / f"{run.name}-{kind}"
        taper(program, "export", run, exported, "--format", "ctranslate2", "--quantize", kind)
        case["folders"][kind] = str(exported)
    case["graph"] = str(folder / "onnx" / f"{run.name}-trained")
    taper(program, "export", run, case["graph"], "--format", "onnx")
    return case


class Graphs:
    """A folder of ONNX in ONNX Runtime."""

    def __init__(self, folder):
        import numpy
        import onnxruntime

        self.numpy, self.folder = numpy, Path(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        paths = sorted(self.folder.glob("*.onnx"))
        self.sessions = {path.stem: onnxruntime.InferenceSession(str(path), options) for path in paths}
        self.config = json.loads((self.folder / "config.json").read_text())

    def run(self, name, **inputs):
        session = self.sessions[name]
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs)))

    def padded(self, rows, left=False):
        """Ids and mask of rows; what is hidden has the id 1."""
        most = max(map(len, rows))
        ids, mask = (self.numpy.full((len(rows), most), fill, "int64") for fill in (1, 0))
        for row, one, seen in zip(rows, ids, mask):
            place = slice(most - len(row), most) if left else slice(len(row))
            one[place], seen[place] = row, 1
        return ids, mask

    def past(self, name, count):
        """No keys and values yet, for so many rows."""
        return {one.name: self.numpy.zeros((count, one.shape[1], 0, one.shape[3]), "float32")
                for one in self.sessions[name].get_inputs() if one.name.startswith("past")}

    def encoded(self, sources):
        ids, mask = self.padded(sources)
        states = self.run("encoder_model", input_ids=ids, attention_mask=mask)["last_hidden_state"]
        return states, mask

    def continued(self, ids, mask, kept):
        """A step of the decoder with what it and the encoder have kept."""
        given = {name.replace("present", "past_key_values"): value for name, value in kept.items()}
        made = self.run("decoder_with_past_model", input_ids=ids, encoder_attention_mask=mask, **given)
        logits = made.pop("logits")
        return logits, {**kept, **made}

    def log_probabilities(self, logits, answers):
        logits = logits.astype("float64")
        logits = logits - logits.max(-1, keepdims=True)
        logits -= self.numpy.log(self.numpy.exp(logits).sum(-1, keepdims=True))
        return self.numpy.take_along_axis(logits, answers[..., None], -1)[..., 0]

    def greedy(self, sources, forbidden, most):
        """Likeliest token after likeliest token, for all rows at once."""
        states, mask = self.encoded(sources)
        start, end = self.config["decoder_start_token_id"], self.config["eos_token_id"]
        ids = self.numpy.full((len(sources), 1), start, "int64")
        kept = self.run("decoder_model", input_ids=ids, encoder_attention_mask=mask,
                        encoder_hidden_states=states)
        logits, found = kept.pop("logits"), []
        for _ in range(most):
            logits[:, :, forbidden] = -1e9
            ids = logits[:, -1:].argmax(-1)
            found.append(ids[:, 0])
            logits, kept = self.continued(ids, mask, kept)
            if all(end in row for row in zip(*found)):
                break
        rows = [list(map(int, row)) + [end] for row in zip(*found)]
        return [row[:row.index(end)] for row in rows]


def check_translation_graphs(graphs, rows, scores, check, name):
    """Compares the scores of pairs, in one batch with padding, and step by step."""
    numpy, config = graphs.numpy, graphs.config
    sources, targets = rows
    end, start = config["eos_token_id"], config["decoder_start_token_id"]
    sources = [[*row, end] for row in sources]
    states, mask = graphs.encoded(sources)
    ids, _ = graphs.padded([[start, *row] for row in targets])
    answers, seen = graphs.padded([[*row, end] for row in targets])
    made = graphs.run("decoder_model", input_ids=ids, encoder_attention_mask=mask,
                      encoder_hidden_states=states)
    ours = (graphs.log_probabilities(made["logits"], answers) * seen).sum(1)
    gap = numpy.abs((ours - scores) / seen.sum(1)).max()
    check(f"{name}: ONNX, log-probabilities within {gap:.1e}", gap < CLOSE_GRAPH)
    # The first token, then two at once, then one by one.
    kept = graphs.run("decoder_model", input_ids=ids[:, :1], encoder_attention_mask=mask,
                      encoder_hidden_states=states)
    logits = [kept.pop("logits")]
    for first, last in [(1, 3), *((at, at + 1) for at in range(3, min(9, ids.shape[1])))]:
        some, kept = graphs.continued(ids[:, first:last], mask, kept)
        logits.append(some)
    logits = numpy.concatenate(logits, 1)
    gap = numpy.abs(logits - made["logits"][:, :logits.shape[1]]).max()
    check(f"{name}: ONNX, logits with past within {gap:.1e}", gap < 1e-4)
    states, mask = graphs.encoded(sources[:1])
    alone = graphs.run("decoder_model", input_ids=ids[:1], encoder_attention_mask=mask,
                       encoder_hidden_states=states)["logits"]
    gap = numpy.abs(alone - made["logits"][:1]).max()
    check(f"{name}: ONNX, a line alone within {gap:.1e}", gap < 1e-4)


def check_language_model_graph(graphs, rows, scores, start, check, name):
    """Compares the scores of texts, padded on either side, and in two parts."""
    numpy = graphs.numpy
    gaps = []
    answers, seen = graphs.padded(rows, left=True)
    for left in (False, True):
        ids, mask = graphs.padded([[start, *row][:-1] for row in rows], left)
        answers, _ = graphs.padded(rows, left)
        at = numpy.maximum(mask.cumsum(1) - 1, 0)
        past = graphs.past("model", len(rows))
        cut = ids.shape[1] // 2
        first = graphs.run("model", input_ids=ids[:, :cut], attention_mask=mask[:, :cut],
                           position_ids=at[:, :cut], **past)
        logits = first.pop("logits")
        past = {one.replace("present", "past_key_values"): value for one, value in first.items()}
        second = graphs.run("model", input_ids=ids[:, cut:], attention_mask=mask,
                            position_ids=at[:, cut:], **past)
        logits = numpy.concatenate([logits, second["logits"]], 1)
        found = graphs.log_probabilities(logits, answers)
        for row, theirs, is_text in zip(scores, found, mask):
            gaps.append(numpy.abs(theirs[is_text == 1] - row).max())
    check(f"{name}: ONNX, log-probabilities within {max(gaps):.1e}",
          all(gap < 5 * CLOSE_GRAPH for gap in gaps))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper", nargs="?", default=TAPER, type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--compare", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(arguments.compare)
    program = arguments.taper.resolve()
    with tempfile.TemporaryDirectory() as made:
        folder = (arguments.keep or Path(made)).resolve()
        (folder / "exported").mkdir(parents=True)
        sentences = (CORPUS / "train.en").read_text().splitlines()[:2000]
        (folder / "text.txt").write_text("".join(line + "\n" for line in sentences))
        cases = []
        for task, shapes in [("translation", TRANSLATION), ("language-model", LANGUAGE_MODELS)]:
            for name, shape in shapes.items():
                run = train(program, folder, name, shape, task)
                cases.append(case_of(program, folder, run, task))
                read_back(program, folder, run, cases[-1])
        # What was exported as a MarianMT and imported forbids tokens.
        taper(program, "export", folder / "marian", folder / "transformers")
        taper(program, "import", folder / "transformers", folder / "of-marian")
        cases.append(case_of(program, folder, folder / "of-marian", "translation"))
        run = arguments.run
        if run is None:
            run = folder / "quickstart"
            taper(program, "train", ROOT / "configs/quickstart.toml", "--run", run)
        cards = [str(folder / "transformers"), cases[0]["folder"]]
        found = {"cases": cases, "trained": translated(program, folder, run), "cards": cards}
        (folder / "cases.json").write_text(json.dumps(found))
        python = arguments.python
        if python is None:
            python = Path(made) / "venv/bin/python"
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run([python, __file__, "--compare", folder / "cases.json"], env=environment)
    sys.exit(done.returncode)


def compare(path):
    """Compares what the engine gives with what Taper gave."""
    import ctranslate2
    import sacrebleu
    from huggingface_hub import ModelCard
    from tokenizers import Tokenizer

    found, failed = json.loads(path.read_text()), []

    def check(what, is_right):
        print(f"{'ok  ' if is_right else 'FAIL'} {what}")
        if not is_right:
            failed.append(what)

    def tokenizers(folder):
        joint = Path(folder) / "tokenizer.json"
        names = [joint, joint] if joint.exists() else [
            Path(folder) / f"tokenizer.{side}.json" for side in ("source", "target")]
        return [Tokenizer.from_file(str(name)) for name in names]

    def tokens(tokenizer, lines):
        return [one.tokens for one in tokenizer.encode_batch(lines, add_special_tokens=False)]

    sources, targets = pairs(50)
    for case in found["cases"]:
        folder, translates = case["folder"], case["task"] == "translation"
        source, target = tokenizers(folder)
        kind = ctranslate2.Translator if translates else ctranslate2.Generator
        model = kind(folder, compute_type="float32", intra_threads=1)
        if translates:
            rows = (tokens(source, sources), tokens(target, targets))
            scored = model.score_batch(*rows)
            gaps = [abs(sum(theirs.log_probs) - ours) / len(theirs.log_probs)
                    for theirs, ours in zip(scored, case["scores"])]
        else:
            start = json.loads((Path(folder) / "config.json").read_text())["bos_token"]
            scored = model.score_batch([[start, *row] for row, _ in case["scores"]])
            gaps = [abs(one - other) for theirs, (_, ours) in zip(scored, case["scores"])
                    for one, other in zip(theirs.log_probs, ours, strict=True)]
        graphs = Graphs(case["graph"])
        if translates:
            ids = [[tokenizer.token_to_id(token) for token in row] for tokenizer, side
                   in zip((source, target), rows) for row in side]
            half = len(ids) // 2
            check_translation_graphs(graphs, (ids[:half], ids[half:]), case["scores"], check, case["name"])
        else:
            texts = [[target.token_to_id(token) for token in row] for row, _ in case["scores"]]
            check_language_model_graph(graphs, texts, [row for _, row in case["scores"]],
                                       target.token_to_id(start), check, case["name"])
        most = CLOSE_WITHOUT_FORBIDDEN if case["name"] == "of-marian" else CLOSE
        check(f"{case['name']}: log-probabilities within {max(gaps):.1e}",
              all(gap < most for gap in gaps))

    case = found["trained"]
    zh = {"tokenize": "zh"}
    references = [case["references"]]
    for kind, folder in case["folders"].items():
        source, target = tokenizers(folder)
        compute = "int8" if kind.startswith("int8") else "float32"
        model = ctranslate2.Translator(folder, compute_type=compute)
        for beam, ours in case["texts"].items():
            results = model.translate_batch(
                tokens(source, case["sources"]), beam_size=int(beam), length_penalty=1.0,
                max_decoding_length=100, min_decoding_length=0, max_input_length=0)
            ids = [[target.token_to_id(token) for token in one.hypotheses[0]] for one in results]
            theirs = target.decode_batch(ids)
            if kind == "float32":
                same = sum(one == other for one, other in zip(theirs, ours, strict=True))
                check(f"beam {beam}: {same} of {len(ours)} translations are the same",
                      len(ours) - same <= MOST_OTHERS)
            else:
                scores = [sacrebleu.corpus_bleu(texts, references, **zh).score for texts in (ours, theirs)]
                check(f"beam {beam}, {kind}: BLEU {scores[1]:.2f} beside {scores[0]:.2f}",
                      abs(scores[0] - scores[1]) < CLOSE_BLEU[kind.split("_")[0]])

    graphs = Graphs(case["graph"])
    source, target = tokenizers(case["folders"]["float32"])
    end = graphs.config["eos_token_id"]
    generation = json.loads((graphs.folder / "generation_config.json").read_text())
    forbidden = [one[0] for one in generation["bad_words_ids"] if one[0] != 1]
    encoded = source.encode_batch(case["sources"], add_special_tokens=False)
    rows, theirs = [[*one.ids, end] for one in encoded], []
    for first in range(0, len(rows), 100):
        theirs += target.decode_batch(graphs.greedy(rows[first:first + 100], forbidden, 100))
    ours = case["texts"]["1"]
    same = sum(one == other for one, other in zip(theirs, ours, strict=True))
    check(f"ONNX: {same} of {len(ours)} greedy translations are the same", len(ours) - same <= MOST_OTHERS)

    for folder in [*found["cards"], case["folders"]["int8"]]:
        card = ModelCard.load(Path(folder) / "README.md")
        data = card.data
        check(f"{folder}: the card names {data.language}", data.language == ["en", "zh"])
        check(f"{folder}: {data.library_name}, {data.pipeline_tag}", data.pipeline_tag == "translation")
    results = {one.metric_name: one for one in data.eval_results or []}
    check(f"scores in the card: {', '.join(results)}", "BLEU" in results)
    check("they have signatures", all("version:" in one.metric_args["signature"] for one in results.values()))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
