//! Writing of new recipes (TOML files with the settings of a training): for training on a user's
//! text, with a size of model that suits the number of sentence pairs and the machine; and for the
//! further training of a trained model.

mod corpus;
mod fine_tuning;
mod held_out;
mod proposal;
mod recipe_text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::config::paths::seen_from;
use crate::config::{RunConfig, schema};
use crate::folder::files::write_atomically;
use held_out::Unused;
use proposal::propose;

pub use corpus::{Corpus, CorpusFacts};
pub use fine_tuning::{ExampleCounts, FineTuneSettings, FineTuning, fine_tune, run_of};
pub use proposal::Machine;

/// JSON Schema of recipes, which is written next to the recipe. The recipe's first line names this
/// file, so that editors complete and check keys.
const SCHEMA: &str = "taper.schema.json";

/// Function that returns lines on how to use the recipe at `recipe`. `from` is the run (trained
/// model) that gives the training its first weights; `None` if there is none.
pub type Usage = fn(recipe: &Path, from: Option<&Path>) -> Vec<String>;

/// Settings of a new recipe.
#[derive(Debug, Clone)]
pub struct InitSettings {
    /// Text to train on.
    pub corpus: Corpus,
    /// Source language and target language.
    pub languages: [String; 2],
    /// File of the recipe, which must not exist; `None` for a file named after the corpus.
    pub recipe: Option<PathBuf>,
    /// Folder for the training, validation and test sets, if the text has to be divided; `None` for
    /// a folder in `data` with the recipe's name.
    pub divided: Option<PathBuf>,
    /// Function that returns lines on how to use the recipe, for a comment at its beginning.
    pub usage: Usage,
}

/// Recipe that was written.
#[derive(Debug, Clone)]
pub struct WrittenRecipe {
    /// Path of the recipe.
    pub recipe: PathBuf,
    /// Configuration of the recipe.
    pub config: RunConfig,
    /// Numbers of pairs and characters of the text.
    pub facts: CorpusFacts,
    /// Description of the machine for which the recipe was written.
    pub machine: String,
    /// Folder of the divided text, if it had to be divided.
    pub divided: Option<PathBuf>,
}

/// Reads the text, and writes a recipe with comments for training on it on `machine`. The schema of
/// recipes is written into the same folder, in place of the schema of an earlier call.
///
/// If there is no validation set next to the text, a validation and a test set are split off; the
/// files named by the user stay unchanged.
///
/// # Errors
/// If the text cannot be read or is too short, or a file to be written exists already and is not a
/// schema of recipes.
pub fn init(settings: &InitSettings, machine: &Machine) -> Result<WrittenRecipe> {
    let InitSettings { corpus, languages, .. } = settings;
    let default = || PathBuf::from(format!("{}.toml", corpus.name(languages)));
    let recipe = settings.recipe.clone().unwrap_or_else(default);
    if recipe.exists() {
        bail!("{} exists already and is left as it is: name another recipe", recipe.display());
    }
    let name = name_of(&recipe)?;
    let folder = recipe.parent().unwrap_or(Path::new(""));
    require_no_other(&folder.join(SCHEMA))?;
    let facts = corpus.look(languages)?;
    let as_it_lies = corpus.as_it_lies(languages).filter(|data| !data.validation.is_empty());
    let (mut data, divided) = match as_it_lies {
        Some(data) => (data, None),
        None => {
            let folder = settings.divided.clone().unwrap_or_else(|| Path::new("data").join(name));
            (held_out::divide(corpus, &facts, languages, &folder)?, Some(folder))
        }
    };
    let divided = Unused::new(divided);
    data.dir = seen_from(folder, &data.dir);
    let proposal = propose(name, &data, &facts, machine);
    let text = recipe_text::text(&proposal, &facts, machine, settings.usage);
    write_atomically(&folder.join(SCHEMA), serde_json::to_string(&schema())?.as_bytes())?;
    write_atomically(&recipe, text.as_bytes())?;
    let config = read_back(&recipe, RunConfig::load(&recipe, &[]))?;
    let divided = divided.keep();
    Ok(WrittenRecipe { recipe, config, facts, machine: recipe_text::describe(machine), divided })
}

