//! Resolution of relative paths in a configuration.
//!
//! A path in a recipe is relative to the recipe's folder, and a path on the command line is
//! relative to the current folder. A run (the folder that a training writes) stores absolute paths,
//! so that commands on it work from any folder. A path of a file inside the run is stored relative
//! to the run, because the run may be moved.

use std::path::{Component, Path, PathBuf};

use taper_data::{Corpora, DataConfig};
use toml::{Table, Value};

use super::RunConfig;

/// Keys of [data] whose values are paths.
const PATHS: [&[&str]; 3] = [&["dir"], &["tokenizer", "path"], &["tokenizer", "target_path"]];

/// Keys of [data] whose values are corpora.
const CORPORA: [&str; 3] = ["train", "validation", "test"];
/// Keys of a corpus whose values are paths.
const OF_CORPUS: [&str; 4] = ["source", "target", "file", "links"];

/// Other sections, each with its keys whose values are paths.
const OF_SECTIONS: [([&str; 2], [&str; 2]); 2] = [
    (["model", "embeddings"], ["file", "target_file"]),
    (["decoding", "reranking"], ["reverse", "language_model"]),
];

/// Makes the relative paths in the configuration `table` absolute; they start at the folder `base`.
pub(super) fn resolve(table: &mut Table, base: &Path) {
    for (path, keys) in OF_SECTIONS {
        let section = path
            .into_iter()
            .try_fold(&mut *table, |table, name| table.get_mut(name).and_then(Value::as_table_mut));
        let Some(section) = section else { continue };
        for key in keys {
            if let Some(value) = section.get_mut(key) {
                resolve_value(value, base);
            }
        }
    }
    let Some(data) = table.get_mut("data").and_then(Value::as_table_mut) else { return };
    for path in PATHS {
        let (last, sections) = (path[path.len() - 1], &path[..path.len() - 1]);
        let section = sections
            .iter()
            .try_fold(&mut *data, |table, name| table.get_mut(*name).and_then(Value::as_table_mut));
        if let Some(value) = section.and_then(|section| section.get_mut(last)) {
            resolve_value(value, base);
        }
    }
    resolve_corpora(data, base);
}

/// Makes the relative paths of corpora in `data` absolute; they start at the folder `base`. Other
/// paths in `data`, the section [data], stay as they are.
pub(super) fn resolve_corpora(data: &mut Table, base: &Path) {
    for key in CORPORA {
        let corpora = match data.get_mut(key) {
            Some(Value::Array(several)) => several.as_mut_slice(),
            Some(one) => std::slice::from_mut(one),
            None => continue,
        };
        for corpus in corpora.iter_mut().filter_map(Value::as_table_mut) {
            for key in OF_CORPUS {
                if let Some(value) = corpus.get_mut(key) {
                    resolve_value(value, base);
                }
            }
        }
    }
}

fn resolve_value(value: &mut Value, base: &Path) {
    if let Value::Array(several) = value {
        several.iter_mut().for_each(|value| resolve_value(value, base));
    } else if let Value::String(path) = value
        && !path.is_empty()
        && let Some(whole) = absolute(base, Path::new(path)).to_str()
    {
        *path = whole.to_owned();
    }
}

/// Joins `path` to the folder `base`, and makes the result an absolute path without `.` and `..`.
/// If the path would name another file without `..`, each `..` is kept.
pub(crate) fn absolute(base: &Path, path: &Path) -> PathBuf {
    let whole = std::path::absolute(base.join(path)).unwrap_or_else(|_| base.join(path));
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    // After a symbolic link to a folder, `..` is the folder above the link's target, and not the
    // folder that has the link. Without `..`, the path could then lead to another file.
    match (plain.canonicalize(), whole.canonicalize()) {
        (Ok(left), Ok(right)) if left != right => whole,
        (Err(_), Ok(_)) => whole,
        _ => plain,
    }
}

/// Converts `path`, which is relative to the current folder, to a path relative to `folder`. If
/// `path` or `folder` does not exist, the result is absolute. A path that is already absolute is
/// returned as it is.
pub(crate) fn seen_from(folder: &Path, path: &Path) -> PathBuf {
    let working_folder = Path::new("");
    if path.is_absolute() || folder == working_folder {
        return path.to_owned();
    }
    let (Ok(from), Ok(to)) = (folder.canonicalize(), path.canonicalize()) else {
        return absolute(working_folder, path);
    };
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(to.components().skip(common)).collect();
    if relative == working_folder { PathBuf::from(".") } else { relative }
}

