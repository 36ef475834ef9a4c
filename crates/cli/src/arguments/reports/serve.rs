//! Arguments of `serve`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use taper_serve::{Limits, ServeSettings};

use crate::arguments::Weights;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Folders of runs: translation models, language models, classifiers of texts and of images
    #[arg(required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Address to listen on; port 0 takes a free one. Other machines can connect only if this is
    /// not the loopback address
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:7878",
        value_parser = address
    )]
    pub(crate) address: SocketAddr,
    /// Key that clients must send [default: anybody may ask]
    #[arg(long, value_name = "KEY", env = "TAPER_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// File with the key for --api-key on its first line. Lists of processes show options, but not
    /// this file
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Another name that clients use for a server at the loopback address, such as the name of a
    /// proxy in front of it; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,
    /// Origin, such as https://friend.example, whose pages may call from a browser; * for all; may
    /// be repeated [default: only the server's own page]
    #[arg(long = "cors", value_name = "ORIGIN")]
    pub(crate) origins: Vec<String>,
    /// Largest number of connections at a time; others wait
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    pub(crate) connections: usize,
    /// Largest number of connections from one address, such as a proxy's; others are refused
    /// [default: half of all]
    #[arg(long, value_name = "N")]
    pub(crate) client_connections: Option<usize>,
    /// Largest number of lines that wait for a run, counted as lines of about 32 tokens under the
    /// run's own beam: longer lines and wider beams count as several. Further requests are told to
    /// come back later
    #[arg(long, value_name = "LINES", default_value_t = Limits::default().queue)]
    pub(crate) queue: usize,
    /// Largest number of lines of a request
    #[arg(long, value_name = "LINES", default_value_t = Limits::default().lines)]
    pub(crate) max_lines: usize,
    /// Largest number of tokens of a request
    #[arg(long, value_name = "N", default_value_t = Limits::default().tokens)]
    pub(crate) max_tokens: usize,
    /// Largest number of sentences of a document
    #[arg(long, value_name = "N", default_value_t = Limits::default().sentences)]
    pub(crate) max_sentences: usize,
    /// Largest number of tokens added to a prompt
    #[arg(long, value_name = "N", default_value_t = Limits::default().new_tokens)]
    pub(crate) max_new_tokens: usize,
    /// Largest number of lines computed together, counted as for --queue
    #[arg(long, value_name = "LINES", default_value_t = Limits::default().batch)]
    pub(crate) batch: usize,
    /// Time limit of a request in seconds, after which its work is abandoned
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Time limit of a document in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    pub(crate) document_timeout: f64,
    #[command(flatten)]
    pub(crate) weights: Weights,
    /// Limit each translation to the tokens that the run's shortlist has for its source [default:
    /// the run's]
    #[arg(long)]
    pub(crate) shortlist: bool,
    /// Print one JSON object for each event
    #[arg(long)]
    pub(crate) json: bool,
}

impl Serve {
    /// Returns the settings of the server that these options request.
    ///
    /// # Errors
    /// When the key file cannot be read, a bound is 0, an origin is invalid, or a time limit is out
    /// of range.
    pub(crate) fn settings(&self) -> Result<ServeSettings> {
        let api_key = self.key()?;
        self.check_bounds()?;
        self.check_origins()?;
        self.check_times()?;
        let overrides: Vec<String> =
            self.shortlist.then(|| "decoding.shortlist=true".to_owned()).into_iter().collect();
        Ok(ServeSettings {
            runs: self.runs.clone(),
            load: self.weights.settings(&overrides),
            address: self.address,
            api_key,
            hosts: self.hosts.clone(),
            origins: self.origins.clone(),
            limits: Limits {
                connections: self.connections,
                client_connections: self.connections_of_client(),
                queue: self.queue,
                lines: self.max_lines,
                tokens: self.max_tokens,
                sentences: self.max_sentences,
                new_tokens: self.max_new_tokens,
                batch: self.batch,
                answer: Duration::from_secs_f64(self.timeout),
                document_answer: Duration::from_secs_f64(self.document_timeout),
                ..Limits::default()
            },
        })
    }

    /// Returns the key that clients must send: the first line of the key file, or the key in the
    /// options; `None` without a key.
    fn key(&self) -> Result<Option<String>> {
        let Some(path) = &self.api_key_file else { return Ok(self.api_key.clone()) };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(text.lines().next().unwrap_or_default().trim().to_owned()))
    }

    fn connections_of_client(&self) -> usize {
        self.client_connections.unwrap_or(self.connections.div_ceil(2))
    }

    fn check_bounds(&self) -> Result<()> {
        for (name, number) in [
            ("--connections", self.connections),
            ("--client-connections", self.connections_of_client()),
            ("--queue", self.queue),
            ("--max-lines", self.max_lines),
            ("--max-tokens", self.max_tokens),
            ("--max-sentences", self.max_sentences),
            ("--max-new-tokens", self.max_new_tokens),
            ("--batch", self.batch),
        ] {
            ensure!(number != 0, "{name} must be at least 1");
        }
        Ok(())
    }

    fn check_origins(&self) -> Result<()> {
        for origin in &self.origins {
            if origin != "*" && !is_origin(origin) {
                bail!(
                    "--cors {origin} is no origin: expected SCHEME://NAME or SCHEME://NAME:PORT \
                     with nothing after it, or *"
                );
            }
        }
        Ok(())
    }

    fn check_times(&self) -> Result<()> {
        // The largest limit is a day.
        for (name, seconds) in
            [("--timeout", self.timeout), ("--document-timeout", self.document_timeout)]
        {
            if !(seconds > 0.0 && seconds <= 86_400.0) {
                bail!("{name} {seconds} must be above 0 and at most 86400");
            }
        }
        Ok(())
    }
}

/// Parses an address with its port. Unlike the standard library, it knows network interfaces by
/// name, which link-local addresses need: `[fe80::1%eth0]:7878`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let scoped = text.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    match (text.parse::<SocketAddr>(), scoped) {
        (Err(_), Some((address, port))) if address.contains('%') => {
            let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
            let resolved = (address, port).to_socket_addrs().map_err(|error| error.to_string())?;
            resolved.into_iter().next().ok_or_else(|| "no such network interface".to_owned())
        }
        (address, _) => address.map_err(|error| error.to_string()),
    }
}

/// Whether a text is an origin as browsers send it, in ASCII and without a path.
fn is_origin(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_graphic() && !b"/?#@".contains(&byte);
    text.split_once("://").is_some_and(|parts| {
        [parts.0, parts.1].iter().all(|part| !part.is_empty() && part.bytes().all(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_a_scope() {
        for text in ["127.0.0.1:7878", "[::1]:0", "[fe80::1%7]:7878"] {
            assert_eq!(address(text).map(|address| address.to_string()), Ok(text.to_owned()));
        }
        for text in ["127.0.0.1", "localhost", "[fe80::1%no such]:7878", "[fe80::1%lo]:x", "%:1"] {
            assert!(address(text).is_err(), "{text}");
        }
        // Linux has the loopback interface everywhere.
        #[cfg(target_os = "linux")]
        assert!(address("[fe80::1%lo]:7878").is_ok_and(|address| address.port() == 7878));
    }
}
