//! Replaces patterns of file names by the matching files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::patterns::{Match, is_pattern, matches, wildcards_of};
use super::{Corpora, Corpus, FileList};
use crate::{DataConfig, Error, Format, Result, Side};

/// Replaces the patterns of a split by the files of sentence pairs that they match. A pattern
/// without a match stays as it is, and the reader refuses it later.
///
/// # Errors
///
/// If a pattern matches something that is not a file, or if the files of the two sides cannot be
/// matched to each other.
pub(crate) fn expand_pairs(config: &DataConfig, split: &mut Corpora) -> Result<()> {
    for corpus in &mut split.0 {
        if wildcards_of(Path::new(&corpus.stem)) > 0 {
            expand_stem_of_pairs(config, corpus)?;
        }
        expand_files(corpus, &[""])?;
    }
    Ok(())
}

/// Replaces the patterns of a split by the matching files, for corpora that have no separate files
/// for source and target. Each of `endings` is tried as the end of a pattern: with `.txt`, the
/// pattern `a*` also matches the file `ab.txt`.
pub(crate) fn expand_texts(
    config: &DataConfig,
    split: &mut Corpora,
    endings: &[&str],
) -> Result<()> {
    for corpus in &mut split.0 {
        if wildcards_of(Path::new(&corpus.stem)) > 0 && is_pattern(&config.dir.join(&corpus.stem)) {
            let named =
                Corpus { file: config.dir.join(&corpus.stem).into(), ..without_stem(corpus) };
            take_if_matched(corpus, named, endings)?;
        }
        expand_files(corpus, endings)?;
    }
    Ok(())
}

fn expand_stem_of_pairs(config: &DataConfig, corpus: &mut Corpus) -> Result<()> {
    let path = |ending: &str| config.dir.join(format!("{}.{ending}", corpus.stem));
    let config = &config.in_languages(&config.direction_of(corpus));
    let side = |side| FileList::from(path(config.language(side)));
    let mut named = without_stem(corpus);
    match config.format {
        Format::Text => (named.source, named.target) = (side(Side::Source), side(Side::Target)),
        format => match format.ending() {
            Some(ending) => named.file = path(ending).into(),
            // In a data set on the Hugging Face hub, a stem is the name of a split, and there are
            // no files to match.
            None => return Ok(()),
        },
    }
    take_if_matched(corpus, named, &[""])
}

fn without_stem(corpus: &Corpus) -> Corpus {
    Corpus { stem: String::new(), ..corpus.clone() }
}

/// Expands the patterns of `named`, which is a copy of `corpus` with paths instead of a stem. If
/// all patterns have a match, replaces `corpus` by `named`.
fn take_if_matched(corpus: &mut Corpus, mut named: Corpus, endings: &[&str]) -> Result<()> {
    expand_files(&mut named, endings)?;
    let files = named.source.iter().chain(named.file.iter());
    if !files.into_iter().any(|path| is_pattern(path)) {
        *corpus = named;
    }
    Ok(())
}

/// Replaces the patterns of a corpus by files. The files of targets and of word links are put into
/// the order of the source files to which they belong.
fn expand_files(corpus: &mut Corpus, endings: &[&str]) -> Result<()> {
    let Corpus { source, target, file, links, .. } = corpus;
    let lead = if file.is_empty() { source } else { file };
    let others = [target, links];
    let counts_fit = others.iter().all(|other| other.is_empty() || other.len() == lead.len());
    let any = |files: &FileList| files.iter().any(|path| is_pattern(path));
    // Wrong numbers of files are reported later, when the corpus is validated.
    if !counts_fit || !(any(lead) || others.iter().any(|other| any(other))) {
        return Ok(());
    }
    let mut expanded: [Vec<PathBuf>; 2] = Default::default();
    let mut leading = Vec::new();
    for (place, first) in lead.iter().enumerate() {
        let of_first = named(first, endings)?;
        for (other, expanded) in others.iter().zip(&mut expanded) {
            if let Some(second) = other.get(place) {
                expanded.extend(beside((first, &of_first), (second, named(second, endings)?))?);
            }
        }
        leading.extend(of_first.into_iter().map(|one| one.path));
    }
    *lead = leading.into();
    for (other, expanded) in others.into_iter().zip(expanded) {
        *other = expanded.into();
    }
    Ok(())
}

/// Files that match `path` if it is a pattern with matches; otherwise `path` itself.
fn named(path: &Path, endings: &[&str]) -> Result<Vec<Match>> {
    let matches_of_pattern = if is_pattern(path) { matches(path, endings)? } else { Vec::new() };
    let itself = || vec![Match { path: path.to_owned(), stands_for: String::new() }];
    Ok(if matches_of_pattern.is_empty() { itself() } else { matches_of_pattern })
}

