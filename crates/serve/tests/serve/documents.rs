//! Documents over HTTP: the translation, in every format, must be that of `taper translate --file`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taper_run::translation::{DocumentFile, translate_document};
use taper_run::{LoadSettings, LoadedRun, TranslationSettings};
use taper_serve::{Limits, ServeSettings};

use crate::common::{Reply, Running, frozen, lines, singly};

/// Header of a form whose parts are separated by the boundary `b`.
const KIND: &str = "Content-Type: multipart/form-data; boundary=b\r\n";
/// Fields of a form that name the languages of the run of [`frozen`].
const PAIR: [(&str, &str); 2] = [("source", "aa"), ("target", "bb")];

/// Returns a form with the fields `fields` and a file that has the name `name`.
fn form(name: &str, content: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part =
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let head = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(content);
    body.extend_from_slice(b"\r\n--b--\r\n");
    body
}

fn send(server: &Running, name: &str, content: &[u8], fields: &[(&str, &str)]) -> Reply {
    server.send("POST", "/translate_file", KIND, &form(name, content, fields))
}

/// Fetches the translated file, whose address is in `answer`, an answer in LibreTranslate's form.
fn fetched(server: &Running, answer: &Value) -> Reply {
    let url = answer["translatedFileUrl"].as_str().expect("an address");
    let base = format!("http://{}", server.address);
    server.get(url.strip_prefix(&base).expect("an address here"))
}

/// Returns the document as the command line translates it.
fn expected(name: &str, content: &[u8]) -> Vec<u8> {
    let run = LoadedRun::open(&frozen(), &LoadSettings::default()).expect("loaded");
    let file = DocumentFile::read(Path::new(name), content.to_vec(), 1 << 28).expect("a file");
    let document = file.document(&run.config.data.source_language).expect("a document");
    let settings = TranslationSettings::from_config(&run.config);
    let found = translate_document(&run, &settings, document, |_| {}).expect("translated");
    file.write(found.text).expect("bytes")
}

fn letter() -> Vec<u8> {
    let path = "../documents/tests/golden/letter.docx";
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a letter")
}

/// Returns an HTML page of many sentences, some with markup or placeholders.
fn page(sentences: usize) -> String {
    let lines = lines();
    let paragraph = |number: usize| {
        let line = &lines[number % lines.len()];
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match number % 3 {
            0 => format!("<p>{line}</p>\n"),
            1 => format!("<p class='x'>{first} <b>{rest}</b></p>\r\n"),
            _ => format!("<p>{first} {{name}} {rest}</p><!-- {line} -->\n"),
        }
    };
    (0..sentences).map(paragraph).collect()
}

#[test]
fn documents_of_every_format_are_those_of_the_command_line() {
    let server = Running::start(vec![frozen()]);
    let lines = lines();
    let (one, two) = (&lines[0], &lines[1]);
    let texts = [
        ("page.html", page(70)),
        ("notes.md", format!("# {one}\n\n- {two} `code`\n- **{one}**\n\n```\n{one}\n```\n")),
        (
            "film.srt",
            format!(
                "1\n00:00:01,000 --> 00:00:02,000\n<i>{one}</i>\n\n2\n00:00:03,000 --> \
                              00:00:04,000\n{two}\n"
            ),
        ),
        ("film.vtt", format!("WEBVTT\n\n00:01.000 --> 00:02.000\n<v Roger>{one}</v>\n")),
        ("a.po", format!("#. {one}\nmsgid \"{one}\"\nmsgstr \"\"\n\nmsgid \"a\"\nmsgstr \"b\"\n")),
        (
            "a.xlf",
            format!(
                "<?xml version='1.0'?><xliff version='1.2'><file source-language='en'><body>\
                           <trans-unit id='1'><source>{one}</source></trans-unit></body></file></xliff>"
            ),
        ),
        ("my letter.txt", format!("\u{feff}{one}\r\n\r\n  {two}\n123")),
        ("empty.txt", String::new()),
    ];
    let mut documents: Vec<(&str, Vec<u8>)> =
        texts.into_iter().map(|(name, text)| (name, text.into_bytes())).collect();
    documents.push(("C:\\texts\\Letter.DOCX", letter()));
    for (name, content) in documents {
        let answer = send(&server, name, &content, &PAIR).expect(200);
        let reply = fetched(&server, &answer);
        assert_eq!(reply.status, 200, "{name}");
        assert!(
            reply.body == expected(name, &content),
            "{name}: {:?}",
            reply.body.escape_ascii().to_string()
        );
        assert!(
            reply.head.contains("content-disposition: attachment; filename="),
            "{}",
            reply.head
        );
        assert!(reply.head.contains("x-content-type-options: nosniff"), "{}", reply.head);
    }
    let translated = singly(std::slice::from_ref(one)).remove(0);
    let answer = send(&server, "my letter.txt", one.as_bytes(), &[("source", "auto"), PAIR[1]]);
    let answer = answer.expect(200);
    assert!(answer["translatedFileUrl"].as_str().expect("text").ends_with(".my_letter.txt"));
    let reply = fetched(&server, &answer);
    assert_eq!(reply.text(), translated);
    assert!(reply.head.contains("attachment; filename=\"my_letter.txt\""), "{}", reply.head);
    assert!(reply.head.contains("text/plain; charset=utf-8"), "{}", reply.head);
    server.get("/download_file/0123.my_letter.txt").expect(404);
    server.get("/download_file/..%2f..%2fetc%2fpasswd").expect(404);
}

