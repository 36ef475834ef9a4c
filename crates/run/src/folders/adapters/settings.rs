//! Settings of adapters in the format of PEFT.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use taper_data::Task;
use taper_model::LoraConfig;

use crate::tasks::entry;

/// Settings of the adapters in a folder.
pub(super) struct Settings {
    keys: Value,
    /// Rank, scale and kind of the adapters, without their layers.
    pub(super) lora: LoraConfig,
}

/// Keys of the settings that choose variants of PEFT's methods, each with the values, written as
/// JSON, that mean plain LoRA. Any other value means a method that cannot be imported.
const USUAL: [(&str, &[&str]); 9] = [
    ("peft_type", &["\"LORA\""]),
    ("bias", &["\"none\""]),
    ("lora_bias", &["false"]),
    ("use_qalora", &["false"]),
    ("use_bdlora", &["false"]),
    ("alora_invocation_tokens", &["null"]),
    ("layer_replication", &["null"]),
    ("target_parameters", &["[]"]),
    ("trainable_token_indices", &["null"]),
];

impl Settings {
    /// Reads the settings `keys`, the content of `adapter_config.json`.
    ///
    /// # Errors
    /// When the settings are for another method, or have no rank or no alpha.
    pub(super) fn read(keys: Value) -> Result<Self> {
        for (key, usual) in USUAL {
            let value = keys[key].to_string();
            let is_unset = keys[key].is_null() && key != "peft_type";
            if !is_unset && !usual.contains(&value.as_str()) {
                bail!("{key} is {value}, which cannot be imported: only {} can", usual[0]);
            }
        }
        let rank = keys["r"].as_u64().and_then(|rank| usize::try_from(rank).ok());
        let (Some(rank), Some(alpha)) =
            (rank.filter(|&rank| rank > 0), keys["lora_alpha"].as_f64())
        else {
            bail!("r is {} and lora_alpha {}, expected numbers", keys["r"], keys["lora_alpha"]);
        };
        let flag = |key: &str| keys[key].as_bool().unwrap_or(false);
        let lora = LoraConfig {
            rank,
            alpha,
            rank_stabilized: flag("use_rslora"),
            dora: flag("use_dora"),
            dropout: keys["lora_dropout"].as_f64().unwrap_or(0.0),
            layers: Vec::new(),
            ..LoraConfig::default()
        };
        Ok(Self { keys, lora })
    }

    /// Scale of the adapters of `module`: the factor by which their product `B A` is multiplied.
    /// `rank` is their rank.
    ///
    /// # Errors
    /// When a key of `alpha_pattern` is a regular expression instead of the end of a name, or its
    /// value is not a number.
    pub(super) fn scale(&self, module: &str, rank: usize) -> Result<f64> {
        let mut alpha = self.lora.alpha;
        for (pattern, value) in self.keys["alpha_pattern"].as_object().into_iter().flatten() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
            if !pattern.chars().all(is_plain) {
                bail!(
                    "alpha_pattern has {pattern:?}, a regular expression: only ends of names can \
                     be imported"
                );
            }
            let Some(value) = value.as_f64() else {
                bail!("alpha_pattern has {value} for {pattern:?}, expected a number");
            };
            let before = module.strip_suffix(pattern.as_str());
            if before.is_some_and(|before| before.is_empty() || before.ends_with('.')) {
                alpha = value;
                break;
            }
        }
        Ok(LoraConfig { rank, alpha, ..self.lora.clone() }.scale())
    }
}

/// Settings of adapters for an exported folder. `targets` names the modules with adapters, and
/// `whole` the modules that are trained as a whole. `ranks` has the modules whose rank is not
/// `lora.rank`, each with its rank.
pub(super) fn written(
    lora: &LoraConfig,
    task: Task,
    targets: &[String],
    whole: &[String],
    ranks: &[(String, usize)],
) -> Map<String, Value> {
    // Value of alpha with which a module of rank `rank` has the same scale as the other modules.
    let alpha = |rank: usize| {
        let ratio = rank as f64 / lora.rank as f64;
        lora.alpha * if lora.rank_stabilized { ratio.sqrt() } else { ratio }
    };
    let pattern = |value: &dyn Fn(usize) -> Value| -> Value {
        ranks.iter().map(|(name, rank)| (name.clone(), value(*rank))).collect::<Map<_, _>>().into()
    };
    let whole = if whole.is_empty() { Value::Null } else { json!(whole) };
    [
        ("peft_type", json!("LORA")),
        ("task_type", json!(entry(task).peft_name)),
        ("base_model_name_or_path", Value::Null),
        ("inference_mode", json!(true)),
        ("bias", json!("none")),
        ("r", json!(lora.rank)),
        ("lora_alpha", json!(lora.alpha)),
        ("lora_dropout", json!(lora.dropout)),
        ("use_rslora", json!(lora.rank_stabilized)),
        ("use_dora", json!(lora.dora)),
        ("target_modules", json!(targets)),
        ("modules_to_save", whole),
        ("rank_pattern", pattern(&|rank| json!(rank))),
        ("alpha_pattern", pattern(&|rank| json!(alpha(rank)))),
        ("fan_in_fan_out", json!(false)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}
