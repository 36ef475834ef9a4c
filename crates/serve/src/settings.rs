//! What a server is told: where it listens, who may ask, and how much.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use taper_run::LoadSettings;

/// How runs are served.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Folders of the runs.
    pub runs: Vec<PathBuf>,
    /// Which of their weights, and where to compute.
    pub load: LoadSettings,
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// What clients must know, unless anybody may ask.
    pub api_key: Option<String>,
    /// Names by which clients may call a server that listens on the loopback address, beside
    /// `localhost` and addresses: those of a proxy before it.
    pub hosts: Vec<String>,
    /// Origins, such as `https://friend.example`, whose pages may ask from a browser; `*` for all.
    pub origins: Vec<String>,
    /// Bounds.
    pub limits: Limits,
}

impl ServeSettings {
    /// Serves `runs` at a free port of the loopback address, to anybody.
    #[must_use]
    pub fn of(runs: Vec<PathBuf>) -> Self {
        Self {
            runs,
            load: LoadSettings::default(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            api_key: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// What bounds the work and the memory of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bytes of the body of a request.
    pub body_bytes: usize,
    /// The most bytes of a picture.
    pub image_bytes: usize,
    /// The most lines or texts of a request.
    pub lines: usize,
    /// The most tokens of a request, those of all its lines together.
    pub tokens: usize,
    /// The most tokens of a text whose attention is asked for: what is computed and sent grows with
    /// their square.
    pub attention_tokens: usize,
    /// The most tokens that are added to a prompt.
    pub new_tokens: usize,
    /// The most hypotheses of a search, and alternatives and samples of an answer.
    pub beam: usize,
    /// The most work that waits for one run, all clients together: in lines of about 32 tokens that
    /// are searched with the run's own beam. Work is not counted against lighter work.
    pub queue: usize,
    /// The most work of a batch, in such lines; work that is more is done by itself.
    pub batch: usize,
    /// The most connections at a time; others wait to be taken.
    pub connections: usize,
    /// The most of them that one client has, by its address; others are turned away with 503.
    pub client_connections: usize,
    /// How long a request may wait and be worked on; then its work is given up.
    pub answer: Duration,
    /// How long a client may take to send a request, and may leave an answer unread.
    pub transfer: Duration,
    /// How long what was taken may go on after the server is asked to stop.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 18,
            image_bytes: 1 << 22,
            lines: 256,
            tokens: 16_384,
            attention_tokens: 160,
            new_tokens: 1024,
            beam: 16,
            queue: 2048,
            batch: 64,
            connections: 512,
            client_connections: 256,
            answer: Duration::from_secs(60),
            transfer: Duration::from_secs(20),
            farewell: Duration::from_secs(30),
        }
    }
}
