//! Survival of the server: unreadable texts, clients that leave, long requests and observers that
//! fail do not affect other requests.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taper_serve::{Limits, ServeEvent, ServeSettings};

use crate::common::{Reply, Running, frozen, lines, singly, train, trained};

const JSON: &str = "Content-Type: application/json\r\n";

/// Returns a request that takes far longer than all tests together, unless its client leaves.
fn endless() -> Value {
    let text = (0..8).map(|line| format!("{line} {}", "big cat ".repeat(240))).collect::<Vec<_>>();
    json!({ "text": text, "beam": 16, "alternatives": 16 })
}

fn settings(change: impl FnOnce(&mut Limits)) -> ServeSettings {
    let mut settings = ServeSettings::new(vec![frozen()]);
    change(&mut settings.limits);
    settings
}

/// Sends a request, whose answer is not read yet.
fn begin(server: &Running, value: &Value) -> TcpStream {
    let mut stream = server.connect();
    let body = value.to_string();
    stream.write_all(&server.bytes("POST", "/api/translate", JSON, body.as_bytes())).expect("sent");
    stream
}

/// Sends a request, and waits until it is being computed.
fn begin_and_wait(server: &Running, value: &Value) -> TcpStream {
    let before = server.counter("taper_queue_seconds_count");
    let stream = begin(server, value);
    until(|| server.counter("taper_queue_seconds_count") > before);
    stream
}

