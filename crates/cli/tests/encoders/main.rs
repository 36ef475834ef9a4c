//! Masked language models, and classifiers that begin with their weights: trained, resumed,
//! evaluated, and asked for labels.

#[path = "../common/mod.rs"]
mod common;
mod imported;
mod questions;

use std::fs;

use common::{Workspace, json_lines, mentions, metrics, stdout};

/// Writes recipes for a masked language model and for a classifier, and the labelled texts of the
/// classifier.
fn recipe(workspace: &Workspace) {
    let text = workspace.read("tiny.toml");
    let text = text.replace("decoder_layers", "encoder_layers");
    let masked = text.replace("task = \"language-model\"", "task = \"masked-language-model\"");
    assert_ne!(masked, text);
    workspace.write("masked.toml", masked);
    let labelled = text
        .replace("task = \"language-model\"", "task = \"classification\"")
        .replace("train = \"text\"", "train = \"reviews\"");
    let (before, after) = labelled.split_once("[data.text]").expect("a section");
    let (_, after) = after.split_once("\n[").expect("another section");
    workspace.write(
        "classes.toml",
        format!("{before}[data.labelled]\nlabels = [\"no\", \"yes\"]\nmax_tokens = 24\n\n[{after}"),
    );
    let line = |i: usize| match i % 2 {
        0 => format!("yes\tred birds sing {i}\n"),
        _ => format!("no\told stones fall {i}\n"),
    };
    workspace.write("data/reviews.tsv", (0..80).map(line).collect::<String>());
}

#[test]
fn a_masked_model_trains_resumes_and_becomes_a_classifier() {
    let workspace = Workspace::of_text();
    recipe(&workspace);
    workspace.succeed("train masked.toml --run whole");
    workspace.succeed("train masked.toml --run parts --set training.max_updates=6");
    workspace.succeed("resume parts --set training.max_updates=12");
    let weights = |run: &str| {
        let file = workspace.path(run).join("checkpoints/step-00000012/model.safetensors");
        fs::read(file).expect("weights")
    };
    assert!(weights("whole") == weights("parts"), "the weights differ");
    workspace.succeed("train masked.toml --run alone --set threads=1");
    workspace.same_end("whole", "alone", 12);
    let last = metrics(&workspace.path("whole")).pop();
    assert_eq!(last, metrics(&workspace.path("parts")).pop());
    let json = workspace.succeed("evaluate whole --json");
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let result = &record["results"][0];
    assert!(result["perplexity"].as_f64().expect("a number") > 1.0, "{json}");
    assert!(workspace.succeed("evaluate whole").contains("hidden tokens"));
    mentions(workspace.succeed("inspect whole"), &["transform.weight"]);
    // Training on pairs of texts.
    let pairs = "--set data.masked.next_sentence=true --set data.masked.whole_words=true";
    workspace.succeed(format!("train masked.toml --run pairs {pairs}"));
    mentions(workspace.succeed("inspect pairs"), &["next_sentence.weight"]);

    let more = "--set training.max_updates=150 --set training.schedule.learning_rate=3e-3";
    let trained = workspace.run(format!("train classes.toml --run classes --from pairs {more}"));
    assert!(trained.status.success(), "{}", common::stderr(&trained));
    mentions(
        stdout(&trained) + &common::stderr(&trained),
        &["pooler", "drawn      classes.weight"],
    );
    let output =
        workspace.run_with_input("predict classes --json", b"red birds sing\nold stones fall\n");
    let lines = json_lines(&stdout(&output));
    assert_eq!((&lines[0]["label"], &lines[1]["label"]), (&"yes".into(), &"no".into()));
    assert!(lines[0]["probability"].as_f64().expect("a number") > 0.5);
    let json = workspace.succeed("evaluate classes --split reviews --json");
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let result = &record["results"][0];
    let confusion = &result["confusion"];
    let count = |right: usize, given: usize| confusion[right][given].as_u64().expect("a count");
    assert_eq!(count(0, 0) + count(0, 1), 40);
    let accuracy = result["accuracy"].as_f64().expect("a number");
    assert_eq!(accuracy, (count(0, 0) + count(1, 1)) as f64 / 80.0);
    assert!(accuracy > 0.95, "{json}");
    assert!(workspace.succeed("evaluate classes --split reviews").contains("accuracy"));

    let empty = workspace.run_with_input("predict classes", b"red\n\n");
    common::refused(&empty, &["line 2: has an empty text"]);
    workspace.fail("quantize whole", &["does not decode"]);
    workspace.fail("predict whole", &["task is masked-language-model", "--from RUN"]);
    workspace.fail("generate classes", &["task is classification", "taper predict"]);
    mean_of_all_tokens(&workspace);
    // Views of the attention of encoders.
    for run in ["whole", "classes"] {
        let said = workspace.succeed(format!("attention {run} 'red cat sees' --head 1"));
        mentions(&said, &["<cls>", "<sep>"]);
        workspace.fail(format!("attention {run} red --part cross"), &["no attention cross"]);
    }
    hidden_tokens(&workspace);
    let journey = workspace.json("explain classes 'red birds sing' --json");
    let label = &journey["choices"][0];
    assert_eq!(
        (&label["token"], label["alternatives"].as_array().expect("labels").len()),
        (&"yes".into(), 2)
    );
    assert!(journey["heads"].as_array().is_some_and(|heads| !heads.is_empty()));
    let words = journey["evidence"].as_array().expect("words");
    let text: String = words.iter().filter_map(|word| word["text"].as_str()).collect();
    assert_eq!((text.as_str(), words.len()), ("red birds sing", 3));
    // The evidence of a word is the log-odds for the text minus the log-odds for the text without
    // the word.
    let log_odds = |probability: &serde_json::Value| {
        let probability = probability.as_f64().expect("a number");
        (probability / (1.0 - probability)).ln()
    };
    for word in words {
        let evidence = log_odds(&label["probability"]) - log_odds(&word["without"]);
        assert!((evidence - word["evidence"].as_f64().expect("a number")).abs() < 1e-3, "{word}");
    }
    let without = workspace.run_with_input("predict classes --json", b"red birds\n");
    let without: serde_json::Value = serde_json::from_str(&stdout(&without)).expect("JSON");
    let probability = without["probabilities"][1].as_f64().expect("a number");
    assert!((probability - words[2]["without"].as_f64().expect("a number")).abs() < 1e-6);
    workspace.succeed("explain classes 'red birds sing' --html label.html");
    workspace
        .fail("train tiny.toml --run refused --from whole", &["its task is masked-language-model"]);
    workspace
        .fail("train masked.toml --run refused --set data.masked.rate=0", &["data.masked.rate"]);
}

