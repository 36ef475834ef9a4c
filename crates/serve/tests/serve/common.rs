//! Runs to serve, a server that ends with its test, and a client that can send any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use taper_run::{
    LineTranslator, LoadSettings, LoadedRun, RunConfig, RunFolder, TrainSettings,
    TranslationSettings, training,
};
use taper_serve::{Observer, ServeEvent, ServeSettings, Server, Stop};

/// Path of a translation run that an earlier version of Taper wrote.
pub(crate) fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/frozen/format-1")
}

/// Returns lines that the run of [`frozen`] can translate.
pub(crate) fn lines() -> Vec<String> {
    let path = frozen().join("../source.txt");
    let text = std::fs::read_to_string(path).expect("source.txt");
    text.lines().map(str::to_owned).filter(|line| !line.trim().is_empty()).collect()
}

/// Returns the translation of each line alone, as `taper translate` makes it.
pub(crate) fn singly(lines: &[String]) -> Vec<String> {
    let run = LoadedRun::open(&frozen(), &LoadSettings::default()).expect("loaded");
    let settings = TranslationSettings::from_config(&run.config);
    let translator = LineTranslator::new(&run, &settings).expect("a translator");
    let single = |line: &String| {
        let found = translator.translate(std::slice::from_ref(line), &[], 1, |_| {});
        let line = found.expect("searched").next().expect("a line").expect("translated");
        line.translations[0].text.clone()
    };
    lines.iter().map(single).collect()
}

/// Copies a run into `folder` under the name `name`; returns the path of the copy.
pub(crate) fn copied(run: &Path, folder: &Path, name: &str) -> PathBuf {
    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            let to = to.join(entry.file_name());
            match entry.file_type().expect("a type").is_dir() {
                true => copy(&entry.path(), &to),
                false => drop(std::fs::copy(entry.path(), to).expect("copied")),
            }
        }
    }
    let to = folder.join(name);
    copy(run, &to);
    to
}

/// Runs that are trained briefly, once for all tests.
pub(crate) struct Trained {
    folder: tempfile::TempDir,
}

impl Trained {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Trains a language model of characters, classifiers of texts and of images, a tagger, and models
/// that answer questions, describe images and match texts with them.
pub(crate) fn trained() -> &'static Trained {
    static TRAINED: OnceLock<Trained> = OnceLock::new();
    TRAINED.get_or_init(|| {
        let trained = Trained { folder: tempfile::tempdir().expect("a folder") };
        let data = trained.path("data");
        std::fs::create_dir(&data).expect("a folder");
        let text = "the quick brown fox, 7 lazy dogs; and a seä.\n".repeat(60);
        std::fs::write(data.join("text.txt"), text).expect("written");
        let review = |i: usize| match i % 2 {
            0 => format!("yes\tred birds sing {i}\n"),
            _ => format!("no\told stones fall {i}\n"),
        };
        let reviews: String = (0..80).map(review).collect();
        std::fs::write(data.join("reviews.tsv"), reviews).expect("written");
        let word = |number: u32| number.to_be_bytes();
        let mut images = [[0, 0, 8, 3], word(32), word(8), word(8)].concat();
        images.extend((0..32 * 64).map(|at| (at % 251) as u8));
        let mut labels = [[0, 0, 8, 1], word(32)].concat();
        labels.extend((0..32).map(|image| (image % 2) as u8));
        std::fs::write(data.join("shapes-images-idx3-ubyte"), images).expect("written");
        std::fs::write(data.join("shapes-labels-idx1-ubyte"), labels).expect("written");
        let sentence = "mr\tO\nstone\tB-PER\nsings\tO\nin\tO\nold\tB-LOC\ntown\tI-LOC\n\n";
        let paragraph = |number: usize| {
            serde_json::json!({ "context": format!("amber has {number}."), "qas": [{
                "id": number.to_string(), "question": "amber?",
                "answers": [{ "text": number.to_string(), "answer_start": 10 }],
            }] })
        };
        let paragraphs: Vec<Value> = (10..50).map(paragraph).collect();
        let questions = serde_json::json!({
            "version": "1.1", "data": [{ "title": "", "paragraphs": paragraphs }],
        });
        for (file, text) in [
            ("names.conll", sentence.repeat(24)),
            ("checked.conll", sentence.repeat(4)),
            ("questions.json", questions.to_string()),
            ("checked.json", questions.to_string()),
        ] {
            std::fs::write(data.join(file), text).expect("written");
        }
        for (name, own) in [
            ("text", include_str!("text.toml")),
            ("reviews", include_str!("reviews.toml")),
            ("shapes", include_str!("shapes.toml")),
            ("tags", include_str!("tags.toml")),
            ("questions", include_str!("questions.toml")),
            ("captions", include_str!("captions.toml")),
            ("matches", include_str!("matches.toml")),
        ] {
            train(own, &data, &trained.path(name));
        }
        trained
    })
}

