"""Runs: each method against what the program prints."""

import inspect
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import FROZEN, program

import taper

LINES = ["red dog runs", "the cat sleeps here now", "", "blue blue blue green"]


def test_numpy_is_loaded_with_the_first_array(run):
    code = (
        "import sys, taper; run = taper.Run.load(sys.argv[1]); run.translate(['red dog']); "
        "assert 'numpy' not in sys.modules; run.weights(); assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, run.path], check=True)


def test_translations_are_the_programs(run):
    text = "\n".join(LINES) + "\n"
    printed = program("translate", run.path, text=text).splitlines()
    assert [line.text for line in run.translate(LINES)] == printed
    wide = program("translate", run.path, "--n-best", 3, "--json", text=text).splitlines()
    for line, record in zip(run.translate(LINES, n_best=3), map(json.loads, wide)):
        assert line.source == record["source"]
        expected = [(one["text"], one["score"]) for one in record["translations"]]
        assert [(one.text, one.score) for one in line.translations] == expected
    greedy = program("translate", run.path, "--beam", 1, text=text).splitlines()
    assert [line.text for line in run.translate(LINES, beam=1)] == greedy
    # One line alone, again: by weights that are packed already.
    assert run.translate(LINES[:1])[0].text == printed[0]
    begun = run.translate(["red dog"], prefixes=["dog"])[0]
    assert begun.text.startswith("dog")


def test_a_run_of_several_directions(several):
    text = "\n".join(LINES) + "\n"
    printed = {
        (from_, to): program("translate", several.path, "--from", from_, "--to", to, text=text)
        for from_, to in [("aa", "bb"), ("aa", "cc"), ("bb", "aa")]
    }
    assert printed["aa", "bb"] != printed["aa", "cc"]
    for (from_, to), lines in printed.items():
        found = several.translate(LINES, to=to, from_=from_)
        assert [line.text for line in found] == lines.splitlines()
        one = taper.Run.load(several.path, to=to, from_=from_)
        assert [line.text for line in one.translate(LINES)] == lines.splitlines()
    # One call's language does not stay for the next.
    with pytest.raises(taper.TaperError, match="several languages.*choose one"):
        several.translate(LINES)
    with pytest.raises(taper.TaperError, match='does not translate into "dd"'):
        several.translate(LINES, to="dd")
    with pytest.raises(taper.TaperError, match='does not read "cc"'):
        several.translate(LINES, to="bb", from_="cc")


def test_a_run_of_an_earlier_version(tmp_path):
    lines = (FROZEN.parent / "source.txt").read_text().splitlines()
    run = taper.Run.load(FROZEN)
    n_best = (FROZEN.parent / "n_best.txt").read_text().splitlines()
    best = {}
    for line in n_best:
        number, _, text = line.split("\t")[:3]
        best.setdefault(int(number), text)
    assert [line.text for line in run.translate(lines)] == [best[n + 1] for n in range(len(lines))]


def test_alignments(run):
    alignment = run.translate(LINES[:1], alignment=True)[0].alignment
    assert alignment.source_tokens[-1] == "</s>"
    shape = (len(alignment.target_tokens), len(alignment.source_tokens))
    assert alignment.weights.shape == shape and alignment.weights.dtype == np.float32
    printed = program("translate", run.path, "--alignments", text=LINES[0] + "\n")
    pairs = [tuple(map(int, pair.split("-"))) for pair in printed.rstrip("\n").split("\t")[1].split()]
    assert alignment.pairs == pairs


def test_a_bad_line_is_an_error_or_has_one(run):
    lines = ["red dog", "red " * 500]
    with pytest.raises(taper.TaperError, match="line 2"):
        run.translate(lines, overlong="error")
    good, bad = run.translate(lines, overlong="error", strict=False)
    assert good.text and good.error is None
    assert bad.text == "" and bad.error.startswith("line 2") and bad.translations == []
    assert run.translate(lines)[1].overlong["rule"] == "split"


def test_settings_are_checked_in_the_programs_words(run):
    with pytest.raises(taper.TaperError, match="unknown field `beam`, expected"):
        run.translate(LINES, decoding={"beam": 3})
    with pytest.raises(taper.TaperError, match="beam_size"):
        run.translate(LINES, beam=0)
    with pytest.raises(TypeError, match="a list of texts"):
        run.translate("red dog")
    with pytest.raises(taper.TaperError, match="the run's task is translation"):
        run.generate("red").result
    with pytest.raises(taper.TaperError, match="nowhere"):
        taper.Run.load("nowhere")
    with pytest.raises(taper.TaperError, match="checkpoint nothing"):
        taper.Run.load(run.path, checkpoint="nothing")


def test_what_to_do_is_said_as_a_call_or_else_as_a_command(run):
    with pytest.raises(taper.TaperError) as error:
        run.generate("red").result
    assert str(error.value).endswith(
        "this is for language-model; `run.translate(texts)` translates with it, "
        "`run.score(texts, targets)` scores pairs"
    )
    with pytest.raises(taper.TaperError) as error:
        taper.Run.load("no where")
    assert str(error.value).endswith(
        'no such run; `taper.train(recipe, "no where")` would make it'
    )
    with pytest.raises(taper.TaperError, match="`taper average .*` makes them"):
        taper.Run.load(FROZEN, checkpoint="average")


def test_drawn_translations_follow_their_seed(run):
    def drawn(seed):
        sampling = {"temperature": 1.0, "seed": seed}
        return [line.text for line in run.translate(LINES, decoding={"sampling": sampling})]

    assert drawn(1) == drawn(1) != drawn(2)


def test_scores(run, language_model):
    best = run.translate(LINES[:2])
    scores = run.score(LINES[:2], [line.text for line in best])
    for line, score in zip(best, scores):
        assert score.score == pytest.approx(line.score, abs=1e-5)
        assert sum(score.token_log_probabilities) == pytest.approx(score.log_probability)
    with pytest.raises(taper.TaperError, match="2 sources and 1 targets"):
        run.score(LINES[:2], LINES[:1])
    one = language_model.score(["red dog runs"])[0]
    assert one.perplexity == pytest.approx(
        np.exp(-one.log_probability / len(one.token_log_probabilities))
    )
    with pytest.raises(taper.TaperError, match="line 2"):
        language_model.score(["red", ""])
    assert "empty" in language_model.score(["red", ""], strict=False)[1].error


def test_generation_comes_in_pieces(language_model):
    stream = language_model.generate("red dog", max_tokens=12)
    pieces = list(stream)
    assert "".join(pieces) == stream.result.text
    printed = program("generate", language_model.path, "-p", "red dog", "-n", 12)
    assert printed == "red dog" + "".join(pieces) + "\n"
    drawn = language_model.generate_all(["red", "blue"], samples=3, temperature=1.0, seed=4)
    assert [len(texts) for texts in drawn] == [3, 3]
    again = language_model.generate_all(["red", "blue"], samples=3, temperature=1.0, seed=4)
    assert drawn == again
    with pytest.raises(taper.TaperError, match="the prompt"):
        language_model.generate("").result
    with pytest.raises(taper.TaperError, match="samples = 2"):
        language_model.generate_all(["red"], samples=2)
    # One that nobody wants any more does not stand in the way.
    stream = language_model.generate("red", max_tokens=100_000)
    next(stream)
    del stream
    assert language_model.score(["red"])


def test_predictions(classifier):
    found = classifier.predict(["a dog", "a cat"])
    assert all(isinstance(one, taper.Prediction) for one in found)
    assert found[0].probability == pytest.approx(max(found[0].probabilities))
    assert sum(found[0].probabilities) == pytest.approx(1)
    printed = program("predict", classifier.path, text="a dog\na cat\n").splitlines()
    assert [one.label for one in found] == [line.split("\t")[0] for line in printed]
    with pytest.raises(taper.TaperError, match="line 1"):
        classifier.predict([""])


def test_vectors(run, language_model):
    texts = ["red dog", "red dog", "blue cat sleeps here"]
    for one in (run, language_model):
        vectors = one.embed(texts)
        assert vectors.shape == (3, 32) and vectors.dtype == np.float32
        assert np.array_equal(vectors[0], vectors[1])
        # Others beside it change nothing.
        assert np.allclose(one.embed(texts[2:])[0], vectors[2], atol=1e-6)
    with pytest.raises(taper.TaperError, match="line 2 is empty"):
        run.embed(["red", " "])


def test_report(run, tmp_path):
    page = taper.report(run.path)
    assert page.html.startswith("<!doctype html>") and run.path.name in page.html
    assert page._repr_html_().startswith("<iframe srcdoc=")
    page.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == page.html
    assert "概要" in taper.report(run.path, language="zh").html
    with pytest.raises(taper.TaperError, match="language is 'fr'|it is en or zh"):
        taper.report(run.path, language="fr")
    with pytest.raises(taper.TaperError):
        taper.report(tmp_path)


def test_attention(run, classifier):
    attention = run.attention("red dog runs", "runs dog red")
    printed = program(
        "attention", run.path, "red dog runs", "--target", "runs dog red", "--json"
    )
    record = json.loads(printed)
    for layer, expected in zip(attention.layers, record["layers"]):
        assert (layer.part, layer.layer, layer.keys) == (
            expected["part"], expected["layer"], expected["keys"]
        )
        assert layer.weights.shape == (2, len(layer.queries), len(layer.keys))
        assert np.array_equal(layer.weights, np.float32(expected["heads"]))
        assert np.allclose(layer.weights.sum(axis=-1), 1, atol=1e-5)
        # A view of the extension's memory.
        assert not layer.weights.flags.owndata and not layer.weights.flags.writeable
    shown = attention._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "cross" in shown
    assert "注意力" in attention.page("zh")
    assert classifier.attention("red dog").layers[0].part == "encoder"
    with pytest.raises(taper.TaperError, match="a target is for translation"):
        classifier.attention("red", "dog")


def test_weights(run):
    weights = run.weights()
    assert all(array.dtype == np.float32 for array in weights.values())
    described = json.loads(program("inspect", run.path, "--json"))
    described = {one["name"]: tuple(one["shape"]) for one in described["parameters"]}
    assert {name: array.shape for name, array in weights.items()} == described


def test_tokenizers(run):
    tokenizer = run.source_tokenizer
    ids = tokenizer.encode("red dog")
    assert tokenizer.decode(ids) == "red dog"
    assert tokenizer.encode_batch(["red dog"]) == [ids]
    assert [tokenizer.id(token) for token in tokenizer.tokens("red dog")] == ids
    assert len(tokenizer) == len(taper.Tokenizer.load(run.path / "tokenizer.json"))
    with pytest.raises(taper.TaperError, match="tokenizer.json"):
        taper.Tokenizer.load(run.path / "config.toml")


def test_a_run_describes_itself(run):
    assert run.task == "translation" and run.step == 30
    assert run.checkpoint.parent.name == "checkpoints"
    assert "beam_size = 2" in run.recipe
    assert "task='translation'" in repr(run)


def test_pipelines(run, language_model, classifier):
    assert taper.pipeline("translation", run)("red dog runs") == [
        {"translation_text": run.translate(["red dog runs"])[0].text}
    ]
    text = taper.pipeline("text-generation", language_model)("red", max_tokens=4)
    assert text[0]["generated_text"].startswith("red")
    label = taper.pipeline("text-classification", classifier.path)(["a dog", "a cat"])
    assert [set(one) for one in label] == [{"label", "score"}] * 2
    with pytest.raises(ValueError, match="no pipeline"):
        taper.pipeline("poetry", run)


def test_a_pipeline_of_labels_needs_a_run_that_gives_labels():
    class Tagger(taper.Run):
        task = "tagging"

        def __init__(self):
            pass

        def predict(self, items):
            return [taper.TaggedText(words=[text], tags=["O"], entities=[]) for text in items]

    with pytest.raises(ValueError, match="tagging"):
        taper.pipeline("text-classification", Tagger())("red")


def test_a_text_that_was_closed_before_it_began_has_no_result():
    class Closed:
        record = None

        def next(self):
            return None

    with pytest.raises(taper.TaperError, match="closed before"):
        taper.Generation(Closed()).result


def test_many_threads_at_once(run):
    expected = [line.text for line in run.translate(LINES)]
    found = []

    def work():
        found.append([line.text for line in run.translate(LINES)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_everything_public_is_described():
    for name in taper.__all__:
        one = getattr(taper, name)
        if inspect.isclass(one) or inspect.isfunction(one):
            assert inspect.getdoc(one), name
            for attribute, method in vars(one).items() if inspect.isclass(one) else []:
                if inspect.isfunction(method) and not attribute.startswith("_"):
                    assert inspect.getdoc(method), f"{name}.{attribute}"
