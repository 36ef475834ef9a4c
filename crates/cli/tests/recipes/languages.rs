//! Tests of several directions in one model: the model distinguishes them by the token of the
//! target language, each direction is scored, and other directions are refused.

use std::fs;

use crate::common::{Workspace, json_lines, mentions, metrics, stderr, stdout};

/// Makes a workspace with three languages. A translation from `aa` to `bb` reverses the order of
/// the words, and a translation from `aa` to `cc` keeps it. So the same sources occur in two
/// directions with different translations. There is also training text from `bb` to `aa`. For `bb`
/// to `cc` there is only a test set.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    for stem in ["train", "val", "test"] {
        let path = |language: &str| workspace.path(&format!("data/{stem}.{language}"));
        fs::copy(path("aa"), path("cc")).expect("copied");
    }
    let tiny = workspace.read("tiny.toml");
    let (_, rest) = tiny.split_once("test = [\"test\"]\n").expect("a test set");
    let corpus = |stem: &str, from: &str, to: &str| {
        format!("{{ stem = \"{stem}\", from = \"{from}\", to = \"{to}\" }}")
    };
    let each = |stem: &str, directions: &[(&str, &str)]| {
        let corpora = directions.iter().map(|(from, to)| corpus(stem, from, to));
        corpora.collect::<Vec<_>>().join(", ")
    };
    let trained = [("aa", "bb"), ("aa", "cc"), ("bb", "aa")];
    let tested = [("aa", "bb"), ("aa", "cc"), ("bb", "aa"), ("bb", "cc")];
    workspace.write(
        "many.toml",
        format!(
            "device = \"cpu\"\ndtype = \"f32\"\n[data]\ndir = \"data\"\ntrain = [{}]\ntest = [{}]\n\
             languages.temperature = 2\n{rest}",
            each("train", &trained),
            each("test", &tested),
        ),
    );
    workspace
}

/// Settings with which a model learns each of the directions.
const LEARN: &str = "--set training.schedule.warmup=50 --set training.max_updates=1000 \
     --set training.validate_every=500 --set training.log_every=200 --set model.d_model=64 \
     --set model.d_ff=128 --set model.heads=4 --set data.batching.max_tokens=600";

#[test]
fn one_model_learns_directions_apart() {
    let workspace = workspace();
    for tag in ["source", "target"] {
        let tagged = format!("data.languages.tag=\"{tag}\"");
        let said = workspace.succeed(format!("train many.toml --run {tag} --set {tagged} {LEARN}"));
        mentions(&said, &["test.bb-cc (12 sentences)"]);
        let translated = |to: &str| {
            let output = workspace
                .run_with_input(format!("translate {tag} --to {to}"), b"red cat sees two\n");
            assert!(output.status.success(), "{}", stderr(&output));
            stdout(&output).trim().to_owned()
        };
        assert_eq!(translated("bb"), "two sees cat red", "{tag}");
        assert_eq!(translated("cc"), "red cat sees two", "{tag}");
        // Each direction has scores, and the overall score is their mean.
        let records = metrics(&workspace.path(tag));
        let scores = &records.iter().rfind(|one| one["event"] == "validation").unwrap()["scores"];
        let score = |name: &str| scores[name].as_f64().unwrap();
        for name in ["loss", "bleu", "chrf"] {
            let each = ["aa-bb", "aa-cc", "bb-aa"].map(|one| score(&format!("{name}.{one}")));
            let mean = each.iter().sum::<f64>() / 3.0;
            assert!((mean - score(name)).abs() < 1e-9, "{name}: {each:?}");
        }
        let scores = fs::read(workspace.path(&format!("{tag}/scores.json"))).expect("scores");
        let scores: serde_json::Value = serde_json::from_slice(&scores).expect("JSON");
        let directions = scores.as_array().unwrap().iter().map(|set| set["direction"].as_str());
        assert!(directions.eq(["aa-bb", "aa-cc", "bb-aa", "bb-cc"].map(Some)));
        // `evaluate` gives the same scores: for all directions, for one target language, or for one
        // split.
        let again = |options: &str| -> Vec<serde_json::Value> {
            let record = workspace.json(format!("evaluate {tag} --json {options}"));
            record["results"].as_array().expect("results").clone()
        };
        assert_eq!(again(""), *scores.as_array().unwrap());
        let into = again("--to cc");
        assert_eq!(into[..], [scores[1].clone(), scores[3].clone()]);
        assert_eq!(again("--split test.bb-aa"), [scores[2].clone()]);
        // `score` depends on the target language.
        workspace.write("source.txt", "red cat sees two\n");
        workspace.write("target.txt", "two sees cat red\n");
        let pair = format!("score {tag} --source source.txt --target target.txt --to");
        let score = |to: &str| -> f64 {
            let said = workspace.succeed(format!("{pair} {to}"));
            said.split('\t').next().unwrap().parse().expect("a number")
        };
        assert!(score("bb") > score("cc") + 1.0);
    }
}