/// Trains a run briefly with the recipe `common.toml`, to which the lines `own` are added.
pub(crate) fn train(own: &str, data: &Path, run: &Path) {
    let recipe = run.with_extension("toml");
    let text = include_str!("common.toml").replace("# OWN", own);
    std::fs::write(&recipe, text.replace("DIR", &data.to_string_lossy())).expect("written");
    let config = RunConfig::load(&recipe, &[]).expect("a recipe");
    let (stop, settings) = (AtomicBool::new(false), TrainSettings::default());
    let silent = &mut |_: &taper_run::RunEvent<'_>| Ok(());
    training::start(&RunFolder::new(run), &config, &settings, silent, &stop).expect("trained");
}

/// Server on a thread of its own; it is stopped when this value is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: Stop,
    /// Events reported so far, each as JSON.
    pub(crate) events: Arc<Mutex<Vec<Value>>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn with(settings: ServeSettings) -> Self {
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&events);
        let keeping = Arc::new(move |event: &ServeEvent<'_>| {
            let event = serde_json::to_value(event).expect("JSON");
            kept.lock().expect("events").push(event);
        });
        let mut running = Self::observed(settings, keeping);
        running.events = events;
        running
    }

    /// Starts a server that reports events to `observer`, and stores none.
    pub(crate) fn observed(settings: ServeSettings, observer: Observer) -> Self {
        Self::of(Server::start(settings, observer).expect("a server"))
    }

    /// Lets a server answer requests, on a thread of its own.
    pub(crate) fn of(server: Server) -> Self {
        let (address, stop, events) = (server.address(), server.stop(), Arc::default());
        let thread = std::thread::spawn(move || server.serve().expect("served"));
        Self { address, stop, events, thread: Some(thread) }
    }

    pub(crate) fn start(runs: Vec<PathBuf>) -> Self {
        Self::with(ServeSettings::new(runs))
    }

    /// Stops the server, and waits for its end.
    pub(crate) fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("ended");
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", b"")
    }

    /// Posts `value` as JSON.
    pub(crate) fn post(&self, path: &str, value: &Value) -> Reply {
        let bytes = value.to_string();
        self.send("POST", path, "Content-Type: application/json\r\n", bytes.as_bytes())
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(&self.bytes(method, path, headers, body)).expect("sent");
        Reply::read(&mut stream)
    }

    /// Returns the bytes of a request that asks the server to close the connection after its
    /// answer.
    pub(crate) fn bytes(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// Returns the value of a counter, or 0 if the counter does not exist.
    pub(crate) fn counter(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find(|line| line.starts_with(name));
        line.map_or(0.0, |line| {
            line.rsplit(' ').next().expect("a value").parse().expect("a number")
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic here would abort a test that is already failing.
            let _ = thread.join();
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Reads until the server ends the connection.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // If the connection breaks, the bytes that were received until then are the answer.
        let _ = stream.read_to_end(&mut bytes);
        Self::parse(&bytes)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| {
            panic!("no answer: {:?}", String::from_utf8_lossy(bytes));
        });
        let head = String::from_utf8(bytes[..at].to_vec()).expect("a head").to_ascii_lowercase();
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        let mut body = bytes[at + 4..].to_vec();
        if head.contains("transfer-encoding: chunked") {
            body = dechunked(&body);
        }
        Self { status, head, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {} {:?}", self.status, String::from_utf8_lossy(&self.body));
        })
    }

    /// Returns the JSON of the answer; panics if the answer has another status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Returns the events of a streamed answer.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = self.text();
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        events.map(|event| event.strip_prefix("data: ").expect("data").to_owned()).collect()
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = bytes.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..at]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a number");
        let Some(chunk) = bytes.get(at + 2..at + 2 + size) else { break };
        body.extend_from_slice(chunk);
        bytes = bytes.get(at + 2 + size + 2..).unwrap_or_default();
    }
    body
}
