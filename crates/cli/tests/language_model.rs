//! Language models: trained on a text, resumed, evaluated, and asked to continue texts.

mod common;

use std::fs;

use common::{Workspace, json_lines, mentions, metrics, refused, set, stderr, stdout};

/// Settings with which a model memorises the lines: enough updates, and no dropout.
const MEMORISE: &str = "--set training.max_updates=250 --set training.validate_every=125 \
     --set model.embedding_dropout=0 --set model.attention_dropout=0 \
     --set model.feed_forward_dropout=0 --set model.residual_dropout=0";

#[test]
fn a_text_that_repeats_itself_is_known_by_heart() {
    let workspace = Workspace::of_text();
    let line = "the quick brown fox, 7 lazy dogs; and a seä.\n";
    workspace.write("data/text.txt", line.repeat(60));
    workspace.succeed(format!("train tiny.toml --run run {MEMORISE}"));
    let json = workspace.succeed("evaluate run --json");
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let result = &record["results"][0];
    assert_eq!(result["split"], "text, held out");
    let perplexity = result["perplexity"].as_f64().expect("a number");
    // The beginning of a block cannot be predicted, so the perplexity is above 1.
    assert!(perplexity < 1.6, "{json}");
    let of_character = result["perplexity_per_character"].as_f64().expect("a number");
    assert!((of_character / perplexity - 1.0).abs() < 0.01, "{json}");
    let of_word = result["perplexity_per_word"].as_f64().expect("a number");
    assert!(of_word > perplexity, "{json}");
    let lines = workspace.succeed("evaluate run");
    mentions(&lines, &["a character", "perplexity"]);

    // Views of attention, and the importance of heads.
    let table = workspace.succeed("attention run 'the quick' --heads");
    assert!(table.lines().skip(1).all(|line| line.starts_with("decoder")), "{table}");
    // `explain` has a choice for the token that follows each token of the text.
    let journey = workspace.json("explain run 'the quick' --json");
    let count = |key: &str| journey[key].as_array().expect("a list").len();
    assert_eq!(count("choices"), count("pieces"), "{journey}");
    assert_eq!((count("vectors"), count("beam")), (1, 0));
    workspace.succeed("explain run 'the quick' --html journey.html");
    let worth = workspace.succeed("prune-heads run --dry-run --split held-out");
    assert_eq!(worth.lines().count(), table.lines().count(), "{worth}");

    // Generates far beyond the context of 24 tokens.
    let generate =
        |more: &str| workspace.succeed(format!("generate run --prompt 'the quick' {more}"));
    let text = generate("--max-tokens 80");
    let expected: String = line.repeat(3).chars().take(89).collect();
    assert_eq!(text, format!("{expected}\n"));
    // The text is the same with the prompt from a file or a pipe, with a shorter context, and with
    // other prompts in the batch.
    workspace.write("prompt", "the quick");
    workspace.write("prompts", "the quick\nand a\n");
    assert_eq!(generate("-n 80 --context 17"), text);
    assert_eq!(workspace.succeed("generate run -n 80 --prompt-file prompt"), text);
    let piped = workspace.run_with_input("generate run -n 80", b"the quick");
    assert_eq!(stdout(&piped), text);
    let json = workspace.succeed("generate run -n 80 --prompts prompts --json");
    let records = json_lines(&json);
    assert_eq!(records.len(), 2);
    assert_eq!(records[0]["text"], expected["the quick".len()..]);
    assert_eq!(records[0]["tokens"], 80);
    assert!(records[1]["text"].as_str().expect("text").starts_with(" seä.\nthe quick"), "{json}");
    // The same seed draws the same text.
    let draw = |more: &str| generate(&format!("-n 40 --temperature 2 --seed 5 {more}"));
    let drawn = draw("");
    assert_eq!(draw(""), drawn);
    let several = draw("--samples 3");
    assert_eq!(several.split("---------------\n").count(), 3, "{several}");
    // The model gives a memorised text a higher probability than another text, both if the text is
    // scored alone and if it continues a prompt.
    workspace.write("texts", format!("{line}the quick lazy fox\n"));
    let scored = workspace.succeed("score run --text texts --json");
    let scores = json_lines(&scored);
    let perplexity = |index: usize| scores[index]["perplexity"].as_f64().expect("a number");
    assert!(perplexity(0) < 1.5 && perplexity(1) > 2.0, "{scored}");
    assert_eq!(scores[1]["tokens"].as_array().map(Vec::len), Some(18));
    workspace.write(
        "choices",
        "{\"prompt\": \"the quick \", \"choices\": [\"lazy\", \"brown\"], \"answer\": 1}\n",
    );
    let output = workspace.run("score run --choices choices");
    assert!(stdout(&output).ends_with("\tbrown\n"), "{}", stdout(&output));
    assert!(stderr(&output).contains("right: 1 of 1"), "{}", stderr(&output));
    workspace.write("choices", "{\"prompt\": \"the\", \"choices\": []}\n");
    workspace.fail("score run --choices choices", &["line 1", "nothing to choose"]);
    workspace.fail("score run", &["--text"]);
    // Without a prompt, the model begins a line.
    let begun = workspace.run_with_input("generate run -n 9", b"");
    assert_eq!(stdout(&begun), "the quick\n");
}

