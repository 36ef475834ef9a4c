//! Suggestions for unknown keys in a recipe (TOML file with the settings of a training).

use strsim::osa_distance;

use super::keys::{Key, keys};

/// Words that precede the name of a section in a suggestion.
const SECTION: &str = "the section";

/// Settings of other toolkits for which recipes have no key. Each entry has words about what
/// replaces the settings in this program, and the names of the settings in other toolkits.
const NO_KEYS: [(&str, &[&str]); 2] = [
    (
        "the option `--run DIR`",
        &[
            "save_dir",
            "save_model",
            "model_dir",
            "output",
            "output_dir",
            "checkpoint_dir",
            "run_dir",
        ],
    ),
    (
        "the verb `resume`, which continues a run",
        &["resume_from", "resume_from_checkpoint", "restore_file", "load_model", "reload"],
    ),
];

/// Suggests, in words, the key that was probably meant by the unknown dotted `name`; `None` if no
/// key is similar.
///
/// The last part of `name`, after the last dot, is looked up. The first of these that exists is
/// suggested:
///
/// - a key of this name in the section of `name`, even if the section is misspelled;
/// - a key in the section of `name`, for a setting that has this name in other toolkits;
/// - a key of this name in another section with the same outermost section;
/// - any key for a setting that has this name in other toolkits;
/// - a key of this name in any section;
/// - a key with a similar spelling.
pub(super) fn did_you_mean(name: &str) -> Option<String> {
    let leaf = plain(name.rsplit('.').next().unwrap_or(name));
    let called_so: Vec<&Key> = keys().iter().filter(|key| key.leaf() == leaf).collect();
    let shared = called_so.iter().map(|key| shared_sections(&key.name, name)).max();
    let of_section = called_so.iter().filter(|key| is_section(&key.name, name));
    let of_section: Vec<String> = of_section.map(|key| quoted(key)).collect();
    if !of_section.is_empty() {
        return Some(of_section.join(" or "));
    }
    let is_here = |key: &Key| section(&key.name) == section(name);
    let is_called_so_here =
        keys().iter().any(|key| is_here(key) && key.names_elsewhere.contains(&leaf));
    match (shared, called_here(&leaf)) {
        (None | Some(0), Some(called)) => Some(called),
        (_, Some(called)) if is_called_so_here => Some(called),
        (Some(shared), _) => {
            let nearest = called_so.iter().filter(|key| shared_sections(&key.name, name) == shared);
            Some(nearest.map(|key| quoted(key)).collect::<Vec<_>>().join(" or "))
        }
        (None, None) => misspelled(name, &leaf),
    }
}

/// Suggests a replacement for the unknown section `name`, whose first key is `first`: another
/// section, or else the known key that `first` probably means.
pub(super) fn did_you_mean_section(name: &str, first: Option<&str>) -> Option<String> {
    let meant = did_you_mean(name);
    if meant.as_ref().is_some_and(|meant| meant.starts_with(SECTION)) {
        return meant;
    }
    first.and_then(did_you_mean).or(meant)
}

/// Finds the key that `name` probably misspells; `None` if none is similar. `leaf` is the part of
/// `name` after its last dot.
fn misspelled(name: &str, leaf: &str) -> Option<String> {
    let known =
        keys().iter().map(|key| (key.leaf(), quoted(key), shared_sections(&key.name, name)));
    let elsewhere = names_elsewhere().map(|name| (name, called_here(name).unwrap_or_default(), 0));
    known
        .chain(elsewhere)
        .map(|(other, called, shared)| (osa_distance(leaf, other), shared, other, called))
        .filter(|(_, _, other, _)| is_misspelling(leaf, other))
        .min_by_key(|(distance, shared, ..)| (*distance, std::cmp::Reverse(*shared)))
        .map(|(.., called)| called)
}

/// Whether `name` can be a misspelling of `other`, or is equal to it. With more than one error in
/// three letters, it is considered another word.
fn is_misspelling(name: &str, other: &str) -> bool {
    3 * osa_distance(name, other) <= other.chars().count().min(name.chars().count())
}

