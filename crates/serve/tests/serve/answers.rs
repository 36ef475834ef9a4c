//! Answers of the page and the API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::{Running, frozen, lines, singly, trained};

#[test]
fn each_line_is_translated_as_it_is_alone() {
    let server = Running::start(vec![frozen()]);
    let (lines, expected) = (lines(), singly(&lines()));
    let found = server.post("/api/translate", &json!({ "text": lines })).expect(200);
    assert_eq!(found["run"], "format-1");
    let texts: Vec<&str> = found["translations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| line["translations"][0]["text"].as_str().expect("text"))
        .collect();
    assert_eq!(texts, expected);
    // The same lines are sent as one text, with an empty line between them, which stays empty.
    let text = format!("{}\n\n{}", lines[0], lines[1]);
    let found = server.post("/api/translate", &json!({ "text": text })).expect(200);
    let found = found["translations"].as_array().expect("a list");
    let best = |line: &Value| line["translations"][0]["text"].as_str().expect("text").to_owned();
    assert_eq!(found.iter().map(best).collect::<Vec<_>>(), [&expected[0], "", &expected[1]]);
    let found = server.post("/api/translate", &json!({ "text": [] })).expect(200);
    assert_eq!(found["translations"], json!([]));
}

#[test]
fn alternatives_come_best_first_and_tokens_are_aligned() {
    let server = Running::start(vec![frozen()]);
    let line = &lines()[0];
    let asked = json!({ "text": [line], "alternatives": 4, "beam": 6, "alignment": true });
    let found = server.post("/api/translate", &asked).expect(200);
    let found = found["translations"][0]["translations"].as_array().expect("a list").clone();
    assert_eq!(found.len(), 4);
    let scores: Vec<f64> = found.iter().map(|one| one["score"].as_f64().expect("score")).collect();
    assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    for one in &found {
        let strings = |value: &Value| -> Vec<String> {
            serde_json::from_value(value.clone()).expect("strings")
        };
        let alignment = &one["alignment"];
        let (source, target) = (strings(&alignment["source"]), strings(&alignment["target"]));
        // The parts of the text, one for each token, add up to the text.
        assert_eq!(source.concat().trim(), line.trim());
        assert_eq!(target.concat().trim(), one["text"].as_str().expect("text"));
        let weights: Vec<Vec<f64>> =
            serde_json::from_value(alignment["weights"].clone()).expect("weights");
        assert_eq!(weights.len(), target.len());
        let probabilities: Vec<f64> =
            serde_json::from_value(alignment["probabilities"].clone()).expect("probabilities");
        assert_eq!(probabilities.len(), target.len());
        assert!(probabilities.iter().all(|one| (0.0..=1.0).contains(one)), "{probabilities:?}");
        for row in weights {
            assert_eq!(row.len(), source.len());
            let sum: f64 = row.iter().sum();
            assert!(sum > 0.0 && sum <= 1.0 + 1e-3 * row.len() as f64, "{sum}");
        }
    }
    let asked = json!({ "text": line, "target": found[0]["text"] });
    let map = server.post("/api/attention", &asked).expect(200);
    assert_eq!(map["translation"], found[0]["text"]);
    let parts: BTreeSet<&str> = map["layers"]
        .as_array()
        .expect("layers")
        .iter()
        .map(|layer| layer["part"].as_str().expect("a part"))
        .collect();
    assert_eq!(parts, BTreeSet::from(["cross", "decoder", "encoder"]));
    // If the request has no target, the model's own translation is used.
    let own = server.post("/api/attention", &json!({ "text": line })).expect(200);
    assert_eq!(own["translation"], singly(std::slice::from_ref(line))[0].as_str());
}

#[test]
fn a_translation_goes_on_from_a_prefix_and_has_its_terms() {
    let server = Running::start(vec![frozen()]);
    let line = &lines()[0];
    let asked = json!({ "text": [line], "alternatives": 4 });
    let found = server.post("/api/translate", &asked).expect(200);
    let text = |found: &Value, rank: usize| -> String {
        found["translations"][0]["translations"][rank]["text"].as_str().expect("text").to_owned()
    };
    let (best, other) = (text(&found, 0), text(&found, 3));
    let begin = other.split(' ').next().expect("a word");
    for prefix in [begin, best.as_str()] {
        let asked = json!({ "text": [line], "alternatives": 2, "prefix": prefix });
        let found = server.post("/api/translate", &asked).expect(200);
        assert!((0..2).all(|rank| text(&found, rank).starts_with(prefix)), "{prefix}: {found}");
    }
    let refused = |asked: Value, status: u16| server.post("/api/translate", &asked).expect(status);
    refused(json!({ "text": "a\nb", "prefix": begin }), 422);
    refused(json!({ "text": line, "prefix": "Ü" }), 422);

    // Terms require words in the translation: one of these words, which the best translation lacks,
    // must be accepted as a term and occur in the answer.
    let word = line.split(' ').next().expect("a word");
    let goal = ["house", "two", "big", "red", "here"].into_iter().find(|goal| {
        let asked = json!({ "text": line, "terms": { word: goal } });
        let answer = server.post("/api/translate", &asked);
        !best.contains(goal) && answer.status == 200 && text(&answer.expect(200), 0).contains(goal)
    });
    assert!(goal.is_some(), "{best}");
    let many: serde_json::Map<String, Value> =
        (0..300).map(|number| (format!("a{number}"), "b".into())).collect();
    refused(json!({ "text": line, "terms": many }), 413);
    refused(json!({ "text": line, "terms": { "a\tb": "c" } }), 422);
    refused(json!({ "text": line, "terms": { "a": "Ü" } }), 422);
}

#[test]
fn a_language_model_goes_on_whole_and_by_pieces() {
    let server = Running::start(vec![trained().path("text")]);
    let asked = json!({ "prompt": "the quick", "max_tokens": 40, "temperature": 0 });
    let whole = server.post("/api/generate", &asked).expect(200);
    let text = whole["texts"][0]["text"].as_str().expect("text").to_owned();
    assert_eq!(whole["texts"][0]["tokens"], 40);
    assert_eq!(whole["texts"][0]["truncated"], true);
    assert_eq!(whole["texts"][0]["finish_reason"], "length");
    assert!(text.starts_with(" brown fox"), "{text}");
    let mut streamed = asked.clone();
    streamed["stream"] = true.into();
    let reply = server.post("/api/generate", &streamed);
    assert!(reply.head.contains("content-type: text/event-stream"), "{}", reply.head);
    let events = reply.events();
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let (last, pieces) = events.split_last().expect("events");
    assert!(pieces.len() > 10, "{events:?}");
    let pieced: String = pieces.iter().map(|one| one["text"].as_str().expect("text")).collect();
    assert_eq!(pieced, text);
    assert_eq!(last["texts"][0]["text"], text.as_str());
    // A stop text that spans several pieces ends the text, and is not sent.
    let mut stopped = streamed.clone();
    stopped["stop"] = json!(["fox,"]);
    let events = server.post("/api/generate", &stopped).events();
    let pieced: String = events
        .iter()
        .filter_map(|event| {
            let event: Value = serde_json::from_str(event).expect("JSON");
            event.get("text").map(|text| text.as_str().expect("text").to_owned())
        })
        .collect();
    assert_eq!(pieced, " brown ");
    // The log-probability of the stopped text is that of a text that ends after the same number of
    // tokens because `max_tokens` is 7.
    stopped["stream"] = false.into();
    let stopped = server.post("/api/generate", &stopped).expect(200)["texts"][0].clone();
    let cut = json!({ "prompt": "the quick", "max_tokens": 7, "temperature": 0 });
    let cut = server.post("/api/generate", &cut).expect(200)["texts"][0].clone();
    assert_eq!((&stopped["text"], &stopped["tokens"]), (&cut["text"], &cut["tokens"]));
    let number = |of: &Value| of["log_probability"].as_f64().expect("a number");
    assert!((number(&stopped) - number(&cut)).abs() < 1e-9, "{stopped} {cut}");
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!((&stopped["stop_reason"], &cut["stop_reason"]), (&"fox,".into(), &Value::Null));
    // Special tokens in a prompt are read as such if the request says so.
    let spelled = |rule: &str| {
        let asked = json!({ "prompt": "the</s>", "max_tokens": 3, "special_tokens": rule });
        server.post("/api/generate", &asked)
    };
    assert_eq!(spelled("read").status, 200);
    let refused = spelled("refuse").expect(422);
    assert!(refused["error"].as_str().expect("text").contains("</s>"), "{refused}");
    assert!(spelled("warn").expect(400)["error"].as_str().expect("text").contains("refuse"));
    // Sampling with a seed gives the same text, whatever other requests there are; without a seed,
    // texts differ.
    let draw = |seed: Option<u64>| {
        let asked = json!({
            "prompt": "the", "max_tokens": 30, "temperature": 2.0, "seed": seed, "samples": 3,
        });
        server.post("/api/generate", &asked).expect(200)["texts"].clone()
    };
    assert_eq!(draw(Some(7)), draw(Some(7)));
    assert_ne!(draw(Some(7)), draw(Some(8)));
    assert_ne!(draw(None), draw(None));
    let beginning = server.post("/api/generate", &json!({ "max_tokens": 5 })).expect(200);
    assert_eq!(beginning["texts"][0]["tokens"], 5);
    // A prompt that the tokenizer cannot read is reported, in a stream too.
    for stream in [false, true] {
        let asked = json!({ "prompt": "日本", "stream": stream });
        let refused = server.post("/api/generate", &asked).expect(422);
        assert!(refused["error"].as_str().expect("text").contains("never seen"), "{refused}");
    }
}

#[test]
fn texts_and_pictures_are_labelled() {
    let server = Running::start(vec![trained().path("reviews"), trained().path("shapes")]);
    let asked = json!({ "text": ["red birds sing 2", "old stones fall 3", "red birds sing 4"] });
    let found = server.post("/api/classify", &asked).expect(200);
    let found = found["predictions"].as_array().expect("a list");
    let labels: Vec<&str> = found.iter().map(|one| one["label"].as_str().expect("label")).collect();
    assert_eq!(labels, ["yes", "no", "yes"]);
    for one in found {
        let sum: f64 = one["probabilities"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["probability"].as_f64().expect("a number"))
            .sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }
    // The model was trained on single texts, so a pair of texts gets a warning.
    let asked = json!({ "text": ["red birds sing 2", "old stones\tfall 3"] });
    let told = server.post("/api/classify", &asked).expect(200);
    assert!(told["warning"].as_str().expect("a warning").contains("text 2 has a tab"), "{told}");
    let file = trained().path("picture.png");
    taper_data::write_png(&file, 8, 8, &[90; 3 * 64]).expect("written");
    let bytes = std::fs::read(&file).expect("read");
    let kind = "Content-Type: image/png\r\n";
    let found = server.send("POST", "/api/classify-image", kind, &bytes).expect(200);
    assert!(["row", "column"].contains(&found["predictions"][0]["label"].as_str().expect("label")));
    let cut = &bytes[..bytes.len() / 2];
    let refused = server.send("POST", "/api/classify-image", kind, cut).expect(422);
    assert!(refused["error"].as_str().expect("text").contains("the picture"), "{refused}");
}

#[test]
fn words_are_weighed_by_what_the_label_is_without_them() {
    let server = Running::start(vec![trained().path("reviews")]);
    let yes = |text: &str| {
        let found = server.post("/api/classify", &json!({ "text": [text] })).expect(200);
        found["predictions"][0]["probabilities"][1]["probability"].as_f64().expect("a number")
    };
    let log_odds = |probability: f64| (probability / (1.0 - probability)).ln();
    let text = "red birds sing 2";
    let found = server.post("/api/occlusion", &json!({ "text": text })).expect(200);
    assert_eq!(found["label"], "yes");
    let words = found["words"].as_array().expect("a list");
    let texts: Vec<&str> = words.iter().filter_map(|word| word["text"].as_str()).collect();
    assert_eq!(texts, ["red", " birds", " sing", " 2"]);
    // `without` is the probability of the label if the word, here the last, is left out.
    let without = words[3]["without"].as_f64().expect("a number");
    assert!((without - yes("red birds sing")).abs() < 1e-6, "{found}");
    let evidence = words[3]["evidence"].as_f64().expect("a number");
    assert!((evidence - (log_odds(yes(text)) - log_odds(without))).abs() < 0.05, "{found}");
    // A text of a single word is answered too: without this word, only special tokens remain.
    let alone = server.post("/api/occlusion", &json!({ "text": "red" })).expect(200);
    assert_eq!(alone["words"].as_array().expect("a list").len(), 1);
    server.post("/api/occlusion", &json!({ "text": " " })).expect(422);
    server.post("/api/occlusion", &json!({ "text": "one\ntwo" })).expect(422);
}

#[test]
fn the_description_is_of_what_is_served() {
    let server = Running::start(vec![frozen()]);
    let described = server.get("/openapi.json").expect(200);
    let paths = described["paths"].as_object().expect("paths");
    assert!(paths.len() > 10, "{}", paths.len());
    for (path, methods) in paths {
        let path = path.replace("{model}", "none").replace("{name}", "none");
        for method in methods.as_object().expect("methods").keys() {
            let reply = server.send(&method.to_uppercase(), &path, "", b"");
            assert!(reply.status != 405, "{method} {path}");
            let is_missing = reply.text().contains("nothing is served here");
            assert!(!is_missing, "{method} {path}");
            let answers = &methods[method]["responses"];
            let status = reply.status.to_string();
            assert!(answers.get(&status).is_some(), "{method} {path}: {status} is not described");
        }
        for method in ["GET", "POST", "PUT", "DELETE"] {
            if methods.get(method.to_lowercase()).is_none() {
                server.send(method, &path, "", b"").expect(405);
            }
        }
    }
    server.get("/api/nothing").expect(404);
}

#[test]
fn what_is_served_is_told() {
    let server = Running::start(vec![frozen(), trained().path("text"), trained().path("reviews")]);
    let found = server.get("/api/runs").expect(200);
    let runs = found["runs"].as_array().expect("runs");
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().expect("name")).collect();
    assert_eq!(names, ["format-1", "text", "reviews"]);
    assert_eq!(runs[0]["translation"]["aligns"], true);
    assert_eq!(runs[1]["context"], 24);
    assert_eq!(runs[2]["labels"], json!(["no", "yes"]));
    assert!(runs[0]["parameters"].as_u64().expect("a number") > 1000);
    // A run serves only its own task.
    let asked = json!({ "run": "text", "text": "a" });
    let refused = server.post("/api/translate", &asked).expect(422);
    assert!(refused["error"].as_str().expect("text").contains("goes on"), "{refused}");
    server.post("/api/translate", &json!({ "run": "none", "text": "a" })).expect(404);
}
