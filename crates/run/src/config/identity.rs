//! Part of a recipe (settings of a training) that is saved in each checkpoint, so that later
//! changes of the recipe are noticed.

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use taper_data::Corpus;
use taper_trainer::{Metric, State, TrainingConfig};

use super::RunConfig;
use super::text::from_json;
use crate::checks::dtype_choice::AUTO_DTYPE;

/// Sections and keys of a recipe on which trained weights depend.
const SHAPES_WEIGHTS: [&str; 4] = ["task", "data", "model", "dtype"];
/// Keys of `[training]` that make a training need more memory. They are recorded so that memory is
/// checked again after a change of them. Values that are the defaults are not recorded.
const TAKES_MEMORY: [&str; 3] = ["r_drop", "ema_decay", "checkpoint_activations"];

/// Part of `config` that identifies a training: data, architecture, type of computation, seed. If
/// only other keys change, for example to a longer schedule, it is still the same training. The
/// result also contains the keys in [`TAKES_MEMORY`], although these keys can change.
///
/// # Errors
/// When a value cannot be written as JSON.
pub(crate) fn recipe(config: &RunConfig) -> Result<Map<String, Value>> {
    let Value::Object(mut all) = json(config)? else { return Ok(Map::new()) };
    let (given, defaults) = (all["training"].clone(), json(&RunConfig::default())?);
    let mut training = Map::from_iter([("seed".to_owned(), given["seed"].clone())]);
    for key in TAKES_MEMORY {
        if given[key] != defaults["training"][key] {
            training.insert(key.to_owned(), given[key].clone());
        }
    }
    all.retain(|key, _| SHAPES_WEIGHTS.contains(&key.as_str()));
    all.insert("training".to_owned(), Value::Object(training));
    Ok(all)
}

/// Recipe with which the checkpoint of `state` was trained; `None` if an earlier version did not
/// record it. Keys that are not recorded, because weights do not depend on them, get their values
/// from `config`.
///
/// # Errors
/// When the recorded recipe cannot be read by this version.
pub fn trained_with(state: &State, config: &RunConfig) -> Result<Option<RunConfig>> {
    let recorded = &state.identity.recipe;
    if recorded.is_empty() {
        return Ok(None);
    }
    let recorded: RunConfig = from_json(Value::Object(recorded.clone()))
        .context("the recipe in the checkpoint's state.json is not of this version")?;
    let trained = RunConfig {
        task: recorded.task,
        data: recorded.data,
        model: recorded.model,
        // A run records the chosen type of computation, not `auto`; a recipe that was not recorded
        // by a run may have `auto`.
        dtype: match recorded.dtype.as_str() {
            AUTO_DTYPE => config.dtype.clone(),
            _ => recorded.dtype,
        },
        ..config.clone()
    };
    let TrainingConfig { seed, r_drop, ema_decay, checkpoint_activations, .. } = recorded.training;
    let training = TrainingConfig {
        seed,
        r_drop,
        ema_decay,
        checkpoint_activations,
        ..config.training.clone()
    };
    Ok(Some(RunConfig { training, ..trained }))
}

/// Identity of validation scores under `config`: everything on which the scores depend, apart from
/// the model. Scores with different identities cannot be compared. The entry `text` is the argument
/// `text`, a hash of the validation split. The other entries are settings, by key: those on which
/// the score by the metric of early stopping depends. A setting with its default value has no
/// entry. So a later version can add a key, and identities stay the same as long as the key has its
/// default value.
///
/// # Errors
/// When a value cannot be written as JSON.
pub(crate) fn validation_identity(
    config: &RunConfig,
    text: Option<String>,
) -> Result<Map<String, Value>> {
    let mut identity = Map::new();
    if !config.task.validates(&config.data) {
        return Ok(identity);
    }
    let (values, defaults) = (json(config)?, json(&RunConfig::default())?);
    for key in measured_by(config.training.early_stopping.metric) {
        let pointer = format!("/{}", key.replace('.', "/"));
        set_apart(key, values.pointer(&pointer), defaults.pointer(&pointer), &mut identity);
    }
    if let Some(corpora) = validation_corpora(config)? {
        identity.insert("data.validation".to_owned(), corpora);
    }
    identity.extend(text.map(|text| ("text".to_owned(), Value::String(text))));
    Ok(identity)
}

