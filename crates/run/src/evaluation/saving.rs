//! Files in a run (the folder of a trained model) with the results of the model on its test sets.

use std::fs;

use anyhow::{Context, Result};

use super::TestSetResult;
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;

/// Writes results into the run: the file `scores.json` and, for each split, files with translations
/// and their links to the sources, or with captions.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn save(folder: &RunFolder, results: &[TestSetResult]) -> Result<()> {
    let json = serde_json::to_vec_pretty(results).context("scores are not JSON")?;
    write_atomically(&folder.scores(), &json)?;
    for result in results {
        let (split, written, links) = match result {
            TestSetResult::Translated(result) => {
                (&result.split, &result.translations, result.links.as_deref())
            }
            TestSetResult::Captioned(result) => (&result.split, &result.captions, None),
            _ => continue,
        };
        let path = folder.translations(split);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
        }
        let mut text = written.join("\n");
        text.push('\n');
        // Links of earlier translations are removed first, because they do not belong to the new
        // translations.
        let of_links = folder.translation_links(split);
        if fs::exists(&of_links).unwrap_or(false) {
            fs::remove_file(&of_links)
                .with_context(|| format!("cannot remove {}", of_links.display()))?;
        }
        write_atomically(&path, text.as_bytes())?;
        if let Some(links) = links {
            let mut lines = String::new();
            for link in links {
                lines += &serde_json::to_string(link).context("links are not JSON")?;
                lines.push('\n');
            }
            write_atomically(&of_links, lines.as_bytes())?;
        }
    }
    Ok(())
}
