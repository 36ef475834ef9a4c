//! Program for checks. It serves a hub on this machine (`serve`), uploads a folder to a hub (`push
//! ENDPOINT FOLDER REPOSITORY`), or downloads one (`pull ENDPOINT REPOSITORY FOLDER`).
//! `scripts/check/hub.py` uses it to check that this crate and the Python library huggingface_hub
//! understand each other.

// This program uses only some parts of the module, which belongs to the tests.
#[allow(dead_code)]
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;

use common::{LARGE, Server};
use taper_hub::{Hub, PushSettings, pull, push};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let quiet = &mut |_: taper_hub::HubEvent<'_>| {};
    match words.as_slice() {
        ["serve"] => {
            let server = Server::start();
            println!("{} {LARGE}", server.endpoint);
            // Serves until the standard input is closed.
            std::io::read_to_string(std::io::stdin()).expect("an input");
        }
        ["push", endpoint, folder, repository] => {
            let settings = PushSettings {
                revision: "main".to_owned(),
                private: false,
                message: "A folder".to_owned(),
            };
            let hub = Hub::new(endpoint, Some("hf_test".to_owned())).expect("a connection");
            let pushed = push(&hub, Path::new(folder), repository, &settings, quiet);
            println!("{}", pushed.expect("an upload").commit);
        }
        ["pull", endpoint, repository, folder] => {
            let hub = Hub::new(endpoint, None).expect("a connection");
            let pulled = pull(&hub, repository, Path::new(folder), "main", quiet);
            println!("{}", pulled.expect("a download").commit);
        }
        _ => panic!("serve, push ENDPOINT FOLDER REPOSITORY or pull ENDPOINT REPOSITORY FOLDER"),
    }
}