#[test]
fn a_resumed_run_is_one_that_was_never_interrupted() {
    let workspace = Workspace::of_text();
    workspace.train("whole");
    workspace.succeed("train tiny.toml --run parts --set training.max_updates=6");
    workspace.succeed("resume parts --set training.max_updates=12");
    let ends = ["whole", "parts"].map(|run| {
        let file = workspace.path(run).join("checkpoints/step-00000012/model.safetensors");
        fs::read(file).expect("weights")
    });
    assert!(ends[0] == ends[1], "the weights differ");
    let last = |run: &str| metrics(&workspace.path(run)).pop();
    assert_eq!(last("whole"), last("parts"));
    // The result does not depend on the number of threads.
    workspace.succeed("train tiny.toml --run alone --set threads=1");
    workspace.same_end("whole", "alone", 12);
    // The weights of this model would take 700 GB in f32, but `inspect` allocates no memory for
    // them.
    let said = workspace.succeed("inspect --shape gpt3 --tokens 2048");
    mentions(&said, &["parameters   174,604,259,328", "decoder.layers.95.feed_forward.up.weight"]);
    let shape = workspace.json("inspect --shape gpt1 --json");
    assert_eq!(shape["layer"]["forward_flops"], 8_053_063_680_u64);
    workspace.fail("inspect --shape gpt5", &["--shape gpt5", "gpt2-xl"]);
    let inspected = workspace.succeed("inspect whole");
    mentions(&inspected, &["layers       2; width 32"]);
    let before = workspace.succeed("inspect tiny.toml");
    assert_eq!(before, inspected, "the characters are counted");
    workspace.succeed("average whole");
    workspace.succeed("generate whole --checkpoint average --prompt red -n 3");
}

#[test]
fn what_cannot_work_is_one_clear_error() {
    let workspace = Workspace::of_text();
    let train =
        |settings: &str| workspace.run(format!("train tiny.toml --run refused {}", set(settings)));
    refused(&train("data.text.block_length=9000"), &["data.text.block_length", "is 9000"]);
    refused(&train("data.train=nothing"), &["nothing", "nor the same with .txt"]);
    refused(&train("training.early_stopping.metric=bleu"), &["bleu", "\"loss\""]);
    refused(
        &train("model.positions=learned model.max_positions=23"),
        &["max_positions = 23", "data.text.block_length = 23"],
    );
    refused(&train("task=vision"), &["task", "translation"]);
    workspace.write("data/empty.txt", "");
    refused(&train("data.train=empty"), &["empty.txt hold no text"]);
    assert!(!workspace.path("refused").exists());
    let vain = train("training.max_updates=1 data.cleaning.max_ratio=4");
    assert!(stderr(&vain).contains("data.cleaning.max_ratio has no effect"), "{}", stderr(&vain));

    workspace.train("run");
    let generate = |prompt: &str| workspace.run(format!("generate run --prompt '{prompt}'"));
    refused(&generate("red жaж"), &["the prompt", "never seen: 'ж'"]);
    refused(&generate(""), &["is empty"]);
    workspace.fail("generate run --prompt red --samples 2", &["--samples 2", "--temperature"]);
    workspace.fail("translate run", &["task is language-model", "taper generate"]);
    workspace.fail(
        "score run --source data/text.txt --target data/text.txt",
        &["task is language-model"],
    );
    workspace.fail("evaluate run --split missing", &["missing"]);
    workspace.fail("evaluate run --shortlist", &["--shortlist is only for translations"]);
    workspace.fail("shortlist run", &["a shortlist is for translation", "language-model"]);
    let by_key = "generate run --prompt red --set decoding.shortlist=true";
    workspace.fail(by_key, &["decoding.shortlist is only for translation"]);
    workspace.fail("resume run --set task=translation", &["task"]);
    let pairs = Workspace::new();
    pairs.train("run");
    pairs.fail("generate run --prompt red", &["task is translation", "taper translate"]);
}

