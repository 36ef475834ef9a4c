//! Upload and download of model folders, to and from the [Hugging Face
//! hub](https://huggingface.co/docs/hub/api) or another server with the same API.
//!
//! [`push`] uploads a folder as one commit: small files are sent within the commit, and large files
//! before it, by Git LFS. [`pull`] downloads the files of one revision into a folder. It continues
//! files that an earlier call has begun, and compares each file with the hub's checksum.

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
        /// Number of bytes of the whole file.
        bytes: u64,
    },
    /// A file needs no transfer, because the destination has it already.
    IsThere {
        /// Path in the repository.
        path: &'a str,
    },
}
