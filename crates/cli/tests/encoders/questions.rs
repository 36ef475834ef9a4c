//! Questions about texts: a model that answers with a span of the text learns to find the value of
//! a name. Answers, scores and refusals are checked.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{self, Workspace, json_lines, mentions, stdout};

const RECIPE: &str = r#"
task = "question-answering"
dtype = "f32"
[data]
dir = "data"
train = "train"
validation = "val"
test = ["test", "long"]
[data.questions]
unanswerable = true
max_tokens = 32
document_stride = 10
max_question_tokens = 6
max_answer_tokens = 4
[data.tokenizer]
kind = "bpe"
vocabulary_size = 330
[data.batching]
max_tokens = 1024
[model]
d_model = 64
d_ff = 128
heads = 4
encoder_layers = 2
activation = "gelu"
positions = "rotary"
scale_embeddings = false
embedding_dropout = 0.0
attention_dropout = 0.0
feed_forward_dropout = 0.0
residual_dropout = 0.0
[training]
max_updates = 800
validate_every = 400
label_smoothing = 0.0
[training.schedule]
kind = "cosine"
learning_rate = 3e-3
warmup = 100
"#;

const NAMES: [&str; 11] =
    ["amber", "azure", "black", "blüe", "brown", "coral", "green", "grey", "ivory", "olive", "红"];

/// Returns a split as JSON, with texts such as "amber has 12. green has 37." Each text has a
/// question for each of its names, and a question without an answer, for a name that is not in it.
/// A text has `least` to `most` names.
fn split(seed: u64, paragraphs: u64, least: u64, most: u64) -> String {
    let mut state = seed;
    let mut draw = |count: u64| {
        // Knuth's linear congruential generator, so that splits differ.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % count
    };
    let mut paragraph = |number: u64| {
        let mut names = NAMES.to_vec();
        for at in (1..names.len()).rev() {
            names.swap(at, draw(at as u64 + 1) as usize);
        }
        names.truncate((least + draw(most + 1 - least)) as usize + 1);
        let absent = names.pop().expect("a name");
        let (mut context, mut asked) = (String::new(), Vec::new());
        for name in names {
            let value = (10 + draw(90)).to_string();
            let start = context.chars().count() + format!("{name} has ").chars().count();
            context += &format!("{name} has {value}. ");
            asked.push(json!({
                "id": format!("{number}-{name}"), "question": format!("{name}?"),
                "answers": [{ "text": value, "answer_start": start }],
            }));
        }
        asked.push(json!({
            "id": format!("{number}-{absent}"), "question": format!("{absent}?"), "answers": [],
            "is_impossible": true,
        }));
        json!({ "context": context.trim_end(), "qas": asked })
    };
    let paragraphs: Vec<Value> = (0..paragraphs).map(&mut paragraph).collect();
    json!({ "version": "2.0", "data": [{ "title": "", "paragraphs": paragraphs }] }).to_string()
}

/// Writes the recipe and the splits. The texts of the split `long` are read in several windows.
fn workspace() -> Workspace {
    let workspace = Workspace::of_text();
    workspace.write("questions.toml", RECIPE);
    for (name, seed, count, least, most) in [
        ("train", 1, 1500, 2, 4),
        ("val", 2, 50, 2, 4),
        ("test", 3, 150, 2, 4),
        ("long", 4, 40, 7, 8),
    ] {
        workspace.write(&format!("data/{name}.json"), split(seed, count, least, most));
    }
    workspace
}