#[test]
fn what_is_no_document_is_refused_with_a_reason() {
    let server = Running::start(vec![frozen()]);
    let lacking = [("source", "aa")];
    let reversed = [("source", "bb"), ("target", "aa")];
    for (name, content, fields, said) in [
        ("a.doc", &b"x"[..], &PAIR[..], "must end in one of .html, .htm, .xhtml, .md"),
        ("", b"x", &PAIR, "must end in one of"),
        ("a.docx", b"PK", &PAIR, "not a readable DOCX file"),
        ("a.docx", b"", &PAIR, "not a readable DOCX file"),
        ("a.po", b"msgid \"a\"\nwords\n", &PAIR, "line 2: a string in quotes is missing"),
        ("a.xlf", b"<tmx/>", &PAIR, "begins with <tmx>"),
        ("a.txt", b"\xff\xfea\0", &PAIR, "UTF-16"),
        ("a.txt", b"a\n\xff", &PAIR, "line 2"),
        ("a.txt", b"a", &lacking, "no target"),
        ("a.txt", b"a", &reversed, "/languages"),
    ] {
        let error = send(&server, name, content, fields).expect(400)["error"].clone();
        assert!(error.as_str().expect("text").contains(said), "{name}: {error}");
    }
    // A damaged archive is translated or refused, wherever the damage is.
    let whole = letter();
    for at in (0..whole.len()).step_by(whole.len() / 60) {
        let (cut, mut changed) = (&whole[..at], whole.clone());
        changed[at] ^= 0x5a;
        for damaged in [cut, &changed] {
            let status = send(&server, "a.docx", damaged, &PAIR).status;
            assert!([200, 400].contains(&status), "{at}: {status}");
        }
    }
    assert_eq!(server.counter("taper_panics_total"), 0.0);
    let line = lines().remove(0);
    let found = server.post("/api/translate", &json!({ "text": [line] })).expect(200);
    assert_eq!(found["translations"][0]["translations"][0]["text"], singly(&[line])[0]);
}

fn limited(change: impl FnOnce(&mut Limits)) -> Running {
    let mut settings = ServeSettings::new(vec![frozen()]);
    change(&mut settings.limits);
    Running::with(settings)
}

#[test]
fn documents_have_limits() {
    let server = limited(|limits| {
        limits.sentences = 4;
        limits.document_bytes = 3000;
        limits.body_bytes = 1000;
        limits.lines = 2;
    });
    // A document may have more sentences than a request may have lines.
    send(&server, "a.html", page(4).as_bytes(), &PAIR).expect(200);
    let refused = send(&server, "a.html", page(5).as_bytes(), &PAIR).expect(413);
    assert!(refused["error"].as_str().expect("text").contains("5 sentences"), "{refused}");
    let refused = send(&server, "a.txt", format!("a\n{}", "a".repeat(1001)).as_bytes(), &PAIR);
    let refused = refused.expect(413)["error"].as_str().expect("text").to_owned();
    assert!(refused.contains("sentence 2 of the document has 1001 bytes"), "{refused}");
    send(&server, "a.txt", &[b'\n'; 3001], &PAIR).expect(413);
    send(&server, "a.txt", &[b'\n'; 5000], &PAIR).expect(413);
    let server = limited(|limits| limits.documents = 0);
    let reply = send(&server, "a.txt", b"a", &PAIR);
    assert_eq!(reply.status, 503);
    assert!(reply.head.contains("retry-after: "), "{}", reply.head);
    let server = limited(|limits| limits.document_answer = Duration::ZERO);
    send(&server, "a.html", page(200).as_bytes(), &PAIR).expect(504);
    // Clients that send the key as a field of the form, not in a header, may send small forms only.
    let mut settings = ServeSettings::new(vec![frozen()]);
    settings.api_key = Some("open sesame".to_owned());
    settings.limits.body_bytes = 1000;
    let server = Running::with(settings);
    let long = "a\n".repeat(1000);
    let with_key = [PAIR[0], PAIR[1], ("api_key", "open sesame")];
    send(&server, "a.txt", b"a", &PAIR).expect(401);
    send(&server, "a.txt", b"a", &with_key).expect(200);
    send(&server, "a.txt", long.as_bytes(), &with_key).expect(401);
    let headers = format!("{KIND}Authorization: Bearer open sesame\r\n");
    let body = form("a.txt", long.as_bytes(), &PAIR);
    server.send("POST", "/translate_file", &headers, &body).expect(200);
}