/// Checks the explanations of a masked model: for each mask in the text or, without masks, for each
/// token.
fn hidden_tokens(workspace: &Workspace) {
    let choices = |text: &str| {
        let journey = workspace.json(format!("explain whole '{text}' --json"));
        assert_eq!(journey["answer"], "hidden");
        let tokens = journey["pieces"].as_array().expect("pieces").len();
        (journey["choices"].as_array().expect("choices").clone(), tokens)
    };
    let (all, tokens) = choices("red cat");
    assert_eq!(all.len(), tokens - 2, "all tokens except the marks at both ends");
    let token = all[0]["token"].clone();
    // Without masks, each token is hidden in turn, so its probability is computed with a mask in
    // its place.
    let (masked, _) = choices("<mask>ed cat");
    assert_eq!((masked.len(), &masked[0]["place"]), (1, &1.into()));
    let same = masked[0]["alternatives"].as_array().expect("tokens").iter();
    for alternative in same.filter(|one| one[0] == token) {
        assert_eq!(alternative[1], all[0]["probability"]);
    }
    workspace.succeed("explain whole 'red <mask>at' --html hidden.html");
    workspace.fail("explain whole ' '", &["empty"]);
}

/// Checks a classifier that computes the mean of the outputs of all tokens. It takes all weights
/// from the masked model except those of the output layer for the classes.
fn mean_of_all_tokens(workspace: &Workspace) {
    let mean = "--set model.pooling=mean --set training.schedule.learning_rate=3e-3";
    let train = "train classes.toml --from pairs";
    let whole = "--run mean --set training.max_updates=150";
    let trained = workspace.run(format!("{train} {mean} {whole}"));
    let shown = stdout(&trained) + &common::stderr(&trained);
    assert!(trained.status.success(), "{shown}");
    mentions(&shown, &["drawn      classes.weight"]);
    workspace.succeed(format!("{train} {mean} --run mean-parts --set training.max_updates=75"));
    workspace.succeed("resume mean-parts --set training.max_updates=150");
    let weights = |run: &str| {
        let file = workspace.path(run).join("checkpoints/step-00000150/model.safetensors");
        fs::read(file).expect("weights")
    };
    assert!(weights("mean") == weights("mean-parts"), "the weights differ");
    let shown = workspace.succeed("inspect mean");
    assert!(shown.contains("classes.weight") && !shown.contains("pooler"), "{shown}");
    let told = workspace.run_with_input("predict mean", b"red birds sing\nold stones fall\n");
    let told = stdout(&told);
    let labels: Vec<_> = told.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(labels, ["yes", "no"], "{told}");
    workspace.fail(
        "train classes.toml --run refused --from classes --set model.pooling=mean",
        &["model.pooling"],
    );
}