/// Settings of the validation corpora on which scores depend, apart from their files: columns,
/// languages and tags. A setting that has its default value is left out. `None` if all are.
///
/// # Errors
/// When a value cannot be written as JSON.
fn validation_corpora(config: &RunConfig) -> Result<Option<Value>> {
    const KEYS: [&str; 4] = ["fields", "from", "to", "tag"];
    let settings = |corpus: &Corpus| -> Result<Value> {
        let mut value = serde_json::to_value(corpus).context("a corpus is not JSON")?;
        if let Value::Object(keys) = &mut value {
            keys.retain(|key, _| KEYS.contains(&key.as_str()));
        }
        Ok(value)
    };
    let corpora: Vec<Value> = config.data.validation.iter().map(settings).collect::<Result<_>>()?;
    let has_any = |one: &Value| one.as_object().is_some_and(|keys| !keys.is_empty());
    Ok(corpora.iter().any(has_any).then_some(Value::Array(corpora)))
}

/// Keys and sections on which the examples of a validation depend.
const EXAMPLES: &[&str] = &[
    "data.source_prefix",
    "data.fields",
    "data.cleaning",
    "data.text",
    "data.masked",
    "data.labelled",
    "data.questions",
    "data.images.resize",
    "data.images.resize_to",
    "data.images.resample",
    "data.images.center_crop",
    "data.images.rescale",
    "data.images.mean",
    "data.images.deviation",
    "data.images.hold_out",
    "data.images.seed",
    "data.captions",
];

/// Keys and sections on which the score `metric` depends, in addition to the model and the text.
fn measured_by(metric: Metric) -> impl Iterator<Item = &'static str> {
    let parts: &[&[&str]] = match metric {
        Metric::Loss => &[
            EXAMPLES,
            &[
                "data.regression.dimensions",
                "data.regression.points",
                "data.regression.noise",
                "data.regression.measured",
                "training.label_smoothing",
            ],
        ],
        Metric::Perplexity | Metric::Accuracy => &[EXAMPLES],
        Metric::Bleu | Metric::Chrf => &[&[
            "data.source_prefix",
            "data.fields",
            "data.cleaning.max_tokens",
            "data.lowercase",
            "evaluation.tokenize",
            "evaluation.lowercase",
            "evaluation.validation_sentences",
            // Settings of decoding on which even a greedy search depends.
            "decoding.max_length_ratio",
            "decoding.max_length_offset",
            "decoding.max_length",
            "decoding.min_length",
            "decoding.allow_unknown",
            "decoding.repetition_penalty",
            "decoding.no_repeat_ngram",
        ]],
    };
    parts.iter().copied().flatten().copied()
}

/// Adds `value` to `identity` under the key `key`, unless it equals `default`. If `value` is a
/// section, each key in it is added in this way.
fn set_apart(
    key: &str,
    value: Option<&Value>,
    default: Option<&Value>,
    identity: &mut Map<String, Value>,
) {
    match value {
        Some(Value::Object(section)) => {
            for (name, value) in section {
                let default = default.and_then(|default| default.get(name));
                set_apart(&format!("{key}.{name}"), Some(value), default, identity);
            }
        }
        Some(value) if Some(value) != default => {
            identity.insert(key.to_owned(), value.clone());
        }
        _ => {}
    }
}

/// Lists what differs between two identities of validation scores: keys, or words for the text.
pub(crate) fn validation_changes(
    before: &Map<String, Value>,
    now: &Map<String, Value>,
) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = keys.into_iter().filter(|key| before.get(*key) != now.get(*key));
    changed
        .map(|key| if key == "text" { "the validation text".to_owned() } else { key.clone() })
        .collect()
}

