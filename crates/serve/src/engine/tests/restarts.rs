//! Tests of a server that loads a run again after the run's thread has failed.

#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../../tests/serve/common.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Running, copied, frozen, lines, singly};
use serde_json::json;

use crate::app::App;
use crate::engine::labels::LabelTexts;
use crate::engine::work::{Answer, Job, Reply};
use crate::engine::{Engine, Waiting};
use crate::error::Refusal;
use crate::settings::ServeSettings;
use crate::{ServeEvent, Server};

/// Channel for an answer that panics when it is used, and so ends the thread of a run.
#[derive(Debug)]
struct FailingReply;

impl Reply for FailingReply {
    fn is_closed(&self) -> bool {
        panic!("the thread of the run fails");
    }

    fn send(self: Box<Self>, _answer: Result<Answer, Refusal>) {}
}

/// Ends the thread of a run by a request that fails. The request is heavier than all others. A
/// lighter request would be answered between the steps of a heavier one, which would then fail too.
fn fail(engine: &Engine) {
    let request = LabelTexts { texts: vec![String::new(); 4096] };
    let waiting = Waiting::new(&request, 1, &engine.load);
    let (request, reply) = (Box::new(request), Box::new(FailingReply));
    let job = Job { request, encoded: None, reply, waiting, since: Instant::now() };
    assert!(engine.queue.push(job));
}

/// Copies the translation run of [`frozen`] to `folder`, and starts a server of the copy. Its
/// observer panics at each event.
fn start(folder: &Path) -> (Running, Arc<App>) {
    let copy = copied(&frozen(), folder, "run");
    let observer = |event: &ServeEvent<'_>| panic!("the observer fails at {event:?}");
    let server = Server::start(ServeSettings::new(vec![copy]), Arc::new(observer));
    let server = server.expect("a server");
    let app = Arc::clone(&server.app);
    (Running::of(server), app)
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
fn a_run_whose_thread_has_failed_is_loaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, app) = start(folder.path());
    translates(&server, &lines()[0]);
    server.get("/health").expect(200);
    assert_eq!(server.counter("taper_up{"), 1.0);
    fail(&app.engines[0]);
    until(|| server.counter("taper_restarts_total") == 1.0);
    until(|| server.get("/health").status == 200);
    translates(&server, &lines()[0]);
    assert_eq!(server.counter("taper_up{"), 1.0);
    assert_eq!(server.counter("taper_restarts_total"), 1.0);
    assert_eq!(server.counter("taper_waiting_lines"), 0.0);
}

#[test]
fn while_a_run_cannot_be_loaded_its_clients_are_told_and_health_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, app) = start(folder.path());
    let (here, away) = (folder.path().join("run"), folder.path().join("away"));
    std::fs::rename(&here, &away).expect("moved");
    fail(&app.engines[0]);
    until(|| server.get("/health").status == 503);
    let health = server.get("/health").expect(503);
    assert_eq!(health["status"], "down");
    assert_eq!(health["down"][0]["run"], "run");
    // The reason that clients get has no advice to train a run, which they could not follow.
    let reason = || server.get("/health").expect(503)["down"][0]["reason"].to_string();
    until(|| reason().contains("no such run"));
    assert!(reason().ends_with("run: no such run\""), "{}", reason());
    let refused = server.post("/api/translate", &json!({ "text": "red cat" }));
    let error = refused.expect(503)["error"].as_str().expect("text").to_owned();
    assert!(error.contains("the run run has failed and is loaded again"), "{error}");
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    assert_eq!(server.counter("taper_up{"), 0.0);
    std::fs::rename(&away, &here).expect("moved back");
    until(|| server.get("/health").status == 200);
    translates(&server, &lines()[0]);
    assert_eq!(server.counter("taper_restarts_total"), 1.0);
}

#[test]
fn a_document_waits_for_its_run_to_be_loaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, app) = start(folder.path());
    let text: String =
        lines().iter().cycle().take(2000).map(|line| format!("{line}\n\n")).collect();
    let body = format!(
        "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.md\"\r\n\r\n{text}\r\n\
         --x--\r\n"
    );
    let head = "Content-Type: multipart/form-data; boundary=x\r\n";
    let sent = || server.send("POST", "/api/translate-file", head, body.as_bytes());
    let reply = std::thread::scope(|scope| {
        let reply = scope.spawn(sent);
        until(|| server.counter("taper_lines_total") > 0.0);
        fail(&app.engines[0]);
        reply.join().expect("an answer")
    });
    let found = reply.expect(200);
    assert_eq!(found["unchanged"], json!([]), "{found}");
    until(|| server.counter("taper_restarts_total") == 1.0);
}
