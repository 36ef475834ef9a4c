//! Taggers, and models that answer questions, describe images and compare them with texts: the
//! server's answers are those of `taper predict`.

use serde_json::{Value, json};
use taper_model::{ContrastiveModel, ImageCaptioner, SpanExtractor, TokenTagger};
use taper_run::image_text::{describe_images, match_images};
use taper_run::prediction::{QuestionInContext, predict_answers, predict_tags};
use taper_run::tasks::TaskModel;
use taper_run::{LoadSettings, LoadedRun};

use crate::common::{Running, frozen, trained};

fn loaded<M: TaskModel>(name: &str) -> LoadedRun<M> {
    LoadedRun::open(&trained().path(name), &LoadSettings::default()).expect("loaded")
}

#[test]
fn words_are_tagged() {
    let server = Running::start(vec![trained().path("tags"), frozen()]);
    let texts = ["mr stone sings in old town".to_owned(), "old stone".to_owned()];
    let expected = predict_tags(&loaded::<TokenTagger>("tags"), &texts, |_| {}).expect("tags");
    let found = server.post("/api/tag", &json!({ "text": texts })).expect(200);
    assert_eq!(found, json!({ "run": "tags", "texts": expected }));
    let found = server.post("/api/tag", &json!({ "text": texts.join("\r\n") })).expect(200);
    assert_eq!(found["texts"], json!(expected));
    assert_eq!(server.post("/api/tag", &json!({ "text": [] })).expect(200)["texts"], json!([]));
    server.post("/api/tag", &json!({ "text": "a", "run": "format-1" })).expect(422);
    server.post("/api/tag", &json!({ "words": "a" })).expect(400);
    server.post("/api/translate", &json!({ "text": "a", "run": "tags" })).expect(422);
    let runs = server.get("/api/runs").expect(200)["runs"].clone();
    assert_eq!(runs[0]["labels"], json!(["O", "B-PER", "B-LOC", "I-LOC"]));
}

#[test]
fn questions_are_answered() {
    let server = Running::start(vec![trained().path("questions")]);
    let question = |number: usize, id: Option<&str>| QuestionInContext {
        question: "amber?".to_owned(),
        context: format!("amber has {number}."),
        id: id.map(str::to_owned),
    };
    let asked = [question(23, Some("one")), question(41, None)];
    let run = loaded::<SpanExtractor>("questions");
    let expected = json!(predict_answers(&run, &asked, |_| {}).expect("answers"));
    let questions = json!([
        { "question": "amber?", "context": "amber has 23.", "id": "one" },
        { "question": "amber?", "context": "amber has 41." },
    ]);
    let found = server.post("/api/answer", &json!({ "questions": questions })).expect(200);
    assert_eq!(found, json!({ "run": "questions", "answers": expected }));
    let found = server.post("/api/answer", &questions[1]).expect(200);
    assert_eq!(found["answers"], json!([expected[1]]));
    for (asked, status, fragment) in [
        (json!({ "question": "amber?" }), 400, "expected `question` and `context`"),
        (json!({ "question": "amber?", "context": " " }), 422, "`context` is empty"),
        (json!({ "questions": [{ "question": "a" }] }), 400, "context"),
    ] {
        let message = server.post("/api/answer", &asked).expect(status)["error"].clone();
        assert!(message.as_str().expect("text").contains(fragment), "{asked}: {message}");
    }
}

#[test]
fn pictures_are_described_and_compared() {
    let server = Running::start(vec![trained().path("captions"), trained().path("matches")]);
    let file = trained().path("described.png");
    let pixels: Vec<u8> = (0..3 * 64).map(|at| (at * 37 % 251) as u8).collect();
    taper_data::write_png(&file, 8, 8, &pixels).expect("written");
    let bytes = std::fs::read(&file).expect("read");
    let files = [file];
    let send =
        |path: &str, bytes: &[u8]| server.send("POST", path, "Content-Type: image/png\r\n", bytes);
    let run = loaded::<ImageCaptioner>("captions");
    let expected = describe_images(&run, &files, |_| {}).expect("captions").remove(0);
    let found = send("/api/caption", &bytes).expect(200);
    let expected = expected.expect("a caption");
    assert_eq!(found, json!({ "run": "captions", "captions": [expected] }));
    let run = loaded::<ContrastiveModel>("matches");
    let told = |path: &str, prompts: &[String]| {
        let expected = match_images(&run, &files, prompts, |_| {}).expect("matched").remove(0);
        let expected = expected.expect("a label");
        let found = send(path, &bytes).expect(200)["predictions"][0].clone();
        assert_eq!(found["label"], expected.label.as_str());
        let probabilities: Vec<f64> = found["probabilities"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["probability"].as_f64().expect("a number"))
            .collect();
        assert_eq!(probabilities, expected.probabilities);
        found["probabilities"].as_array().expect("a list").clone()
    };
    let labels = told("/api/match?run=matches", &[]);
    assert_eq!(labels[1]["label"], "column");
    let prompts = ["a bright row".to_owned(), "this column".to_owned()];
    let texts = told("/api/match?text=a+bright+row&text=this%20column", &prompts);
    assert_eq!(texts[0]["label"], "a bright row");
    for (path, status) in [
        ("/api/match?text=", 400),
        ("/api/match?prompt=a", 400),
        ("/api/caption?text=a", 400),
        ("/api/caption?run=matches", 422),
    ] {
        send(path, &bytes).expect(status);
    }
    for path in ["/api/caption", "/api/match"] {
        let refused = send(path, &bytes[..bytes.len() / 2]).expect(422);
        assert!(refused["error"].as_str().expect("text").contains("the picture"), "{refused}");
        let kind = "Content-Type: text/plain\r\n";
        let refused: Value = server.send("POST", path, kind, b"x").expect(415);
        assert!(refused["error"].is_string());
    }
}