/// Waits until `has_come` returns `true`; panics after two minutes.
fn until(has_come: impl Fn() -> bool) {
    let begun = Instant::now();
    while !has_come() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not come to pass");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that the server translates as `taper translate` does.
fn translates(server: &Running, line: &str) {
    let found = server.post("/api/translate", &json!({ "text": [line] })).expect(200);
    let text = found["translations"][0]["translations"][0]["text"].as_str().expect("text");
    assert_eq!(text, singly(&[line.to_owned()])[0]);
}

#[test]
fn short_work_goes_before_long_work_and_long_work_is_not_changed_by_that() {
    let server = Running::start(vec![frozen()]);
    let long = begin_and_wait(&server, &endless());
    for line in lines().iter().take(8) {
        translates(&server, line);
    }
    // All of these lines were translated while the long request was being computed.
    drop(long);
    until(|| server.counter("taper_waiting_lines") == 0.0);
    // While a request of medium length is computed, other requests are answered between its steps.
    let middling: Vec<String> = lines().into_iter().cycle().take(120).collect();
    let stream = begin_and_wait(&server, &json!({ "text": middling, "beam": 3 }));
    for line in lines().iter().take(8) {
        translates(&server, line);
    }
    let mut stream = stream;
    let found = Reply::read(&mut stream).expect(200);
    for (answer, line) in found["translations"].as_array().expect("a list").iter().zip(&middling) {
        assert_eq!(answer["source"], json!(line));
    }
    let expected = singly(&middling);
    let texts: Vec<&str> = found["translations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|answer| answer["translations"][0]["text"].as_str().expect("text"))
        .collect();
    assert_eq!(texts, expected);
}

#[test]
fn short_work_goes_before_long_work_of_one_of_several_runs() {
    // Each of several runs has its own threads, and a search with many rows divides them again.
    let server = Running::start(vec![frozen(), trained().path("text")]);
    let lines: Vec<String> = lines().into_iter().cycle().take(200).collect();
    let mut long = begin_and_wait(&server, &json!({ "text": lines, "beam": 16 }));
    for line in lines.iter().take(8) {
        translates(&server, line);
    }
    let found = Reply::read(&mut long).expect(200);
    assert_eq!(found["translations"].as_array().expect("a list").len(), lines.len());
    assert_eq!(server.counter("taper_restarts_total"), 0.0);
}

#[test]
fn work_of_clients_that_leave_ends_between_two_steps() {
    let server = Running::start(vec![frozen()]);
    let leavers: Vec<TcpStream> = (0..2).map(|_| begin(&server, &endless())).collect();
    until(|| server.counter("taper_queue_seconds_count") > 0.0);
    drop(leavers);
    until(|| server.counter("taper_abandoned_total") == 2.0);
    // The computation of at least one of the two requests was ended before its end.
    assert!(server.counter("taper_cut_short_total") >= 1.0);
    assert_eq!(server.counter("taper_waiting_lines"), 0.0);
    assert_eq!(server.counter("taper_lines_total"), 0.0, "no line of theirs was finished");
    translates(&server, &lines()[0]);
}

#[test]
fn a_time_limit_ends_the_work_and_not_only_the_waiting() {
    // This language model answers with a whole text, not with a stream.
    let mut settings = ServeSettings::new(vec![trained().path("text")]);
    settings.limits.answer = Duration::from_millis(700);
    settings.limits.new_tokens = 10_000_000;
    let server = Running::with(settings);
    let asked = json!({ "prompt": "the", "max_tokens": 10_000_000, "temperature": 0.0 });
    server.post("/api/generate", &asked).expect(504);
    until(|| server.counter("taper_cut_short_total") == 1.0);
}

#[test]
fn short_work_goes_before_the_scores_of_a_long_prompt_and_a_time_limit_ends_them() {
    let mut settings = ServeSettings::new(vec![trained().path("text")]);
    settings.limits.answer = Duration::from_secs(2);
    settings.limits.tokens = 200_000;
    let server = Running::with(settings);
    let prompt = "the quick brown fox ".repeat(10_000);
    let asked = json!({
        "model": "text", "prompt": prompt, "max_tokens": 1, "logprobs": 5, "echo": true,
    });
    let mut long = server.connect();
    let body = asked.to_string();
    long.write_all(&server.bytes("POST", "/v1/completions", JSON, body.as_bytes())).expect("sent");
    until(|| server.counter("taper_queue_seconds_count") > 0.0);
    while server.counter("taper_waiting_lines") > 0.0 {
        let short = json!({ "prompt": "the", "max_tokens": 1 });
        server.post("/api/generate", &short).expect(200);
    }
    assert_eq!(Reply::read(&mut long).status, 504);
    assert_eq!(server.counter("taper_cut_short_total"), 1.0);
}

#[test]
fn long_work_takes_no_place_from_short_work_in_the_queue() {
    let server = Running::with(settings(|limits| limits.queue = 20));
    let long = begin_and_wait(&server, &endless());
    let refused = server.post("/api/translate", &endless());
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    translates(&server, &lines()[0]);
    drop(long);
    until(|| server.counter("taper_waiting_lines") == 0.0);
}

#[test]
fn a_text_that_the_tokenizer_cannot_read_is_refused_and_ends_nothing() {
    // The pattern of this tokenizer makes its search backtrack almost without end.
    let folder = tempfile::tempdir().expect("a folder");
    let from = trained().path("text").join("tokenizer.json");
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(from).expect("read")).expect("JSON");
    let split = json!({
        "type": "Split", "pattern": { "Regex": "(a+)+$" }, "behavior": "Isolated", "invert": false,
    });
    let mut parts = vec![split];
    parts.extend(Some(file["pre_tokenizer"].clone()).filter(|own| !own.is_null()));
    file["pre_tokenizer"] = json!({ "type": "Sequence", "pretokenizers": parts });
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, file.to_string()).expect("written");
    let own = include_str!("text.toml")
        .replace("kind = \"char\"", &format!("path = {:?}", path.to_string_lossy()));
    let run = folder.path().join("endless");
    train(&own, &trained().path("data"), &run);
    let server = Running::start(vec![run]);
    for text in [format!("{}!", "a".repeat(60)), format!("the {}7", "a".repeat(16_000))] {
        let asked = json!({ "prompt": text, "max_tokens": 4 });
        let error = server.post("/api/generate", &asked).expect(422);
        let error = error["error"].as_str().expect("text");
        assert!(error.contains("retry-limit-in-match over"), "{error}");
    }
    let asked = json!({ "prompt": "the lazy dogs", "max_tokens": 4 });
    server.post("/api/generate", &asked).expect(200);
    server.get("/health").expect(200);
    assert_eq!(server.counter("taper_panics_total"), 0.0);
    assert_eq!(server.counter("taper_restarts_total"), 0.0);
}

#[test]
fn an_observer_that_fails_harms_no_request() {
    let server = Running::observed(
        ServeSettings::new(vec![frozen()]),
        Arc::new(|event: &ServeEvent<'_>| panic!("the observer fails at {event:?}")),
    );
    translates(&server, &lines()[0]);
    // If the client leaves, its request is dropped from a batch, even if other requests are being
    // answered between the steps of its search.
    let leaver = begin_and_wait(&server, &endless());
    translates(&server, &lines()[1]);
    let light = begin(&server, &json!({ "text": lines() }));
    drop((leaver, light));
    translates(&server, &lines()[2]);
    until(|| server.counter("taper_abandoned_total") >= 1.0);
    until(|| server.counter("taper_waiting_lines") == 0.0);
    translates(&server, &lines()[3]);
    server.get("/health").expect(200);
    assert_eq!(server.counter("taper_restarts_total"), 0.0);
    assert_eq!(server.counter("taper_panics_total"), 0.0);
}