/// Checks that `extrapolate` and `evaluate` give the same perplexity for blocks longer than in
/// training, with each method of scaling rotary positions.
#[test]
fn perplexity_by_length_is_that_of_evaluate() {
    let workspace = Workspace::of_text();
    let few = "--set training.max_updates=6 --set training.validate_every=6";
    let train = |run: &str, more: &str| {
        workspace.succeed(format!("train tiny.toml --run {run} {few} {more}"));
    };
    train("rotary", "--set model.positions=rotary");
    train("learned", "--set model.positions=learned --set model.max_positions=40");
    let json = workspace.succeed("extrapolate rotary learned --lengths 24,48 --json --svg figures");
    let json = json.split("\n1 figures").next().expect("JSON");
    let found: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let scalings: Vec<&str> =
        (0..6).map(|i| found[i]["scaling"].as_str().expect("a name")).collect();
    assert_eq!(scalings, ["none", "interpolation", "ntk", "yarn", "dual-chunk", "none"]);
    let perplexity = |model: usize, length: usize| {
        found[model]["points"][length]["perplexity"].as_f64().expect("a number")
    };
    // At the length of training, all methods are the same.
    let is_one = |scaling: usize| (perplexity(scaling, 0) / perplexity(0, 0) - 1.0).abs() < 1e-6;
    assert!((1..5).all(is_one), "{json}");
    for (model, settings) in [
        (0, ""),
        (1, "model.rotary.scaling=interpolation model.rotary.factor=2"),
        (2, "model.rotary.scaling=ntk model.rotary.factor=2"),
        (3, "model.rotary.scaling=yarn model.rotary.factor=2 model.rotary.original_length=24"),
        (4, "model.rotary.scaling=dual-chunk model.rotary.original_length=24"),
    ] {
        let settings = set(&format!("data.text.block_length=48 {settings}"));
        let record = workspace.json(format!("evaluate rotary --json {settings}"));
        let alone = record["results"][0]["perplexity"].as_f64().expect("a number");
        assert!((perplexity(model, 1) / alone - 1.0).abs() < 1e-5, "{settings:?}: {json}");
    }
    assert!((1..5).all(|scaling| perplexity(scaling, 1) != perplexity(0, 1)), "{json}");
    mentions(found[5]["points"][1]["refused"].as_str().expect("a reason"), &["max_positions"]);
    mentions(workspace.read("figures/extrapolation.svg"), &["rotary, NTK", "rotary, dual chunk"]);
    workspace.fail("extrapolate rotary --lengths 0", &["at least one token"]);
}

/// Checks that some passkeys that a model has memorised are found, and no other passkeys.
#[test]
fn keys_are_found_by_exact_match() {
    let workspace = Workspace::of_text();
    let line = "quick brown foxes and lazy dogs know that the key is 77777. so be it, 8 or not.\n";
    workspace.write("data/text.txt", line.repeat(60));
    let train = "train tiny.toml --run run";
    workspace.succeed(format!("{train} {MEMORISE} --set data.text.block_length=64"));
    let begin = "extrapolate run --statement ' key {key}.' --question ' that the key is'";
    let ask = |more: &str| {
        let asked = "--passkeys 4 --depths 3 --lengths 64,96 --json";
        let json = workspace.succeed(format!("{begin} {asked} {more}"));
        let json = json.split("\n6 figures").next().expect("JSON").to_owned();
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON")
    };
    let at = |found: &serde_json::Value, length: usize, key: &str| -> Vec<f64> {
        let depths = found[0]["points"][length]["passkey"].as_array().expect("depths");
        depths.iter().map(|depth| depth[key].as_f64().expect("a number")).collect()
    };
    let known = ask("--key-characters 7 --svg figures");
    assert_eq!(at(&known, 0, "depth"), [0.0, 0.5, 1.0]);
    assert_eq!(at(&known, 1, "keys"), [4.0; 3]);
    // Most keys are not found, because the filler text differs from the memorised text.
    let found: f64 = (0..2).flat_map(|length| at(&known, length, "found")).sum();
    assert!(found >= 1.0, "{known}");
    let unknown = ask("--key-characters 8");
    assert_eq!(at(&unknown, 0, "found"), [0.0; 3]);
    // Keys and texts are the same each time. A part of a longer key does not count as the key.
    assert_eq!(ask("--key-characters 7"), known);
    let shorter = ask("--key-characters 7 --key-length 4");
    assert_eq!(at(&shorter, 0, "found"), [0.0; 3]);
    mentions(workspace.read("figures/passkeys-tiny-dual-chunk.svg"), &["depth of the key", "96"]);
    let said = workspace.succeed(format!("{begin} --passkeys 1 --key-characters 7 --lengths 64"));
    mentions(&said, &["keys found, texts of"]);
    // Figures of runs of the same recipe do not overwrite each other.
    let both = begin.replace("extrapolate run", "extrapolate run run");
    workspace.succeed(format!("{both} --passkeys 1 --key-characters 7 --lengths 64 --svg both"));
    let figures = std::fs::read_dir(workspace.path("both")).expect("a folder").count();
    assert_eq!(figures, 11, "a figure for all and five for each run");
    workspace.read("both/passkeys-tiny-dual-chunk-2.svg");
    let refused = |more: &str, messages: &[&str]| {
        workspace.fail(format!("{begin} --passkeys 1 {more}"), messages);
    };
    refused("--lengths 64", &["has characters that the model has never seen"]);
    refused("--key-characters 7 --lengths 20", &["no room for filler"]);
    refused("--key-characters 7 --depths 0", &["at least one depth"]);
    workspace.fail("extrapolate run --depths 3", &["required arguments"]);
}