/// Returns the words and tags of a sentence in a small language: a name is a person after "mr", and
/// a place after "in".
fn sentence(number: usize) -> [(&'static str, &'static str); 7] {
    const PEOPLE: [&str; 3] = ["stone", "bird", "fall"];
    const PLACES: [&str; 3] = ["old", "red", "stone"];
    [
        ("mr", "O"),
        (PEOPLE[number % 3], "B-PER"),
        ("sings", "O"),
        ("in", "O"),
        (PLACES[number / 3 % 3], "B-LOC"),
        ("town", "I-LOC"),
        (["today", "again"][number / 9 % 2], "O"),
    ]
}

#[test]
fn words_are_tagged_by_what_stands_around_them() {
    let workspace = Workspace::of_text();
    recipe(&workspace);
    let text = workspace.read("classes.toml");
    let text = text
        .replace("task = \"classification\"", "task = \"tagging\"")
        .replace("train = \"reviews\"", "train = \"names\"")
        .replace("[\"no\", \"yes\"]", "[\"O\", \"B-PER\", \"B-LOC\", \"I-LOC\"]");
    workspace.write("tags.toml", text);
    let line = |(word, tag): &(&str, &str)| format!("{word}\tNN {tag}\n");
    let all = |count: usize| -> String {
        let one = |number| sentence(number).iter().map(line).collect::<String>() + "\n";
        "-DOCSTART- O\n\n".to_owned() + &(0..count).map(one).collect::<String>()
    };
    workspace.write("data/names.conll", all(54));
    let set = "--set data.test=names --set training.max_updates=150 \
         --set training.schedule.learning_rate=3e-3";
    workspace.succeed(format!("train tags.toml --run tags {set}"));
    let record = workspace.json("evaluate tags --json");
    let result = &record["results"][0];
    assert_eq!((&result["sentences"], &result["words"]), (&54.into(), &378.into()));
    assert_eq!((&result["support"], &result["types"]["LOC"]["support"]), (&108.into(), &54.into()));
    assert!(result["f1"].as_f64().expect("a number") > 0.95, "{record}");
    assert!(workspace.succeed("evaluate tags").contains("entities     F1"));

    workspace.write("text.txt", "mr stone sings in stone town today\n\nmr bird\n");
    let told = workspace.succeed("predict tags --input text.txt");
    let first: String = ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"]
        .iter()
        .zip(["stone", "sings", "in", "stone", "town", "today"])
        .map(|(tag, word)| format!("{word}\t{tag}\n"))
        .collect();
    assert!(told.starts_with(&format!("mr\tO\n{first}\n")), "{told}");
    let json = workspace.succeed("predict tags --input text.txt --json");
    let one: serde_json::Value =
        serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!(one["entities"], serde_json::json!([["PER", 1, 1], ["LOC", 4, 5]]));

    let text = "mr stone sings in stone town today";
    let journey = workspace.json(format!("explain tags '{text}' --json"));
    let tagged = journey["choices"].as_array().expect("tags").iter();
    let tagged: Vec<String> =
        tagged.map(|one| format!("{}\t{}", one["word"], one["token"])).collect();
    let tagged = tagged.join("\n").replace('"', "");
    // The last word is missing, because the model reads no more tokens.
    let read = first.strip_suffix("\ntoday\tO\n").expect("all words");
    assert_eq!(tagged, format!("mr\tO\n{read}"));
    workspace.succeed(format!("explain tags '{text}' --html tags.html"));
    workspace.fail("explain tags ' '", &["empty"]);

    let says = |text: &str, what: &[&str]| {
        workspace.write("data/names.conll", text);
        workspace.fail(format!("train tags.toml --run other {set}"), what);
    };
    says("mr O\nstone\n", &["names.conll, line 2", "\"stone\" alone"]);
    says("mr O\nstone B-ORG\n", &["names.conll, line 2", "the tag \"B-ORG\""]);
    says("\n\n", &["hold no text"]);
}
