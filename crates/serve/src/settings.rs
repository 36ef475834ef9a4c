//! Settings of a server: its address, its clients, its limits.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use taper_run::LoadSettings;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Folders of the runs (trained models).
    pub runs: Vec<PathBuf>,
    /// Weights and device of the runs.
    pub load: LoadSettings,
    /// Address to listen on; port 0 takes a free one.
    pub address: SocketAddr,
    /// Key that clients must send; `None` if the server answers everybody.
    pub api_key: Option<String>,
    /// Host names with which clients may call a server on the loopback address, for example the
    /// name of a proxy in front of the server. `localhost` and loopback addresses are always
    /// accepted.
    pub hosts: Vec<String>,
    /// Origins, such as `https://friend.example`, whose pages may send requests from a browser; `*`
    /// for all.
    pub origins: Vec<String>,
    /// Limits.
    pub limits: Limits,
}

impl ServeSettings {
    /// Makes settings that serve `runs` at a free port of the loopback address, to clients without
    /// a key.
    #[must_use]
    pub fn new(runs: Vec<PathBuf>) -> Self {
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

/// Limits on the work and the memory of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest size of the body of a request in bytes.
    pub body_bytes: usize,
    /// Largest size of a picture in bytes.
    pub image_bytes: usize,
    /// Largest size of a document in bytes.
    pub document_bytes: usize,
    /// Largest number of sentences of a document.
    pub sentences: usize,
    /// Largest number of documents that are translated at a time, over all clients; further ones
    /// are turned away with 503.
    pub documents: usize,
    /// Largest number of lines or texts of a request.
    pub lines: usize,
    /// Largest number of tokens of a request, over all its lines.
    pub tokens: usize,
    /// Largest number of tokens of a text whose attention is requested: computation and answer grow
    /// with the square of the length.
    pub attention_tokens: usize,
    /// Largest number of tokens added to a prompt.
    pub new_tokens: usize,
    /// Largest number of hypotheses of a search; also the largest number of alternatives, and of
    /// samples, in an answer.
    pub beam: usize,
    /// Largest amount of waiting work for one run, over all clients, counted in lines of about 32
    /// tokens that are searched with the run's own beam. When a new request comes, only waiting
    /// work that is not heavier than the request counts towards this limit.
    pub queue: usize,
    /// Largest amount of work in a batch, in the unit of `queue`; a larger request is computed
    /// alone.
    pub batch: usize,
    /// Largest number of connections at a time; further clients wait to be accepted.
    pub connections: usize,
    /// Largest number of connections of one client, that is, from one IPv4 address or one IPv6
    /// network; further connections are turned away with 503.
    pub client_connections: usize,
    /// Time limit for a request to wait and be processed, after which its work is dropped.
    pub answer: Duration,
    /// Time limit for a document to wait and be translated, after which its work is dropped.
    pub document_answer: Duration,
    /// Time limit for a client to send a request, and for an answer to remain unread.
    pub transfer: Duration,
    /// Time limit for accepted work after the server is stopped.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 18,
            image_bytes: 1 << 22,
            document_bytes: 1 << 22,
            sentences: 10_000,
            documents: 8,
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
            document_answer: Duration::from_secs(600),
            transfer: Duration::from_secs(20),
            farewell: Duration::from_secs(30),
        }
    }
}
