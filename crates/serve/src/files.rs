//! Translated files, which are stored for a limited time so that clients can fetch them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

use crate::error::Refusal;

/// Time for which a file is stored.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// Largest number of stored files; beyond it, the oldest files are removed.
const FILES: usize = 1024;
/// Largest size of all stored files; beyond it, the oldest files are removed. With the default
/// limits, the translations of all documents that are in progress at the same time fit into it,
/// even if each is twice as long as its document. So no file is removed before its client can fetch
/// it.
const BYTES: usize = 64 << 20;

/// Translated files in memory. A file can be fetched several times, until its time is over or newer
/// files need its place.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<VecDeque<Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Secret in the address: anyone who knows it can fetch the file.
    secret: String,
    file: KeptFile,
    since: Instant,
}

/// A translated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFile {
    /// Name of the file. [`Files::keep`] replaces characters that would need escaping in addresses
    /// and headers.
    pub(crate) name: String,
    pub(crate) media_type: &'static str,
    pub(crate) content: Bytes,
}

impl Files {
    /// Stores a file for a limited time. Returns the name with which [`Self::find`] finds the file;
    /// this name is also the last part of the file's address.
    ///
    /// # Errors
    /// When the system has no random bits.
    pub(crate) fn keep(&self, mut file: KeptFile) -> Result<String, Refusal> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|error| Refusal::Failed(format!("no random bits: {error}")))?;
        let secret = taper_data::hexadecimal(&bits);
        file.name = plain(&file.name);
        let asked = format!("{secret}.{}", file.name);
        self.put(Waiting { secret, file, since: Instant::now() });
        Ok(asked)
    }

    fn put(&self, file: Waiting) {
        let mut waiting = self.current();
        waiting.push_back(file);
        let mut bytes: usize = waiting.iter().map(|one| one.file.content.len()).sum();
        // The newest file is never removed here, even if it alone is larger than the limit.
        while waiting.len() > 1 && (waiting.len() > FILES || bytes > BYTES) {
            bytes -= waiting.pop_front().map_or(0, |oldest| oldest.file.content.len());
        }
    }

    /// Returns the file that is stored under the name `asked`; `None` if there is none, or its time
    /// is over.
    pub(crate) fn find(&self, asked: &str) -> Option<KeptFile> {
        let secret = asked.split('.').next().unwrap_or_default();
        self.current().iter().find(|kept| kept.secret == secret).map(|kept| kept.file.clone())
    }

    /// Removes the files whose time is over, and returns the others.
    fn current(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.since.elapsed() <= KEPT);
        waiting
    }
}

/// Reduces a name to ASCII letters, digits, dots, hyphens and underscores, which need no escaping
/// in addresses and headers.
fn plain(name: &str) -> String {
    let fits = |character: char| {
        if character.is_ascii_alphanumeric() || ".-_".contains(character) { character } else { '_' }
    };
    name.chars().take(100).map(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Limits;

    fn file(name: &str, content: &str) -> KeptFile {
        let content = Bytes::from(content.to_owned());
        KeptFile { name: name.to_owned(), media_type: "text/plain", content }
    }

    #[test]
    fn files_of_documents_that_are_translated_at_the_same_time_are_all_kept() {
        let (files, limits) = (Files::default(), Limits::default());
        let content = "x".repeat(2 * limits.document_bytes);
        let keep = |_| files.keep(file("a.txt", &content)).expect("kept");
        let kept: Vec<String> = (0..limits.documents).map(keep).collect();
        assert!(kept.iter().all(|name| files.find(name).is_some()));
    }

    #[test]
    fn files_wait_for_a_while_and_the_oldest_make_room() {
        let files = Files::default();
        let first = files.keep(file("Brief an \"Anna\"\r\n.txt", "eins")).expect("kept");
        assert!(first.ends_with(".Brief_an__Anna___.txt"), "{first}");
        assert_eq!(files.find(&first), Some(file("Brief_an__Anna___.txt", "eins")));
        assert_eq!(files.find("0123.a.txt"), None);
        assert_eq!(files.find(""), None);
        for number in 0..FILES {
            files.keep(file("a.txt", &number.to_string())).expect("kept");
        }
        assert_eq!(files.find(&first), None, "there were too many");
        let large = files.keep(file("b.txt", &"x".repeat(BYTES + 1))).expect("kept");
        assert!(files.find(&large).is_some());
        assert_eq!(files.0.lock().expect("files").len(), 1);
        let Some(past) = Instant::now().checked_sub(2 * KEPT) else { return };
        files.put(Waiting { secret: "old".to_owned(), file: file("c.txt", ""), since: past });
        assert_eq!(files.find("old"), None, "its time is over");
        let files = Files::default();
        files.put(Waiting { secret: "old".to_owned(), file: file("c.txt", ""), since: past });
        assert_eq!(files.find("new"), None);
        assert!(files.0.lock().expect("files").is_empty(), "its time is over");
    }
}
