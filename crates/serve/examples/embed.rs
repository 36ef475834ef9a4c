//! Example of a server inside another program. The server runs on its own thread and serves a run,
//! that is, the folder of a trained model. The program sends it one request, and stops it.
//!
//!     cargo run --release -p taper-serve --example embed -- runs/quickstart
//!
//! The server prints nothing and handles no signals: it reports events to an observer, and ends
//! when the program calls `Stop::stop`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use taper_serve::{ServeEvent, ServeSettings, Server};

/// Serves the run in `folder` on any free port, asks the server for a translation of `text`, and
/// returns the answer.
fn run(folder: PathBuf, text: &str) -> Result<String> {
    let mut settings = ServeSettings::new(vec![folder]);
    settings.address.set_port(0);
    let observer = Arc::new(|event: &ServeEvent<'_>| println!("{event:?}"));
    let server = Server::start(settings, observer)?;
    let (address, stop) = (server.address(), server.stop());
    let serving = std::thread::spawn(move || server.serve());

    let body = serde_json::json!({ "text": text }).to_string();
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "POST /api/translate HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;

    stop.stop();
    serving.join().ok().context("the server panicked")??;
    Ok(answer)
}

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).context("give the folder of a run")?;
    println!("{}", run(folder.into(), "I love you.")?);
    Ok(())
}

#[test]
fn it_answers() {
    let frozen = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/frozen/format-1");
    let answer = run(frozen.into(), "ka ti").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains(r#""translations""#), "{answer}");
}