/// Whether the keys called `known` and `name` are in the same section. Each part of the section of
/// `name` may be misspelled.
fn is_section(known: &str, name: &str) -> bool {
    let (known, name) = (section(known).split('.'), section(name).split('.'));
    known.clone().count() == name.clone().count()
        && known.zip(name).all(|(known, name)| is_misspelling(name, known))
}

/// All known names of settings in other toolkits.
fn names_elsewhere() -> impl Iterator<Item = &'static str> {
    let of_keys = keys().iter().flat_map(|key| &key.names_elsewhere).map(String::as_str);
    of_keys.chain(NO_KEYS.iter().flat_map(|(_, names)| names.iter().copied()))
}

/// Words for the keys whose settings have the name `name` in other toolkits. If there are no such
/// keys, words for what replaces the setting; `None` if the name is unknown.
fn called_here(name: &str) -> Option<String> {
    let is_name = |key: &&Key| key.names_elsewhere.iter().any(|other| other == name);
    let called_so: Vec<String> = keys().iter().filter(is_name).map(quoted).collect();
    let no_key = || NO_KEYS.iter().find(|(_, names)| names.contains(&name));
    match called_so.as_slice() {
        [] => no_key().map(|(called, _)| (*called).to_owned()),
        [one] => Some(one.clone()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    }
}

/// Converts a name from another toolkit to the spelling of recipe keys: `maxSteps` and `max-steps`
/// become `max_steps`.
pub(super) fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut before = '_';
    for character in name.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            plain.push('_');
        }
        plain.extend(match character {
            '-' | ' ' => '_'.to_lowercase(),
            other => other.to_lowercase(),
        });
        before = character;
    }
    plain
}

/// Candidate with the smallest edit distance from `name` (insertions, deletions, substitutions and
/// swaps of neighbouring letters); the first one if several are equally near. `None` without
/// candidates.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| osa_distance(name, candidate))
}

/// Section of the key called `name`; empty for a key outside all sections.
fn section(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(section, _)| section)
}

/// Number of leading sections that the dotted names of two keys have in common.
fn shared_sections(left: &str, right: &str) -> usize {
    let sections = |name: &str| {
        let mut parts: Vec<String> = name.split('.').map(str::to_owned).collect();
        parts.pop();
        parts
    };
    sections(left).iter().zip(&sections(right)).take_while(|(left, right)| left == right).count()
}