/// Name of the new run, which is the name of the recipe's file without the ending.
///
/// # Errors
/// If `recipe` does not end in the name of a file, or the name is not UTF-8.
fn name_of(recipe: &Path) -> Result<&str> {
    let shown = recipe.display();
    let name = recipe.file_stem().with_context(|| {
        format!("{shown} is not the name of a file: name a file for the recipe")
    })?;
    name.to_str().with_context(|| {
        format!(
            "{shown}: the name is not UTF-8, but a recipe is named after its file: give the file \
             another name"
        )
    })
}

/// Returns the configuration that was read from the new recipe at `path`. If it could not be read,
/// the recipe is removed, so that the command that writes it can be repeated.
fn read_back(path: &Path, config: Result<RunConfig>) -> Result<RunConfig> {
    config.inspect_err(|_| {
        // The first error is returned.
        let _ = std::fs::remove_file(path);
    })
}

/// Returns an error if there is a file at `path` that is not a schema of recipes.
fn require_no_other(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let present: Value = serde_json::from_slice(&text).unwrap_or_default();
    ensure!(
        present["title"].is_string() && Some(&present["title"]) == schema().get("title"),
        "{} is not a schema of recipes, which would be written there: move it, or write the recipe \
         into another folder",
        path.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::{DataConfig, FieldsConfig, Format};

    #[cfg(unix)]
    #[test]
    fn a_recipe_is_named_after_a_file_whose_name_is_utf_8() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let path = |bytes: &'static [u8]| Path::new(OsStr::from_bytes(bytes));
        assert_eq!(name_of(path(b"a/news.toml")).expect("a name"), "news");
        for (bytes, says) in
            [(&b"a/n\xffws.toml"[..], "is not UTF-8"), (&b".."[..], "is not the name of a file")]
        {
            let error = name_of(path(bytes)).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn only_a_schema_of_recipes_is_replaced() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join(SCHEMA);
        require_no_other(&path).expect("no file");
        std::fs::write(&path, serde_json::to_string(&schema()).expect("JSON")).expect("written");
        require_no_other(&path).expect("a schema");
        for own in ["my notes", "{\"title\": \"Mine\"}", "{}"] {
            std::fs::write(&path, own).expect("written");
            let settings = InitSettings {
                corpus: Corpus::Files {
                    source: folder.path().join("none.en"),
                    target: folder.path().join("none.de"),
                },
                languages: ["en", "de"].map(str::to_owned),
                recipe: Some(folder.path().join("mine.toml")),
                divided: None,
                usage: |_, _| Vec::new(),
            };
            let machine = Machine { cores: 2, memory: None, has_gpu: false };
            let error = init(&settings, &machine).expect_err("refused").to_string();
            assert!(error.contains(SCHEMA) && error.contains("move it"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("the file"), own);
        }
    }

    /// Checks that the written recipe has the same value as the proposal for each key.
    #[test]
    fn the_text_says_what_was_proposed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("mine.toml");
        let machine = Machine { cores: 2, memory: Some(4 << 30), has_gpu: false };
        let fields = FieldsConfig {
            source: "the \"source\"".into(),
            target: "2".into(),
            ..FieldsConfig::default()
        };
        for (pairs, format) in
            [(900, Format::Text), (60_000, Format::Jsonl), (5_000_000, Format::Tsv)]
        {
            let facts = CorpusFacts { pairs, alphabet: 100, ..CorpusFacts::default() };
            let data = DataConfig {
                dir: folder.path().join("some where"),
                format,
                fields: if format == Format::Text {
                    FieldsConfig::default()
                } else {
                    fields.clone()
                },
                source_language: "en".into(),
                target_language: "zh".into(),
                ..DataConfig::default()
            };
            let proposal = propose("mine", &data, &facts, &machine);
            let usage: Usage = |recipe, _| vec![format!("train {}", recipe.display())];
            let text = recipe_text::text(&proposal, &facts, &machine, usage);
            assert!(text.contains("#   train mine.toml\n"), "{text}");
            std::fs::write(&path, text).expect("write");
            let read = RunConfig::load(&path, &[]).expect("a valid recipe");
            assert_eq!(read, proposal.config);
            let idle = crate::config::without_effect(&read).expect("JSON");
            assert_eq!(idle, Vec::<String>::new());
        }
    }
}