#[test]
fn what_is_not_translated_is_refused() {
    let workspace = workspace();
    workspace.succeed("train many.toml --run run");
    let translate = |options: &str, fragments: &[&str]| {
        workspace.write("in", "red cat\n");
        workspace.fail(format!("translate run --input in {options}"), fragments);
    };
    translate("", &["several languages", "bb, cc, aa", "choose one"]);
    for format in ["transformers", "ctranslate2", "onnx"] {
        let export = format!("export run out --to bb --format {format}");
        workspace.fail(&export, &["several directions", "export runs of one direction"]);
    }
    translate("--to dd", &["does not translate into \"dd\"", "bb, cc, aa"]);
    translate("--to bb --from cc", &["does not read \"cc\"", "aa, bb"]);
    translate("--to bb --from bb", &["from bb into bb"]);
    workspace.succeed("translate run --input in --from bb --to cc");
    workspace.fail("evaluate run --to dd", &["does not translate into \"dd\""]);
    let mixed = "val.aa-bb+val.aa-cc+val.bb-aa";
    workspace.fail(format!("evaluate run --split {mixed}"), &["3 directions", "val.aa-cc"]);
    // If a split has several directions, other commands read only the text in the chosen direction.
    workspace.fail("tune run --to bb --split test.bb-aa", &["from aa into bb", "text of bb-aa"]);
    workspace.fail("align run --split test.aa-bb", &["choose one"]);
    let aligned = |options: &str| workspace.succeed(format!("align run --to bb {options}"));
    let links = aligned("--split test.aa-bb");
    let files = "--source data/test.aa --target data/test.bb";
    assert_eq!(aligned(files), links);
    assert_eq!(links.lines().count(), 12);
    assert_eq!(aligned(&format!("--split {mixed}")).lines().count(), 12);
    // The same run, which has both directions, serves as the model of the reverse direction.
    assert_ne!(aligned(&format!("{files} --reverse run --symmetrization union")), links);
    // In reranking, too, the run is the model of the reverse direction: it scores the source as a
    // translation of each candidate.
    let reranked = "translate run --input in --beam 3 --mbr 3 --n-best 3 --json \
         --set decoding.reranking.reverse=run --set decoding.reranking.utility_weight=0";
    let record = &json_lines(&workspace.succeed(format!("{reranked} --to bb")))[0];
    for one in record["translations"].as_array().expect("a list") {
        workspace.write("candidate", format!("{}\n", one["text"].as_str().expect("text")));
        let back = "score run --from bb --to aa --source candidate --target in --json";
        let back = &json_lines(&workspace.succeed(back))[0];
        let tokens = back["token_log_probabilities"].as_array().expect("a list").len();
        let expected = back["log_probability"].as_f64().expect("a number") / tokens as f64;
        let total = one["total"].as_f64().expect("a total");
        assert!((total - expected).abs() < 1e-4, "{total} and not {expected}: {one}");
    }
    workspace.fail(format!("{reranked} --to cc"), &["decoding.reranking.reverse", "cc"]);
    // A run of one direction accepts only its own target language.
    workspace.train("one");
    workspace.succeed("translate one --input in --to bb");
    workspace.fail("translate one --input in --to cc", &["does not translate into \"cc\"", "bb"]);
    let train = |setting: &str, fragments: &[&str]| {
        workspace.fail(format!("train many.toml --run new --set '{setting}'"), fragments);
    };
    train("data.languages.temperature=0.5", &["data.languages.temperature", "from 1"]);
    train(
        "data.test=[{stem=\"test\", from=\"aa\", to=\"dd\"}]",
        &["data.test", "from aa to dd", "add such a corpus"],
    );
    train("data.hold_out=5", &["data.hold_out", "each direction"]);
    train("data.bidirectional_epochs=1", &["data.bidirectional_epochs", "exchanged"]);
    let train = "data.train=[{stem=\"train\", from=\"aa\", to=\"bb\"}, \
                 {stem=\"none\", from=\"bb\", to=\"aa\"}]";
    let settings = format!("--set '{train}' --set data.test=[]");
    workspace.fail(format!("train many.toml --run new {settings}"), &["none.bb", "no such file"]);
    let text = Workspace::of_text();
    text.train("run");
    text.fail("generate run --to bb", &["language-model", "no languages"]);
}