#[test]
fn the_value_behind_a_key_is_found() {
    let workspace = workspace();
    mentions(workspace.succeed("train questions.toml --run run"), &["exact match"]);
    let json = workspace.succeed("evaluate run --json");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    let [test, long] = [0, 1].map(|at| &record["results"][at]);
    let number = |of: &Value| of.as_f64().expect("a number");
    assert!(number(&test["exact_match"]) >= 99.0 && number(&test["f1"]) >= 99.0, "{json}");
    assert!(number(&test["without_answer"]["exact_match"]) >= 99.0, "{json}");
    assert_eq!(test["without_answer"]["questions"], 150);
    // Texts are read in windows of 32 tokens, and training had no windows so far from the beginning
    // of a text.
    assert!(number(&long["with_answer"]["exact_match"]) > 85.0, "{json}");
    let said = workspace.succeed("evaluate run --split test");
    mentions(&said, &["has none     exact match", "of 150 questions"]);

    let context = "红 has 73. blüe has 41. olive has 68.";
    let line = |question: &str| json!({ "question": question, "context": context, "id": question });
    let input =
        ["blüe?", "红?", "grey?"].map(|question| line(question).to_string() + "\n").concat();
    let told = stdout(&workspace.run_with_input("predict run --json", input.as_bytes()));
    let found = json_lines(&told);
    let answer = |at: usize| (found[at]["answer"].as_str(), found[at]["start"].as_u64());
    assert_eq!((answer(0), answer(1)), ((Some("41"), Some(19)), (Some("73"), Some(6))), "{told}");
    assert_eq!((answer(2), &found[2]["end"]), ((Some(""), None), &Value::Null), "{told}");
    assert_eq!((&found[0]["end"], &found[0]["id"]), (&21.into(), &"blüe?".into()));
    assert!(found.iter().all(|one| number(&one["probability"]) > 0.5), "{told}");
    let told = stdout(&workspace.run_with_input("predict run", input.as_bytes()));
    assert!(told.starts_with("41\t0.") || told.starts_with("41\t1."), "{told}");

    for (line, said) in [
        ("{\"question\": \"a\"}", "line 1: expected {\"question\""),
        ("{\"question\": \"a\"}", "missing field `context`"),
        ("{\"question\": \"a\", \"context\": \" \"}", "line 1: \"context\" is empty"),
        ("{\"question\": \"a\", \"context\": \"b\", \"ids\": 1}", "unknown field `ids`"),
        ("blue?", "line 1: expected {\"question\""),
    ] {
        common::refused(&workspace.run_with_input("predict run", line.as_bytes()), &[said]);
    }
    workspace.fail("export run folder", &["cannot be exported as a BERT", "model."]);
    workspace.fail("attention run red", &["runs that answer questions"]);
    workspace.fail("generate run", &["task is question-answering", "taper predict"]);
    workspace.fail(
        "train questions.toml --run refused --set data.questions.unanswerable=false",
        &["train.json: article 1, paragraph 1: question", "data.questions.unanswerable = true"],
    );
    workspace.fail(
        "train questions.toml --run refused --set data.questions.max_tokens=9",
        &["data.questions.max_tokens", "at least 10"],
    );
}

#[test]
fn a_reader_of_spans_resumes_and_begins_with_a_masked_model() {
    let workspace = workspace();
    let train = "train questions.toml --set training.validate_every=20 \
         --set training.schedule.kind=constant";
    workspace.succeed(format!("{train} --set training.max_updates=40 --run whole"));
    workspace.succeed(format!("{train} --set training.max_updates=20 --run parts"));
    workspace.succeed("resume parts --set training.max_updates=40");
    workspace.same_end("whole", "parts", 40);
    let shown = workspace.succeed("inspect whole");
    assert!(shown.contains("span.weight") && !shown.contains("pooler"), "{shown}");

    let (begin, rest) = RECIPE.split_once("[data]").expect("a section");
    let (_, model) = rest.split_once("[data.tokenizer]").expect("a section");
    let data = "[data]\ndir = \"data\"\ntrain = \"text\"\nvalidation = \"\"\ntest = \"\"\n[data.text]\n\
                block_length = 24\n[data.tokenizer]";
    let masked =
        format!("{begin}{data}{model}").replace("question-answering", "masked-language-model");
    workspace.write("masked.toml", masked.replace("cosine", "constant"));
    workspace.succeed("train masked.toml --run masked --set training.max_updates=6");
    let from = "--set training.max_updates=4 --run from --from masked";
    let trained = workspace.run(format!("{train} {from}"));
    let shown = stdout(&trained) + &common::stderr(&trained);
    assert!(trained.status.success() && shown.contains("drawn      span.weight"), "{shown}");
}

#[test]
fn a_bert_for_questions_goes_in_and_out() {
    let workspace = workspace();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/golden/bert-spans");
    let said = workspace.succeed(format!("import {} bert", folder.to_str().expect("a path")));
    mentions(&said, &["taper predict bert < QUESTIONS"]);
    let line = json!({ "question": "Nothing?", "context": "The seagulls sail on." }).to_string();
    let told = stdout(&workspace.run_with_input("predict bert --json", line.as_bytes()));
    let found: Value = serde_json::from_str(&told).expect("JSON");
    let ends = ["start", "end"].map(|end| found[end].as_u64().expect("a number") as usize);
    assert_eq!(found["answer"], "The seagulls sail on."[ends[0]..ends[1]]);
    workspace.succeed("export bert out");
    let weights = |folder: &Path| fs::read(folder.join("model.safetensors")).expect("weights");
    assert!(weights(&folder) == weights(&workspace.path("out")), "the weights differ");
}
