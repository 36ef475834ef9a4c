//! Tests of `taper serve` as a process: the events that it prints, its API key, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::common::{Workspace, json_lines, mentions, signal};

/// Starts a server of the workspace's run. Returns the process, its address, and its standard
/// output after the event with the address.
fn serving(workspace: &Workspace, options: &str) -> (Child, String, impl BufRead + use<>) {
    let arguments = format!("serve run --address 127.0.0.1:0 --json {options}");
    let mut child = workspace
        .command(&arguments)
        .env_remove("TAPER_API_KEY")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output"));
    let mut next = || -> Value {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    };
    let loaded = next();
    assert_eq!((&loaded["event"], &loaded["run"]["name"]), (&"loaded".into(), &"run".into()));
    let address = next()["address"].as_str().expect("an address").to_owned();
    (child, address, lines)
}

fn ask(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connected");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_server_tells_its_events_wants_its_key_and_ends_when_asked() {
    let workspace = Workspace::of_frozen_run();
    workspace.write("key", "a secret\nnot this\n");
    let (mut child, address, mut lines) = serving(&workspace, "--api-key-file key");
    assert!(ask(&address, "/", "").starts_with("HTTP/1.1 200"));
    assert!(ask(&address, "/api/runs?a=b", "").starts_with("HTTP/1.1 401"));
    let key = "Authorization: Bearer a secret\r\n";
    assert!(ask(&address, "/api/runs?a=b", key).contains("\"parameters\""));
    signal("-TERM", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("events");
    let events = json_lines(&rest);
    let told: Vec<String> = events
        .iter()
        .map(|event| match event["event"].as_str().expect("a name") {
            "answered" => format!("{} {}", event["path"], event["status"]),
            other => other.to_owned(),
        })
        .collect();
    let expected = ["\"/\" 200", "\"/api/runs\" 401", "\"/api/runs\" 200", "stopping", "stopped"];
    assert_eq!(told, expected, "{rest}");
    assert!(events.iter().all(|event| event["time"].as_f64().expect("a time") > 1.7e9));
    assert!(!rest.contains("secret"));
}

/// Characters that control a terminal or change the direction of text.
const ACTIVE: [char; 6] = ['\u{1b}', '\r', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}'];

#[test]
fn names_do_nothing_on_the_terminal() {
    let workspace = Workspace::of_frozen_run();
    let name = "evil\u{1b}[2J\r\u{202e}nur\u{2066}\u{9b}\n";
    std::fs::rename(workspace.path("run"), workspace.path("run0")).expect("renamed");
    std::fs::create_dir(workspace.path("all")).expect("a folder");
    std::fs::rename(workspace.path("run0"), workspace.path("all").join(name)).expect("renamed");
    let is_quiet = |text: &str| {
        assert!(!text.contains(ACTIVE), "{text:?}");
    };
    for options in ["runs all", "runs all --json"] {
        let output = workspace.run(options);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        is_quiet(&text);
        mentions(&text, &["202e"]);
    }
    let output = workspace.run(format!("translate 'all/{name}x'"));
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    is_quiet(&message);
    mentions(&message, &["\\u{202e}"]);
    // The log of a server has the name of the run and the paths that clients request.
    for json in [true, false] {
        let form = if json { "--json" } else { "" };
        let mut child = workspace
            .command(format!("serve 'all/{name}' --address 127.0.0.1:0 {form}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut output = BufReader::new(child.stdout.take().expect("standard output"));
        let mut all = String::new();
        while !all.contains("127.0.0.1:") {
            assert!(output.read_line(&mut all).expect("a line") > 0, "{all}");
        }
        let address = &all[all.find("127.0.0.1:").expect("an address")..];
        let address = address.split(['"', '/']).next().expect("an address").to_owned();
        ask(&address, "/\u{202e}\u{2066}\u{9b}x", "");
        signal("-TERM", &child);
        output.read_to_string(&mut all).expect("the rest");
        child.wait().expect("ended");
        is_quiet(&all);
        mentions(&all, &["202e"]);
    }
}

#[test]
fn what_cannot_be_served_is_said() {
    let workspace = Workspace::of_frozen_run();
    let (mut child, address, _lines) = serving(&workspace, "");
    workspace.fail(format!("serve run --address {address}"), &["cannot listen at", &address]);
    signal("-INT", &child);
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    workspace.fail("serve nowhere", &["nowhere"]);
    workspace.fail("serve run run", &["two runs are named run"]);
    workspace.fail("serve run --queue 0", &["--queue must be at least 1"]);
    for bound in ["--connections", "--client-connections"] {
        workspace.fail(format!("serve run {bound} 0"), &[bound, "must be at least 1"]);
    }
    for origin in ["friend.example", "https://a.example/", "https://a.example/b", "https://"] {
        workspace.fail(format!("serve run --cors {origin}"), &["--cors", "is no origin"]);
    }
    workspace.fail("serve run --timeout NaN", &["--timeout NaN"]);
    workspace.fail("serve run --api-key-file none", &["cannot read none"]);
}
