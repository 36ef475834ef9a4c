//! Requests that must be refused and must do no harm. They are garbage, too large or too slow, or
//! come from clients that leave or from strangers.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taper_serve::{Limits, ServeSettings};

use crate::common::{Reply, Running, frozen, lines, singly, trained};

const JSON: &str = "Content-Type: application/json\r\n";

fn limited(change: impl FnOnce(&mut Limits)) -> Running {
    let mut settings = ServeSettings::new(vec![frozen()]);
    change(&mut settings.limits);
    Running::with(settings)
}

/// Checks that the server still translates.
fn lives(server: &Running) {
    let line = lines().remove(0);
    let found = server.post("/api/translate", &json!({ "text": [line] })).expect(200);
    let text = found["translations"][0]["translations"][0]["text"].as_str().expect("text");
    assert_eq!(text, singly(&[line])[0]);
}

#[test]
fn what_is_not_asked_for_is_refused_with_what_is() {
    let server = Running::start(vec![frozen()]);
    let says = |reply: Reply, status: u16, fragment: &str| {
        let error = reply.expect(status)["error"].as_str().expect("text").to_owned();
        assert!(error.contains(fragment), "{error}");
    };
    let post = |body: &str| server.send("POST", "/api/translate", JSON, body.as_bytes());
    says(post("{"), 400, "JSON");
    says(post(r#"{"txt": "a"}"#), 400, "unknown field `txt`");
    says(post(r#"{"text": 7}"#), 400, "a string, or a list of strings");
    says(post(r#"{"text": "a", "alternatives": 0}"#), 422, "alternatives must be from 1 to 16");
    says(post(r#"{"text": "a", "beam": 1000000}"#), 422, "beam must be from 1 to 16");
    says(post(r#"{"text": "a", "beam": 2, "alternatives": 3}"#), 422, "as many as the beam");
    says(post(r#"{"text": "a", "length_penalty": -1}"#), 422, "length_penalty");
    says(post(r#"{"text": ["a\nb"]}"#), 422, "line break");
    let plain = server.send("POST", "/api/translate", "Content-Type: text/plain\r\n", b"{}");
    says(plain, 415, "application/json");
    says(server.send("POST", "/api/translate", JSON, b"{\"text\": \"\xff\"}"), 400, "JSON");
    says(server.get("/api/translate"), 405, "method");
    says(server.get("/favicon.ico"), 404, "nothing is served here");
    says(post(r#"{"run": "text", "text": "a"}"#), 404, "no run is named");
    lives(&server);
}

#[test]
fn there_is_only_so_much_of_a_request() {
    let server = limited(|limits| {
        limits.lines = 4;
        limits.tokens = 30;
        limits.attention_tokens = 10;
        limits.body_bytes = 2000;
    });
    let post = |value: Value| server.post("/api/translate", &value);
    post(json!({ "text": ["a", "b", "c", "d"] })).expect(200);
    post(json!({ "text": ["a", "b", "c", "d", "e"] })).expect(413);
    post(json!({ "text": "red cat ".repeat(40) })).expect(413);
    let asked = json!({ "text": "red cat sees two big dogs run here ".repeat(2) });
    server.post("/api/attention", &asked).expect(413);
    // A body that is too long is refused, whether its length is announced or not.
    post(json!({ "text": "a".repeat(3000) })).expect(413);
    let mut stream = server.connect();
    let head = format!(
        "POST /api/translate HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{JSON}\
         Transfer-Encoding: chunked\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let chunk = format!("200\r\n{}\r\n", "x".repeat(0x200));
    for _ in 0..5 {
        // The server may have answered and closed the connection.
        let _ = stream.write_all(chunk.as_bytes());
    }
    assert_eq!(Reply::read(&mut stream).status, 413);
    lives(&server);
}

#[test]
fn garbage_ends_nothing_but_its_own_connection() {
    let server = limited(|limits| limits.transfer = Duration::from_millis(300));
    let valid = server.bytes("POST", "/api/translate", JSON, br#"{"text": "red cat"}"#);
    let mut garbage: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"POST /api/translate HTTP/1.1\r\nContent-Length: -5\r\n\r\n".to_vec(),
        b"POST /api/translate HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabc"
            .to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000)).into_bytes(),
        format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(500)).into_bytes(),
        vec![0; 4096],
    ];
    // For every tenth byte of the valid request, adds the request cut off before this byte, and the
    // whole request with this byte changed.
    for at in (1..valid.len()).step_by(10) {
        garbage.push(valid[..at].to_vec());
        let mut changed = valid.clone();
        changed[at] ^= 0x5a;
        garbage.push(changed);
    }
    let mut streams = Vec::new();
    for bytes in garbage {
        let mut stream = server.connect();
        let _ = stream.write_all(&bytes);
        streams.push(stream);
    }
    for mut stream in streams {
        let mut answer = Vec::new();
        // The connection ends after an answer, or when the server's time limit has passed.
        let _ = stream.read_to_end(&mut answer);
        if let Some(status) = answer.strip_prefix(b"HTTP/1.1 ") {
            let status = String::from_utf8_lossy(&status[..3]).into_owned();
            assert!(status.starts_with('4') || status == "200", "{status}");
        }
    }
    lives(&server);
    assert_eq!(server.counter("taper_panics_total"), 0.0);
}

#[test]
fn who_is_slow_or_leaves_holds_nothing() {
    let mut settings = ServeSettings::new(vec![trained().path("text")]);
    settings.limits.transfer = Duration::from_millis(400);
    settings.limits.new_tokens = 100_000;
    let server = Running::with(settings);
    // The body that was announced is never sent completely.
    let mut stream = server.connect();
    let head = format!(
        "POST /api/generate HTTP/1.1\r\nHost: {}\r\n{JSON}Content-Length: 100\r\n\r\n{{",
        server.address
    );
    stream.write_all(head.as_bytes()).expect("sent");
    assert_eq!(Reply::read(&mut stream).status, 408);
    // If a client leaves while a long text is generated, streamed or not, the generation ends.
    for stream in [true, false] {
        let asked = json!({
            "prompt": "the", "max_tokens": 100_000, "temperature": 5.0, "stream": stream,
        });
        let body = asked.to_string();
        let mut leaver = server.connect();
        let bytes = server.bytes("POST", "/api/generate", JSON, body.as_bytes());
        leaver.write_all(&bytes).expect("sent");
        if stream {
            let mut first = [0; 64];
            leaver.read_exact(&mut first).expect("the beginning");
        } else {
            std::thread::sleep(Duration::from_millis(100));
        }
        leaver.shutdown(Shutdown::Both).expect("left");
        drop(leaver);
        let begun = Instant::now();
        server.post("/api/generate", &json!({ "prompt": "the", "max_tokens": 2 })).expect(200);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    // A client that reads nothing is cut off when every buffer on the way is full.
    let asked = json!({
        "prompt": "the", "max_tokens": 100_000, "temperature": 5.0, "stream": true,
    });
    let mut still = server.connect();
    let bytes = server.bytes("POST", "/api/generate", JSON, asked.to_string().as_bytes());
    still.write_all(&bytes).expect("sent");
    let begun = Instant::now();
    while server.counter("taper_connections ") > 1.0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_waits_is_bounded_and_the_absent_are_dropped() {
    let server = limited(|limits| {
        limits.queue = 40;
        limits.batch = 20;
    });
    let lines: Vec<String> = lines().into_iter().cycle().take(20).collect();
    let body = json!({ "text": lines, "beam": 16 }).to_string();
    let bytes = server.bytes("POST", "/api/translate", JSON, body.as_bytes());
    let mut streams: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&bytes).expect("sent");
            stream
        })
        .collect();
    // Half of the clients leave at once.
    let leavers = streams.split_off(6);
    std::thread::sleep(Duration::from_millis(30));
    drop(leavers);
    let mut statuses = Vec::new();
    for mut stream in streams {
        let reply = Reply::read(&mut stream);
        if reply.status == 503 {
            assert!(reply.head.contains("retry-after: "), "{}", reply.head);
        }
        statuses.push(reply.status);
    }
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.contains(&503), "{statuses:?}");
    assert!(server.counter("taper_refused_total") > 0.0);
    lives(&server);
    assert_eq!(server.counter("taper_waiting_lines"), 0.0);
}

#[test]
fn an_answer_that_would_come_too_late_does_not_come() {
    let server = limited(|limits| limits.answer = Duration::ZERO);
    let lines: Vec<String> = lines().into_iter().cycle().take(200).collect();
    server.post("/api/translate", &json!({ "text": lines, "beam": 16 })).expect(504);
}

#[test]
fn the_key_is_asked_for_wherever_something_is_computed() {
    let mut settings = ServeSettings::new(vec![frozen(), trained().path("text")]);
    settings.api_key = Some("open sesame".to_owned());
    let server = Running::with(settings);
    for path in ["/health", "/openapi.json", "/languages"] {
        server.get(path).expect(200);
    }
    let described = server.get("/openapi.json").json();
    let mut kept = 0;
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            // The description of an operation says if no key is needed.
            if operation["security"] == json!([]) {
                continue;
            }
            kept += 1;
            let path = path.replace("{model}", "text");
            for key in ["", "Authorization: Bearer open\r\n", "Authorization: open sesame\r\n"] {
                let headers = format!("{JSON}{key}");
                let body =
                    br#"{"q": "a", "source": "aa", "target": "bb", "api_key": "open sesam"}"#;
                let reply = server.send(&method.to_uppercase(), &path, &headers, body);
                assert_eq!(reply.status, 401, "{method} {path} {key}");
                assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
            }
        }
    }
    assert!(kept > 8, "{kept}");
    let headers = format!("{JSON}Authorization: Bearer open sesame\r\n");
    server.send("POST", "/api/translate", &headers, br#"{"text": "a"}"#).expect(200);
    let body = br#"{"q": "a", "source": "aa", "target": "bb", "api_key": "open sesame"}"#;
    server.send("POST", "/translate", JSON, body).expect(200);
}

#[test]
fn browsers_are_told_to_trust_nothing_else() {
    let server = Running::start(vec![frozen()]);
    for path in ["/health", "/api/runs", "/nothing"] {
        let head = server.get(path).head;
        for header in [
            "content-security-policy: default-src 'none'; frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {header} is not in {head}");
        }
    }
    // A web page whose host name points to this machine must be refused (DNS rebinding).
    for (host, status) in
        [("evil.example", 403), ("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:9", 200)]
    {
        let mut stream = server.connect();
        let request = format!("GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        assert_eq!(Reply::read(&mut stream).status, status, "{host}");
    }
    let mut settings = ServeSettings::new(vec![frozen()]);
    settings.hosts = vec!["own.example".to_owned()];
    let server = Running::with(settings);
    let mut stream = server.connect();
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: OWN.example\r\nConnection: close\r\n\r\n")
        .expect("sent");
    assert_eq!(Reply::read(&mut stream).status, 200);
}

#[test]
fn a_server_that_is_stopped_finishes_what_it_took() {
    let mut server = Running::start(vec![frozen()]);
    let lines: Vec<String> = lines().into_iter().cycle().take(100).collect();
    let body = json!({ "text": lines, "beam": 8 }).to_string();
    let bytes = server.bytes("POST", "/api/translate", JSON, body.as_bytes());
    let mut streams: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(&bytes).expect("sent");
            stream
        })
        .collect();
    // The server must end although a connection without a request is open.
    let idle = server.connect();
    let begun = Instant::now();
    while server.counter("taper_waiting_lines") < 400.0 && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.end();
    drop(idle);
    for stream in &mut streams {
        let found = Reply::read(stream).expect(200);
        let found = found["translations"].as_array().expect("a list");
        assert_eq!(found.len(), 100);
        assert!(found.iter().all(|line| line["translations"].is_array()));
    }
    assert!(std::net::TcpStream::connect(server.address).is_err(), "it listens no more");
    let events = server.events.lock().expect("events");
    let names: Vec<&str> =
        events.iter().map(|event| event["event"].as_str().expect("a name")).collect();
    assert_eq!(names[..2], ["loaded", "listening"]);
    assert_eq!(names.last(), Some(&"stopped"));
    assert_eq!(events.last().expect("events")["cut_off"], 0);
}

#[test]
fn what_cannot_be_served_is_said_before_anything_listens() {
    let refused = |settings: ServeSettings| {
        let server = taper_serve::Server::start(settings, std::sync::Arc::new(|_| {}));
        format!("{:#}", server.expect_err("refused"))
    };
    assert!(refused(ServeSettings::new(Vec::new())).contains("no run"));
    assert!(refused(ServeSettings::new(vec!["/nowhere".into()])).contains("/nowhere"));
    let twice = refused(ServeSettings::new(vec![frozen(), frozen()]));
    assert!(twice.contains("two runs are named format-1"), "{twice}");
    let empty =
        ServeSettings { api_key: Some(" ".to_owned()), ..ServeSettings::new(vec![frozen()]) };
    assert!(refused(empty).contains("key"));
    let first = Running::start(vec![frozen()]);
    let taken = ServeSettings { address: first.address, ..ServeSettings::new(vec![frozen()]) };
    assert!(refused(taken).contains("cannot listen"));
}