/// Returns the files `of_second`, which match the pattern `second`, in the order of the files
/// `of_first`, which match the pattern `first`. So two files that belong together have the same
/// index. Two files belong together if the wildcards of the patterns match the same text in their
/// names. If the patterns have different numbers of wildcards, the order of the files is not
/// changed.
fn beside(
    (first, of_first): (&Path, &[Match]),
    (second, of_second): (&Path, Vec<Match>),
) -> Result<Vec<PathBuf>> {
    let wrong = |message: String| Err(Error::Malformed { path: second.to_owned(), message });
    let count = |path: &Path, matched: &[Match]| match matched {
        [one] if one.path == path && is_pattern(path) => 0,
        matched => matched.len(),
    };
    let counts = [count(first, of_first), count(second, &of_second)];
    let matches_of_first = format!("{} matches {}", first.display(), counts[0]);
    let alike = is_pattern(first)
        && is_pattern(second)
        && wildcards_of(first) == wildcards_of(second)
        && counts[0] > 0
        && counts[1] > 0;
    if !alike {
        if counts[0] != counts[1] {
            return wrong(format!(
                "matches {} files, but {matches_of_first}: each file needs one counterpart",
                counts[1]
            ));
        }
        return Ok(of_second.into_iter().map(|one| one.path).collect());
    }
    let by_wildcards = |matched: &'_ [Match]| -> HashMap<String, PathBuf> {
        matched.iter().map(|one| (one.stands_for.clone(), one.path.clone())).collect()
    };
    let (firsts, mut seconds) = (by_wildcards(of_first), by_wildcards(&of_second));
    for (pattern, matched, others) in [(second, of_first, &seconds), (first, &of_second, &firsts)] {
        if let Some(alone) = matched.iter().find(|one| !others.contains_key(&one.stands_for)) {
            return wrong(format!(
                "matches {} files, and {matches_of_first}; no file that {} matches belongs to {}: \
                 wildcards have to stand for the same text in both names",
                counts[1],
                pattern.display(),
                alone.path.display()
            ));
        }
    }
    Ok(of_first.iter().filter_map(|one| seconds.remove(&one.stands_for)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("folder");
        for name in names {
            std::fs::write(folder.path().join(name), "").expect("write");
        }
        folder
    }

    fn names(files: &FileList) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
        files.iter().filter_map(name).collect()
    }

    #[test]
    fn sides_come_in_the_order_of_their_source() {
        // If both sides were sorted by name, `a-b` would be before `a` on one side, and after it on
        // the other.
        let folder = folder(&["a,en", "a-b,en", "a_de", "a-b_de", "a.links", "a-b.links"]);
        let path = |name: &str| FileList::from(folder.path().join(name));
        let mut corpora = Corpora(vec![Corpus {
            source: path("*,en"),
            target: path("*_de"),
            links: path("*.links"),
            ..Corpus::default()
        }]);
        expand_pairs(&DataConfig::default(), &mut corpora).expect("they fit");
        assert_eq!(names(&corpora[0].source), ["a,en", "a-b,en"]);
        assert_eq!(names(&corpora[0].target), ["a_de", "a-b_de"]);
        assert_eq!(names(&corpora[0].links), ["a.links", "a-b.links"]);
        assert_eq!(corpora[0].name(), "a");
        let before = corpora.clone();
        expand_pairs(&DataConfig::default(), &mut corpora).expect("nothing left");
        assert_eq!(corpora, before);
    }

    #[test]
    fn stems_are_patterns_too() {
        let folder = folder(&["t.1.en", "t.2.en.gz", "t.1.de", "t.2.de", "x.1.tsv", "x.txt.gz"]);
        let config = DataConfig { dir: folder.path().to_owned(), ..DataConfig::default() };
        let mut corpora = Corpora::from("t.*");
        expand_pairs(&config, &mut corpora).expect("they fit");
        assert_eq!(names(&corpora[0].source), ["t.1.en", "t.2.en.gz"]);
        assert_eq!(names(&corpora[0].target), ["t.1.de", "t.2.de"]);
        assert_eq!((corpora[0].name().as_str(), corpora[0].stem.as_str()), ("t", ""));
        let path = |name: &str| FileList::from(folder.path().join(name));
        let (source, target) = (path("t.[12].en*"), path("t.[12].de*"));
        let mut at_the_end = Corpora(vec![Corpus { source, target, ..Corpus::default() }]);
        expand_pairs(&config, &mut at_the_end).expect("they fit");
        assert_eq!(names(&at_the_end[0].source), ["t.1.en", "t.2.en.gz"]);
        assert_eq!(names(&at_the_end[0].target), ["t.1.de", "t.2.de"]);
        let mut table = Corpora::from("x.?");
        let config = DataConfig { format: Format::Tsv, ..config };
        expand_pairs(&config, &mut table).expect("readable");
        assert_eq!(names(&table[0].file), ["x.1.tsv"]);
        let mut text = Corpora::from("?");
        expand_texts(&config, &mut text, &["", ".txt.gz"]).expect("readable");
        assert_eq!(names(&text[0].file), ["x.txt.gz"]);
        let mut nothing = Corpora::from("y.*");
        expand_texts(&config, &mut nothing, &["", ".txt.gz"]).expect("stays");
        assert_eq!(nothing, Corpora::from("y.*"));
    }

    #[test]
    fn sides_that_do_not_belong_together_are_refused() {
        let folder = folder(&["t.1.en", "t.2.en", "t.1.de", "t.3.de", "u.1.de"]);
        let refused = |target: &str, phrases: &[&str]| {
            let path = |name: &str| FileList::from(folder.path().join(name));
            let corpus =
                Corpus { source: path("t.*.en"), target: path(target), ..Corpus::default() };
            let mut corpora = Corpora(vec![corpus]);
            let error = expand_pairs(&DataConfig::default(), &mut corpora).expect_err("refused");
            let error = error.to_string();
            assert!(phrases.iter().all(|phrase| error.contains(phrase)), "{error}");
        };
        refused("t.*.de", &["t.*.de: matches 2 files", "t.*.en matches 2", "t.2.en"]);
        refused("u.*.de", &["u.*.de: matches 1 files", "t.*.en matches 2", "t.2.en"]);
        refused("v.*.de", &["v.*.de: matches 0 files", "t.*.en matches 2"]);
        refused("t.1.de", &["t.1.de: matches 1 files", "t.*.en matches 2"]);
    }
}
