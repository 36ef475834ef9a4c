//! Upload and download of model folders for the [Hugging Face
//! hub](https://huggingface.co/docs/hub/api), or a server with its API.
//!
//! [`push`] uploads a folder as one commit: small files within the commit, large ones before it by
//! Git LFS. [`pull`] downloads a folder of one revision; it continues files that an earlier call
//! has begun, and compares each with the checksum of the hub.

mod checksums;
mod connection;
mod error;
mod lfs;
mod pull;
mod push;

pub use connection::Hub;
pub use error::HubError;
pub use pull::{Pulled, pull};
pub use push::{PushSettings, Pushed, push};

/// Result of a transfer.
pub type Result<T> = std::result::Result<T, HubError>;

/// Step of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubEvent<'a> {
    /// A file of `bytes` bytes is transferred from the byte `from` on.
    Transfers {
        /// Path in the repository.
        path: &'a str,
        /// First byte that is transferred.
        from: u64,
        /// Bytes of the whole file.
        bytes: u64,
    },
    /// A file is there already.
    IsThere {
        /// Path in the repository.
        path: &'a str,
    },
}
