//! Translation in a browser: a run (the folder of a trained model) is exported as an HTML page in a
//! single file, which needs no server.
//!
//! The page contains the weights in int8, the tokenizers, the recipe (configuration) and, if the
//! recipe uses one, the shortlist of target tokens. It also contains a WebAssembly module, which
//! `scripts/package/web.sh` compiles from `taper-web`. The module reads everything else as the
//! files of a run, so a browser translates with the same code as any other program.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use taper_plots::{Language, Page, escape};
use taper_trainer::{MODEL_FILE, STATE_FILE, State, checkpoint_name, read_state, state_json};

use crate::config::paths::without_folders;
use crate::config::{RunConfig, recipe, trained_with};
use crate::folder::RunFolder;
use crate::folder::files::{with_suffix, write_atomically};
use crate::quantize;
use crate::shortlist::{RunShortlist, SHORTLIST_FILE};
use crate::tasks::entry;

/// Script of the worker thread on which the WebAssembly module runs, with a file system for the
/// module.
const WORKER: &str = concat!(include_str!("files.js"), include_str!("worker.js"));
/// First bytes of every WebAssembly module.
const MAGIC: &[u8] = b"\0asm";

/// Result of [`write_page`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserPage {
    /// Size of the page in bytes.
    pub bytes: usize,
    /// Number of updates after which the weights were saved.
    pub step: u64,
}

/// Settings of [`write_page`].
#[derive(Debug, Clone, Copy)]
pub struct BrowserPageSettings<'a> {
    /// Name of the checkpoint whose weights the page gets; `None` for the run's default checkpoint.
    pub checkpoint: Option<&'a str>,
    /// Content of the file with the WebAssembly module.
    pub module: &'a [u8],
    /// Language of the texts on the page.
    pub language: Language,
    /// Whether an existing file may be overwritten.
    pub replaces: bool,
}

/// Writes to the file `page` an HTML page that translates with the run at `root`.
///
/// # Errors
/// When the run does not translate, has several directions or adapters, chooses translations with
/// other runs, lacks the shortlist that its recipe uses, or cannot be read. When the page exists
/// and is not to be replaced, or cannot be written. When the module is not WebAssembly.
pub fn write_page(
    root: &Path,
    settings: BrowserPageSettings<'_>,
    page: &Path,
) -> Result<BrowserPage> {
    let BrowserPageSettings { checkpoint, module, language, replaces } = settings;
    ensure!(module.starts_with(MAGIC), "the module is not WebAssembly; make it again");
    ensure!(replaces || !page.exists(), "{} exists already and is left as it is", page.display());
    let config = RunFolder::open(root)?.load_config(&[])?;
    ensure!(
        entry(config.task).translates,
        "a run of the task {} cannot be exported for browsers: they only translate",
        config.task
    );
    ensure!(
        !config.data.is_multilingual(),
        "{}: the run has several directions, and a page can have only one; train a run of one \
         direction",
        root.display()
    );
    ensure!(
        config.decoding.reranking.models().next().is_none(),
        "{}: decoding.reranking chooses translations with other runs, and a page has only one run: \
         set decoding.reranking.candidates = 0 in the run's config.toml",
        root.display()
    );
    if config.decoding.shortlist {
        RunShortlist::new(root, config.task.load_tokenizers(root)?.hash()).get()?;
    }
    let checkpoint = RunFolder::open(root)?.checkpoint(checkpoint)?;
    let state = read_state(&checkpoint)?;
    let files = match state.int8_of {
        Some(_) => run_files(root, &checkpoint)?,
        None => rounded_files(
            root,
            &checkpoint,
            &with_suffix(page, &format!(".{}.run", std::process::id())),
        )?,
    };
    let html = html(&config, &files, module, language)?;
    write_atomically(page, html.as_bytes())?;
    Ok(BrowserPage { bytes: html.len(), step: state.step })
}

/// Files of the run, with its weights rounded to int8, by their paths in the page's file system.
/// The run with rounded weights is made in `folder`, which is then removed.
fn rounded_files(
    root: &Path,
    checkpoint: &Path,
    folder: &Path,
) -> Result<BTreeMap<String, Vec<u8>>> {
    // The folder may be left from a process that was killed, but it may also have other content.
    ensure!(!folder.exists(), "{} exists: move or remove it", folder.display());
    // A name with a separator is read as a path, and not as the name of a checkpoint of the run.
    let path = Path::new(".").join(checkpoint);
    let name = path.to_str().with_context(|| checkpoint.display().to_string())?;
    let rounded = quantize(root, Some(name), Some(folder))?;
    let saved = RunFolder::open(&rounded.folder)?.checkpoint(None)?;
    let files = run_files(&rounded.folder, &saved);
    fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    files
}

