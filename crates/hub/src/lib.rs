//! Upload and download of model folders, to and from the [Hugging Face
//! hub](https://huggingface.co/docs/hub/api) or another server with the same API.
//!
//! [`push`] uploads a folder as one commit. Large files are uploaded first, by Git LFS. Small files
//! are sent within the commit. [`pull`] downloads the files of one revision into a folder. If an
//! earlier call was interrupted, it downloads only what is missing. It compares each file with the
//! hub's checksum.

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
    /// The transfer of a file begins.
    Transfers {
        /// Path in the repository.
        path: &'a str,
        /// First byte that is transferred. It is above 0 if an earlier call transferred a part.
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
