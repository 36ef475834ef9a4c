//! Translated files, stored until they are fetched.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Refusal;

/// Time for which a file is stored.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// Largest number of stored files; the oldest ones are removed.
const FILES: usize = 64;
const BYTES: usize = 16 << 20;

/// Translated files in memory, stored until they are fetched.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<VecDeque<Waiting>>);

#[derive(Debug)]
struct Waiting {
    /// Secret in its address: anyone who knows it may have the file.
    secret: String,
    name: String,
    content: String,
    since: Instant,
}

impl Files {
    /// Stores a file for a while, and returns the name for its address.
    ///
    /// # Errors
    /// When the system has no random bits.
    pub(crate) fn keep(&self, name: &str, content: String) -> Result<String, Refusal> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|error| Refusal::Failed(format!("no random bits: {error}")))?;
        let secret = taper_data::hexadecimal(&bits);
        let name = plain(name);
        let asked = format!("{secret}.{name}");
        self.put(Waiting { secret, name, content, since: Instant::now() });
        Ok(asked)
    }

    fn put(&self, file: Waiting) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = file.since;
        waiting.push_back(file);
        let mut bytes: usize = waiting.iter().map(|file| file.content.len()).sum();
        // The newest file is stored at any size.
        while waiting.len() > 1
            && (waiting.len() > FILES
                || bytes > BYTES
                || waiting.front().is_some_and(|oldest| now - oldest.since > KEPT))
        {
            bytes -= waiting.pop_front().map_or(0, |oldest| oldest.content.len());
        }
    }

    /// Name and content of a file.
    pub(crate) fn find(&self, asked: &str) -> Option<(String, String)> {
        let secret = asked.split('.').next().unwrap_or_default();
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file = waiting.iter().find(|file| file.secret == secret)?;
        (file.since.elapsed() <= KEPT).then(|| (file.name.clone(), file.content.clone()))
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

    #[test]
    fn files_wait_for_a_while_and_the_oldest_make_room() {
        let files = Files::default();
        let first = files.keep("Brief an \"Anna\"\r\n.txt", "eins".to_owned()).expect("kept");
        assert!(first.ends_with(".Brief_an__Anna___.txt"), "{first}");
        let found = ("Brief_an__Anna___.txt".to_owned(), "eins".to_owned());
        assert_eq!(files.find(&first), Some(found));
        assert_eq!(files.find("0123.a.txt"), None);
        assert_eq!(files.find(""), None);
        for number in 0..FILES {
            files.keep("a.txt", number.to_string()).expect("kept");
        }
        assert_eq!(files.find(&first), None, "there were too many");
        let large = files.keep("b.txt", "x".repeat(BYTES + 1)).expect("kept");
        assert!(files.find(&large).is_some());
        assert_eq!(files.0.lock().expect("files").len(), 1);
        let Some(past) = Instant::now().checked_sub(2 * KEPT) else { return };
        let file = |secret: &str, since| Waiting {
            secret: secret.to_owned(),
            name: "c.txt".to_owned(),
            content: String::new(),
            since,
        };
        files.put(file("old", past));
        assert_eq!(files.find("old"), None, "its time is over");
    }
}