#[test]
fn progress_is_told_until_the_document_is_there() {
    let server = Running::start(vec![frozen()]);
    let content = page(80);
    let ask = |name: &str, content: &[u8], fields: &[(&str, &str)]| {
        server.send("POST", "/api/translate-file", KIND, &form(name, content, fields))
    };
    let fields = [("run", "format-1"), ("stream", "true"), ("terms", "{}"), ("to", "bb")];
    let events = ask("page.html", content.as_bytes(), &fields).events();
    let events: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect();
    let (end, progress) = events.split_last().expect("events");
    assert!(progress.len() >= 3, "{events:?}");
    let done = progress.iter().map(|event| event["translated"].as_u64().expect("a number"));
    assert!(done.clone().is_sorted() && done.max() == Some(80), "{progress:?}");
    assert!(progress.iter().all(|event| event["sentences"] == 80), "{progress:?}");
    assert_eq!(
        (&end["done"], &end["sentences"], &end["name"]),
        (&true.into(), &80.into(), &"page.html".into())
    );
    assert_eq!(end["unchanged"], json!([]));
    let reply = server.get(&format!("/{}", end["url"].as_str().expect("an address")));
    assert!(reply.body == expected("page.html", content.as_bytes()));
    // Without a stream, the same document is answered as a whole.
    let found = ask("page.html", content.as_bytes(), &[]).expect(200);
    assert_eq!((&found["run"], &found["sentences"]), (&"format-1".into(), &80.into()));
    let again = server.get(&format!("/{}", found["url"].as_str().expect("an address")));
    assert!(again.body == reply.body);
    for (fields, status, said) in [
        (&[("to", "cc")][..], 422, "aa-bb"),
        (&[("run", "none")], 404, "no run is named"),
        (&[("stream", "yes")], 400, "stream must be true or false"),
        (&[("terms", "[]")], 400, "terms is no JSON object"),
        (&[("target", "bb")], 400, "unknown field \"target\""),
    ] {
        let error = ask("a.txt", b"a", fields).expect(status)["error"].clone();
        assert!(error.as_str().expect("text").contains(said), "{error}");
    }
}

#[test]
fn the_document_of_a_client_that_left_is_dropped() {
    let server = Running::start(vec![frozen()]);
    let content = page(3000);
    for (path, fields) in
        [("/api/translate-file", &[("stream", "true")][..]), ("/translate_file", &PAIR)]
    {
        let mut leaver = server.connect();
        let body = form("page.html", content.as_bytes(), fields);
        leaver.write_all(&server.bytes("POST", path, KIND, &body)).expect("sent");
        if path.starts_with("/api") {
            let mut first = [0; 64];
            leaver.read_exact(&mut first).expect("the beginning");
        } else {
            std::thread::sleep(Duration::from_millis(100));
        }
        leaver.shutdown(Shutdown::Both).expect("left");
        drop(leaver);
        let (begun, mut idle) = (Instant::now(), 0);
        // Between two parts of a document, the counter of waiting lines is 0 for a moment. So the
        // translation counts as ended only after the counter was 0 ten times in succession.
        while idle < 10 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{path}: it is still translated");
            std::thread::sleep(Duration::from_millis(20));
            idle = if server.counter("taper_waiting_lines") > 0.0 { 0 } else { idle + 1 };
        }
    }
}
