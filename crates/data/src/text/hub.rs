//! Fetches data sets from the Hugging Face hub, in the Parquet form that the hub makes of each data
//! set.
//!
//! `candle_datasets::hub::from_hub` fetches the Parquet files of all configurations and splits
//! without distinguishing them. So this module selects the files of one folder
//! (`{config}/{split}/`) itself, and fetches them with the HTTP client and the cache that
//! `from_hub` uses.
//!
//! The client needs an HTTP and a TLS stack, which are nearly half of all dependencies, so it is
//! behind the cargo feature `hub`. Without the feature, an error says how to build the program with
//! it.

use std::path::PathBuf;

use crate::{DataConfig, Error, Result};

/// Returns an error, because this program was built without the feature `hub`. The error says how
/// to build a program that can read data sets of the hub.
///
/// # Errors
///
/// Always [`Error::Hub`].
#[cfg(not(feature = "hub"))]
pub(crate) fn hub_files(config: &DataConfig, _split: &str) -> Result<Vec<PathBuf>> {
    Err(Error::Hub {
        dataset: config.hub.dataset.clone(),
        message: "this program was built without access to the hub; build it with the cargo feature `hub` \
                  (cargo install --path crates/cli --features hub), or fetch the Parquet files and set \
                  data.format = \"parquet\""
            .to_owned(),
    })
}

/// Branch on which the hub keeps the Parquet form of a data set.
#[cfg(feature = "hub")]
const REVISION: &str = "refs/convert/parquet";

/// Paths of the Parquet files of a split, in order. Files that are not in the local cache are
/// fetched.
#[cfg(feature = "hub")]
pub(crate) fn hub_files(config: &DataConfig, split: &str) -> Result<Vec<PathBuf>> {
    use hf_hub::{HFClientSync, split_id};

    let dataset = &config.hub.dataset;
    let failed = |error: &dyn std::fmt::Display| Error::Hub {
        dataset: dataset.clone(),
        message: format!(
            "{}; check the id, the network and, for a private data set, the hub token",
            without_credentials(&error.to_string())
        ),
    };
    let client = HFClientSync::new().map_err(|error| failed(&error))?;
    let (owner, name) = split_id(dataset);
    let repository = client.dataset(owner, name);
    let listing = repository.info().revision(REVISION).send().map_err(|error| failed(&error))?;
    let names: Vec<String> =
        listing.siblings.unwrap_or_default().into_iter().map(|sibling| sibling.rfilename).collect();
    select_files(&names, &config.hub.config, split)
        .map_err(|message| Error::Hub { dataset: dataset.clone(), message })?
        .into_iter()
        .map(|name| {
            let request = repository.download_file().filename(name).revision(REVISION);
            // The cache is searched first, so that a second run needs no network for the file
            // itself.
            match request.clone().local_files_only(true).send() {
                Err(hf_hub::HFError::LocalEntryNotFound { .. }) => request.send(),
                cached => cached,
            }
            .map_err(|error| failed(&error))
        })
        .collect()
}

/// Removes the user name, the password and the query from each address in `text`, because they can
/// give access to a file. For example, a query can contain a signature.
#[cfg(any(feature = "hub", test))]
fn without_credentials(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_end = |letter: char| letter.is_whitespace() || "()\"'<>,;".contains(letter);
        let (address, rest) = part.split_at(part.find(is_end).unwrap_or(part.len()));
        let address = address.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        shown += &format!("://{host}{path}{rest}");
    }
    shown
}

/// Names of the files under `{configuration}/{split}/`, sorted. `configuration` may be empty if
/// there is only one configuration.
#[cfg(any(feature = "hub", test))]
fn select_files<'a>(
    names: &'a [String],
    configuration: &str,
    split: &str,
) -> Result<Vec<&'a str>, String> {
    let mut configurations: Vec<&str> = names.iter().filter_map(|name| folder(name, 0)).collect();
    configurations.sort_unstable();
    configurations.dedup();
    let chosen = match (configuration, configurations.as_slice()) {
        ("", [only]) => *only,
        ("", []) => return Err("has no Parquet form on the hub".to_owned()),
        ("", _) => {
            return Err(format!(
                "has several configurations; set data.hub.config to one of {}",
                configurations.join(", ")
            ));
        }
        (named, _) => named,
    };
    let mut files: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| folder(name, 0) == Some(chosen) && folder(name, 1) == Some(split))
        .collect();
    files.sort_unstable();
    if files.is_empty() {
        return Err(format!(
            "has no split {split:?} in configuration {chosen:?} (configurations: {})",
            configurations.join(", ")
        ));
    }
    Ok(files)
}

/// Name of a folder in the path of a Parquet file: its configuration at depth 0, its split at depth
/// 1. `None` for other files.
#[cfg(any(feature = "hub", test))]
fn folder(name: &str, depth: usize) -> Option<&str> {
    let parts: Vec<&str> = name.split('/').collect();
    let is_data = parts.len() == 3 && name.ends_with(".parquet");
    is_data.then(|| parts[depth])
}

#[cfg(test)]
mod tests {
    use super::{select_files, without_credentials};

    #[test]
    fn addresses_in_errors_give_no_access() {
        assert_eq!(
            without_credentials(
                "403 (url=https://me:secret@cdn.example/a/b?Signature=secret), from http://x:y@h"
            ),
            "403 (url=https://cdn.example/a/b), from http://h"
        );
        assert_eq!(without_credentials("it failed: a@b?"), "it failed: a@b?");
    }

    fn listing() -> Vec<String> {
        [
            "README.md",
            "de-en/train/0001.parquet",
            "de-en/train/0000.parquet",
            "de-en/test/0000.parquet",
            "fr-en/train/0000.parquet",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn a_split_is_selected_in_order() {
        let names = listing();
        let files = select_files(&names, "de-en", "train").unwrap();
        assert_eq!(files, ["de-en/train/0000.parquet", "de-en/train/0001.parquet"]);
    }

    #[test]
    fn the_message_lists_the_configurations() {
        let names = listing();
        let several = select_files(&names, "", "train").unwrap_err();
        assert!(several.contains("de-en, fr-en"), "{several}");
        let missing = select_files(&names, "fr-en", "test").unwrap_err();
        assert!(missing.contains("no split \"test\""), "{missing}");
    }

    #[test]
    fn a_lone_configuration_needs_no_name() {
        let names = vec!["default/train/0000.parquet".to_owned()];
        assert_eq!(select_files(&names, "", "train").unwrap().len(), 1);
    }
}