/// Copy of `config` in which each absolute path is replaced by its last part, for readers on other
/// machines: the folders above it say only whose machine it was.
pub(crate) fn without_folders(config: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    let RunConfig { data, model, decoding, .. } = &mut config;
    let mut paths: Vec<&mut PathBuf> =
        vec![&mut data.dir, &mut model.embeddings.file, &mut model.embeddings.target_file];
    paths.extend(&mut data.tokenizer.path);
    paths.extend(&mut data.tokenizer.target_path);
    paths.extend(&mut decoding.reranking.reverse);
    paths.extend(&mut decoding.reranking.language_model);
    let splits: [&mut Corpora; 3] = [&mut data.train, &mut data.validation, &mut data.test];
    paths.extend(splits.into_iter().flat_map(Corpora::paths_mut));
    for path in paths {
        if path.is_absolute()
            && let Some(name) = path.file_name()
        {
            *path = name.into();
        }
    }
    config
}

/// Copy of `data` in which each corpus path inside the folder `from` is replaced by the same path
/// inside the folder `to`.
pub(crate) fn moved(data: &DataConfig, from: &Path, to: &Path) -> DataConfig {
    let mut data = data.clone();
    let splits: [&mut Corpora; 3] = [&mut data.train, &mut data.validation, &mut data.test];
    for path in splits.into_iter().flat_map(Corpora::paths_mut) {
        if let Ok(inside) = path.strip_prefix(from) {
            *path = to.join(inside);
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_base_and_names_are_not_paths() {
        let mut table: Table = "data = { dir = 'corpus', train = [{ source = 'a/x.txt', target = '/b.txt' }, 'stem'], test = { file = ['../t.tsv', 'u.*.tsv'] }, tokenizer = { path = './t.json' } }"
            .parse()
            .expect("TOML");
        resolve(&mut table, Path::new("/recipes/mine"));
        let data = &table["data"];
        assert_eq!(data["dir"].as_str(), Some("/recipes/mine/corpus"));
        assert_eq!(data["train"][0]["source"].as_str(), Some("/recipes/mine/a/x.txt"));
        assert_eq!(data["train"][0]["target"].as_str(), Some("/b.txt"));
        assert_eq!(data["train"][1].as_str(), Some("stem"));
        assert_eq!(data["test"]["file"][0].as_str(), Some("/recipes/t.tsv"));
        assert_eq!(data["test"]["file"][1].as_str(), Some("/recipes/mine/u.*.tsv"));
        assert_eq!(data["tokenizer"]["path"].as_str(), Some("/recipes/mine/t.json"));
    }

    #[test]
    fn readers_elsewhere_see_no_folders() {
        let mut config = RunConfig::default();
        config.data.dir = "/home/me/corpus".into();
        config.data.tokenizer.path = Some("/home/me/t.json".into());
        config.data.train = (&taper_data::Corpus {
            source: "/home/me/x.aa".into(),
            target: "text/x.bb".into(),
            ..Default::default()
        })
            .into();
        config.model.embeddings.file = "/home/me/vectors.txt".into();
        config.decoding.reranking.reverse = Some("/home/me/back".into());
        let text = without_folders(&config).to_toml().expect("TOML");
        assert!(!text.contains("/home"), "{text}");
        for name in ["\"corpus\"", "t.json", "x.aa", "text/x.bb", "vectors.txt", "\"back\""] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }

    #[test]
    fn what_is_seen_from_a_folder_leads_back() {
        let path_seen = |folder: &str, path: &str| seen_from(Path::new(folder), Path::new(path));
        assert_eq!(path_seen("", "text"), Path::new("text"));
        assert_eq!(path_seen("src", "/text"), Path::new("/text"));
        assert_eq!(path_seen("src", "tests"), Path::new("../tests"));
        assert_eq!(path_seen("src/config", "src"), Path::new(".."));
        assert_eq!(path_seen("src", "src"), Path::new("."));
    }

    #[test]
    fn what_lies_in_a_run_moves_with_it() {
        let file = |path: &str| {
            let corpus = taper_data::Corpus { source: path.into(), ..Default::default() };
            DataConfig { validation: (&corpus).into(), ..DataConfig::default() }
        };
        let (inside, outside) = (file("/runs/a/text/x"), file("/text/x"));
        let (from, to) = (Path::new("/runs/a"), Path::new(""));
        assert_eq!(moved(&inside, from, to), file("text/x"));
        assert_eq!(moved(&outside, from, to), outside);
    }
}