fn quoted(key: &Key) -> String {
    if key.is_section() { format!("{SECTION} `{}`", key.name) } else { format!("`{}`", key.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that users write, each with the key that is to be suggested.
    const MEANT: [(&str, &str); 71] = [
        ("training.lr", "training.schedule.learning_rate"),
        ("learning_rate", "training.schedule.learning_rate"),
        ("training.learning_rate", "training.schedule.learning_rate"),
        ("training.learning-rate", "training.schedule.learning_rate"),
        ("training.warmup", "training.schedule.warmup"),
        ("warmup_steps", "training.schedule.warmup"),
        ("patience", "training.early_stopping.patience"),
        ("training.patience", "training.early_stopping.patience"),
        ("decoding.early_stopping.patience", "decoding.patience"),
        ("batch_size", "data.batching.max_tokens"),
        ("training.batch_size", "data.batching.max_sentences"),
        ("training.max_tokens", "data.batching.max_tokens"),
        ("data.max_tokens", "data.batching.max_tokens"),
        ("epochs", "training.max_epochs"),
        ("training.num_train_epochs", "training.max_epochs"),
        ("training.max_steps", "training.max_updates"),
        ("maxSteps", "training.max_updates"),
        ("decoding.beam", "decoding.beam_size"),
        ("num_beams", "decoding.beam_size"),
        ("beam_size", "decoding.beam_size"),
        ("decoding.lenpen", "decoding.length_penalty"),
        ("model.dropout", "model.residual_dropout"),
        ("training.dropout", "model.attention_dropout"),
        ("model.layers", "model.encoder_layers"),
        ("model.num_layers", "model.decoder_layers"),
        ("model.hidden_size", "model.d_model"),
        ("model.embed_dim", "model.d_model"),
        ("d_model", "model.d_model"),
        ("model.ffn_dim", "model.d_ff"),
        ("model.dim_feedforward", "model.d_ff"),
        ("model.nhead", "model.heads"),
        ("model.num_heads", "model.heads"),
        ("model.activation_fn", "model.activation"),
        ("model.norm_first", "model.norm"),
        ("model.share_all_embeddings", "model.tied"),
        ("model.position_encoding", "model.positions"),
        ("model.vocab_size", "data.tokenizer.vocabulary_size"),
        ("data.vocabulary_size", "data.tokenizer.vocabulary_size"),
        ("data.src_lang", "data.source_language"),
        ("data.tgt", "data.target_language"),
        ("data.dev", "data.validation"),
        ("data.valid", "data.validation"),
        ("data.max_length", "data.cleaning.max_tokens"),
        ("data.bpe_dropout", "data.tokenizer.dropout"),
        ("training.weight_decay", "training.optimizer.weight_decay"),
        ("training.adam_eps", "training.optimizer.epsilon"),
        ("training.max_grad_norm", "training.clip_norm"),
        ("training.grad_clip", "training.clip_norm"),
        ("training.gradient_accumulation_steps", "training.accumulation"),
        ("training.update_freq", "training.accumulation"),
        ("training.label_smooth", "training.label_smoothing"),
        ("label_smoothing", "training.label_smoothing"),
        ("training.log_interval", "training.log_every"),
        ("training.eval_steps", "training.validate_every"),
        ("training.save_steps", "training.checkpoint_every"),
        ("training.save_total_limit", "training.keep_last"),
        ("training.ema", "training.ema_decay"),
        ("seed", "training.seed"),
        ("fp16", "dtype"),
        ("training.precision", "dtype"),
        ("num_workers", "threads"),
        ("decoding.temperature", "decoding.sampling.temperature"),
        ("training.output_dir", "--run DIR"),
        ("schedule", "training.schedule"),
        // Misspelled names of keys.
        ("model.haeds", "model.heads"),
        ("training.max_update", "training.max_updates"),
        ("training.shedule.warmpu", "training.schedule.warmup"),
        // Keys in misspelled sections. Other toolkits use the names of these keys for settings that
        // have other names here, but the key in the section must be suggested.
        ("decodng.max_length", "decoding.max_length"),
        ("decoding.expectd_length.ratio", "decoding.expected_length.ratio"),
        ("dtpye", "dtype"),
        ("trainig", "training"),
    ];

    #[test]
    fn names_of_other_toolkits_and_other_sections_lead_to_keys() {
        for (name, meant) in MEANT {
            let hint = did_you_mean(name).unwrap_or_default();
            assert!(
                hint.contains(&format!("`{meant}`"))
                    || meant.starts_with("--") && hint.contains(meant),
                "{name}: {hint}"
            );
        }
        assert_eq!(
            did_you_mean_section("optim", Some("optim.lr")).as_deref(),
            Some("`training.schedule.learning_rate`")
        );
        assert_eq!(
            did_you_mean_section("trainig", Some("trainig.seed")).as_deref(),
            Some("the section `training`")
        );
        for name in ["model.xyz", "training.q", "data.colour"] {
            assert_eq!(did_you_mean(name), None, "{name}");
        }
    }
    #[test]
    fn names_are_plain_and_those_without_a_key_are_no_names_of_keys() {
        for name in names_elsewhere() {
            assert_eq!(plain(name), name);
        }
        for name in NO_KEYS.iter().flat_map(|(_, names)| *names) {
            assert!(called_here(name).expect("a name").starts_with("the "), "{name}");
        }
    }

    #[test]
    fn spellings_of_a_name_are_one() {
        for name in ["max_steps", "max-steps", "maxSteps", "MAX_STEPS"] {
            assert_eq!(plain(name), "max_steps");
        }
    }
}
