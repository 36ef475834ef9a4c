//! Errors of uploads and downloads. Most messages say what the user can do.

use std::path::{Path, PathBuf};

/// Error of a transfer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name of a repository is not `owner/name`.
    #[error("{0:?} is not a repository: expected owner/name, with letters, digits, -, _ and .")]
    Repository(String),
    /// The status is 401, and the request had no token.
    #[error(
        "{subject}: the hub asks for a token (401): set HF_TOKEN, or write it to the file that \
         HF_TOKEN_PATH names; https://huggingface.co/settings/tokens makes one"
    )]
    NoToken {
        /// Request or file that the error is about.
        subject: String,
    },
    /// The status is 401, although the request had a token.
    #[error(
        "{subject}: the hub does not accept the token (401): it may have expired, make another"
    )]
    Token {
        /// Request or file that the error is about.
        subject: String,
    },
    /// The status is 403: the token does not permit the request.
    #[error(
        "{subject}: the token may not do this (403){message}: it needs the right to write there, or \
         for a gated model your consent on its page"
    )]
    Forbidden {
        /// Request or file that the error is about.
        subject: String,
        /// Message of the hub in quotation marks, after a comma; empty if there is none.
        message: String,
    },
    /// The status is 404: the repository, revision or file does not exist.
    #[error(
        "{subject}: not there (404){message}: check the name and --revision; a private repository \
         is there with a token alone (HF_TOKEN)"
    )]
    Missing {
        /// Request or file that the error is about.
        subject: String,
        /// Message of the hub in quotation marks, after a comma; empty if there is none.
        message: String,
    },
    /// The status is 409 or 412: the repository was changed at the same time.
    #[error(
        "{subject}: another change came first ({status}){message}: look at it, and run the same \
         command again"
    )]
    Conflict {
        /// Request or file that the error is about.
        subject: String,
        /// Status of the answer.
        status: u16,
        /// Message of the hub in quotation marks, after a comma; empty if there is none.
        message: String,
    },
    /// Any other status that is not a success.
    #[error("{subject}: the hub answers {status}{message}{}", advice(*.status))]
    Refused {
        /// Request or file that the error is about.
        subject: String,
        /// Status of the answer.
        status: u16,
        /// Message of the hub in quotation marks, after a comma; empty if there is none.
        message: String,
    },
    /// The hub does not answer.
    #[error(
        "{subject}: no answer from {endpoint} ({message}): check the network and HF_ENDPOINT; the \
         same command continues where it stopped"
    )]
    Network {
        /// Request or file that the error is about.
        subject: String,
        /// Address of the hub.
        endpoint: String,
        /// Cause of the error, as text.
        message: String,
    },
    /// An answer does not follow the API.
    #[error("{subject}: not an answer of the hub's API ({message}): check HF_ENDPOINT")]
    Answer {
        /// Request or file that the error is about.
        subject: String,
        /// Cause of the error, as text.
        message: String,
    },
    /// A file of the folder cannot be read or written, or must not be replaced.
    #[error("{}: {message}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the error, as text.
        message: String,
    },
    /// The content of a file differs from the hub's checksum.
    #[error(
        "{path}: the bytes that came have another checksum than the hub names; they are removed: \
         run the same command again"
    )]
    Damaged {
        /// Path of the file in the repository.
        path: String,
    },
}

impl HubError {
    pub(crate) fn file(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::File { path: path.to_owned(), message: error.to_string() }
    }

    /// Makes the error for an HTTP status, with the hub's own message.
    pub(crate) fn status(subject: &str, status: u16, message: &str, has_token: bool) -> Self {
        let subject = subject.to_owned();
        let message = match message {
            "" => String::new(),
            message => format!(", {message:?}"),
        };
        match status {
            401 if has_token => Self::Token { subject },
            401 => Self::NoToken { subject },
            403 => Self::Forbidden { subject, message },
            404 => Self::Missing { subject, message },
            409 | 412 => Self::Conflict { subject, status, message },
            _ => Self::Refused { subject, status, message },
        }
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        429 => ": too many requests, try again later",
        500.. => ": the error is on its side, try again later",
        _ => "",
    }
}