/// Files of a run that are needed to translate with one of its checkpoints, by their paths in the
/// page's file system.
fn run_files(root: &Path, checkpoint: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut add = |folder: &Path, to: &str, is_needed: &dyn Fn(&str) -> bool| -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_file() && is_needed(name) {
                let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
                files.insert(format!("{to}/{name}"), bytes);
            }
        }
        Ok(())
    };
    let has_shortlist = RunFolder::open(root)?.load_config(&[])?.decoding.shortlist;
    let is_of_run = |name: &str| {
        name == "config.toml"
            || name.starts_with("tokenizer")
            || (has_shortlist && name == SHORTLIST_FILE)
    };
    add(root, "/run", &is_of_run)?;
    let step = checkpoint_name(read_state(checkpoint)?.step);
    let is_of_weights = |name: &str| [MODEL_FILE, STATE_FILE].contains(&name);
    let saved = format!("/run/checkpoints/{step}");
    add(checkpoint, &saved, &is_of_weights)?;
    files.insert("/run/checkpoints/last".to_owned(), step.into_bytes());
    // Nobody who gets the page needs to know the folders of this machine.
    let config = RunFolder::open(root)?.load_config(&[])?;
    let state = shown_state(read_state(checkpoint)?, &config)?;
    files.insert(format!("{saved}/{STATE_FILE}"), state_json(&state)?);
    files.insert("/run/config.toml".to_owned(), without_folders(&config).to_toml()?.into_bytes());
    Ok(files)
}

/// State of a checkpoint of a run with the recipe `config`, without the folders of this machine.
fn shown_state(mut state: State, config: &RunConfig) -> Result<State> {
    if let Some(trained) = trained_with(&state, config)? {
        state.identity.recipe = recipe(&without_folders(&trained))?;
    }
    for parent in [&mut state.parent, &mut state.int8_of].into_iter().flatten() {
        parent.path = parent.path.file_name().unwrap_or_default().into();
    }
    Ok(state)
}

/// HTML text of the page.
fn html(
    config: &RunConfig,
    files: &BTreeMap<String, Vec<u8>>,
    module: &[u8],
    language: Language,
) -> Result<String> {
    let packed: BTreeMap<&String, String> =
        files.iter().map(|(path, bytes)| Ok((path, packed(bytes)?))).collect::<Result<_>>()?;
    let say = |english, chinese| language.choose(english, chinese);
    let [from, to] = [&config.data.source_language, &config.data.target_language];
    let body = [
        ("{{loading}}", say("The model is being loaded…", "正在载入模型……")),
        ("{{source}}", say("Text", "原文")),
        ("{{target}}", say("Translation", "译文")),
        ("{{hint}}", say("Type or paste a text.", "输入或粘贴文字。")),
        (
            "{{about}}",
            say(
                "The model runs on this device. The page loads nothing and sends nothing.",
                "模型在本机运行；页面不载入也不发送任何数据。",
            ),
        ),
        ("{{from}}", from),
        ("{{to}}", to),
    ]
    .iter()
    .fold(include_str!("body.html").to_owned(), |body, (name, text)| {
        body.replace(name, &escape(text))
    });
    let texts = json!({
        "ready": say("Ready after {seconds} s.", "{seconds} 秒后就绪。"),
        "speed": say(
            "{seconds} s for the last line: {rate} words a second.",
            "上一行用时 {seconds} 秒：每秒 {rate} 词。",
        ),
    });
    let page = Page {
        language,
        title: format!("{}: {from} → {to}", config.name),
        body,
        style: include_str!("style.css").to_owned(),
        script: include_str!("page.js").to_owned(),
        data: vec![
            ("texts".to_owned(), texts),
            ("worker".to_owned(), json!(WORKER)),
            ("files".to_owned(), json!(packed)),
            ("module".to_owned(), json!(self::packed(module)?)),
        ],
        runs_module: true,
        ..Page::default()
    };
    Ok(page.html())
}

/// Compresses `bytes` by gzip and encodes the result as base64.
fn packed(bytes: &[u8]) -> Result<String> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(STANDARD.encode(gzip.finish()?))
}

#[cfg(test)]
mod tests {
    use taper_trainer::{Identity, Parent};

    use super::*;

    #[test]
    fn a_page_has_no_folders_of_the_machine_that_made_it() {
        let mut config = RunConfig::default();
        config.data.dir = "/home/me/corpus".into();
        let identity = Identity { recipe: recipe(&config).expect("JSON"), ..Identity::default() };
        let from =
            |path: &str| Some(Parent { path: path.into(), step: 7, sha256: "0123".to_owned() });
        let (parent, int8_of) = (from("/home/me/old/step-00000007"), from("/home/me/run/last"));
        let state = State { parent, int8_of, ..State::new(1, identity) };
        let shown = shown_state(state, &config).expect("a state");
        let text = String::from_utf8(state_json(&shown).expect("JSON")).expect("UTF-8");
        assert!(!text.contains("/home"), "{text}");
        assert!(text.contains("\"corpus\"") && text.contains("\"step-00000007\""), "{text}");
    }
}