fn json(config: &RunConfig) -> Result<Value> {
    serde_json::to_value(config).context("the configuration is not JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_trainer::Identity;

    #[test]
    fn a_recorded_recipe_comes_back_and_older_ones_have_the_defaults() {
        let mut config = RunConfig::default();
        config.model.norm_epsilon = 1e-6 / 3.0;
        config.data.cleaning.max_ratio = 4.5;
        config.training.seed = 7;
        config.training.r_drop = 0.25;
        config.training.ema_decay = 0.999;
        let mut state = State::new(
            7,
            Identity { recipe: recipe(&config).expect("JSON"), ..Identity::default() },
        );
        let back = |state: &State| trained_with(state, &config).expect("of this version");
        assert_eq!(back(&state), Some(config.clone()));
        // The record shows a change of a key that takes memory, but not of other keys.
        let edited = RunConfig::default();
        let recorded = trained_with(&state, &edited).expect("of this version").expect("recorded");
        assert_eq!(recorded.training.objective().passes(), 2);
        assert_eq!(recorded.training.ema_decay, 0.999);
        assert_eq!(recorded.training.max_updates, edited.training.max_updates);
        // Identity as an earlier version, which did not have the key, would have saved it.
        let model = state.identity.recipe["model"].as_object_mut().expect("a section");
        model.remove("norm_epsilon").expect("a key");
        let older = back(&state).expect("recorded").model.norm_epsilon;
        assert_eq!(older, RunConfig::default().model.norm_epsilon);
        state.identity.recipe.clear();
        assert_eq!(back(&state), None);
    }

    #[test]
    fn scores_depend_on_what_measures_them() {
        let mut config = RunConfig::default();
        let identity_with = |config: &RunConfig, text: &str| {
            validation_identity(config, Some(text.to_owned())).expect("JSON")
        };
        let before = identity_with(&config, "one");
        assert_eq!(serde_json::to_string(&before).expect("JSON"), r#"{"text":"one"}"#);
        config.evaluation.lowercase = true;
        config.training.max_updates += 1;
        assert_eq!(identity_with(&config, "one"), before, "the loss is no score of text");
        config.training.label_smoothing = 0.0;
        config.data.cleaning.max_tokens = 99;
        let now = identity_with(&config, "two");
        assert_eq!(
            validation_changes(&before, &now),
            ["data.cleaning.max_tokens", "the validation text", "training.label_smoothing"]
        );
        config.training.early_stopping.metric = Metric::Bleu;
        assert!(identity_with(&config, "two").contains_key("evaluation.lowercase"));
        config.data.validation = "".into();
        assert!(identity_with(&config, "two").is_empty());
    }

    #[test]
    fn every_key_that_changes_the_input_is_noticed() {
        let changes: [fn(&mut RunConfig); 4] = [
            |config| config.data.source_prefix = "to German: ".to_owned(),
            |config| config.data.fields.source = "en".to_owned(),
            |config| config.data.images.mean = vec![0.25],
            |config| config.data.images.rescale = 1.0,
        ];
        for (number, change) in changes.iter().enumerate() {
            for metric in [Metric::Loss, Metric::Accuracy, Metric::Bleu] {
                let mut config = RunConfig::default();
                config.training.early_stopping.metric = metric;
                let before = validation_identity(&config, None).expect("JSON");
                change(&mut config);
                let now = validation_identity(&config, None).expect("JSON");
                let is_read = metric != Metric::Bleu || number < 2;
                assert_eq!(before != now, is_read, "{number} {metric}");
            }
        }
    }

    #[test]
    fn settings_of_the_validation_corpora_are_noticed() {
        let identity = |change: fn(&mut Corpus)| {
            let mut config = RunConfig::default();
            config.data.validation = "a".into();
            change(&mut config.data.validation.0[0]);
            validation_identity(&config, None).expect("JSON")
        };
        let before = identity(|_| ());
        assert!(before.is_empty());
        for (key, change) in [
            ("tag", (|corpus| corpus.tag = "<news>".to_owned()) as fn(&mut Corpus)),
            ("from", |corpus| corpus.from = "de".to_owned()),
            ("to", |corpus| corpus.to = "zh".to_owned()),
            ("fields", |corpus| corpus.fields.source = "english".to_owned()),
        ] {
            let now = identity(change);
            assert_eq!(validation_changes(&before, &now), ["data.validation"], "{key}");
            let keys = now["data.validation"][0].as_object().expect("a corpus").keys();
            assert_eq!(keys.collect::<Vec<_>>(), [key]);
        }
        // The name of a corpus, and its files, which have a hash, do not count here.
        assert!(identity(|corpus| corpus.name = "news".to_owned()).is_empty());
    }

    #[test]
    fn every_key_that_measures_exists() {
        let mut config = RunConfig::default();
        // Not written if it is empty.
        config.data.source_prefix = "a".to_owned();
        let values = json(&config).expect("JSON");
        for metric in
            [Metric::Loss, Metric::Perplexity, Metric::Accuracy, Metric::Bleu, Metric::Chrf]
        {
            for key in measured_by(metric) {
                assert!(values.pointer(&format!("/{}", key.replace('.', "/"))).is_some(), "{key}");
            }
        }
    }
}
