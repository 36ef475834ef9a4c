//! Languages of translation models: their names, and the tokens that stand for them in the
//! sequences that a model reads or writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use taper_data::{FolderTokens, SpecialTokens, Tokenizer, TokenizerPair};

use super::super::CONFIG;
use super::files::Files;
use super::{GENERATION_CONFIG, TOKENIZER_CONFIG, TokenizerFiles};

/// Languages of M2M100 (Fan et al. 2021), in the order of their tokens. The ids of these tokens
/// come after the ids in the vocabulary file.
const M2M100: &str = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr \
    fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg \
    mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th \
    tl tn tr uk ur uz vi wo xh yi yo zh zu";
/// Languages of the models for WMT 2021 with M2M100's architecture (Tran et al. 2021), in the order
/// of their tokens.
const WMT21: &str = "en ha is ja cs ru zh de";

/// Largest number of languages that an error message lists.
const LISTED: usize = 12;

/// Tokens of the languages of an M2M100, in the order of their ids.
pub(super) fn of_m2m100(files: &Files) -> Result<Vec<String>> {
    let codes = match &files.keys(TOKENIZER_CONFIG)["language_codes"] {
        Value::Null => M2M100,
        Value::String(name) if name == "m2m100" => M2M100,
        Value::String(name) if name == "wmt21" => WMT21,
        other => bail!(
            "{TOKENIZER_CONFIG}: language_codes is {other}: only \"m2m100\" and \"wmt21\" are known"
        ),
    };
    Ok(codes.split(' ').map(|code| format!("__{code}__")).collect())
}

/// Adds to the tokenizers of the folder `source`, whose `config.json` is `config`, the tokens that
/// come before and after texts. Also returns the names of the source and the target language. These
/// are the names in `asked`, or else the names in the folder. If the folder has no names that are
/// allowed in file names, they are the words "source" and "target".
///
/// # Errors
/// When a file is damaged, or a model of several languages lacks the source or the target language.
pub(in super::super) fn with_languages(
    tokenizers: TokenizerPair,
    (source, config): (&Path, &Value),
    kind: TokenizerFiles,
    asked: [Option<&str>; 2],
) -> Result<(TokenizerPair, [String; 2])> {
    let files = Files::read(source, config)?;
    let places = [("source_lang", "src_lang", "source"), ("target_lang", "tgt_lang", "target")];
    let keys = files.keys(TOKENIZER_CONFIG);
    let named = |(key, other, _): (&str, &str, &str)| {
        let names = [&keys[key], &keys[other]].into_iter().filter_map(Value::as_str);
        names.into_iter().find(|name| is_name(name)).map(str::to_owned)
    };
    let given = |side: usize| asked[side].map(str::to_owned).or_else(|| named(places[side]));
    let usual = |side: usize| given(side).unwrap_or_else(|| places[side].2.to_owned());
    if let Some(name) = asked.into_iter().flatten().find(|name| !is_name(name)) {
        bail!("{name:?} is no name of a language: it has letters, digits, - and _");
    }
    match kind {
        TokenizerFiles::Fast | TokenizerFiles::Pieces | TokenizerFiles::Sides => {
            Ok((forced(tokenizers, &files)?, [usual(0), usual(1)]))
        }
        TokenizerFiles::Begun => {
            let tokenizer = tokenizers.source();
            let begin = files.named("bos_token").or(files.named("cls_token")).unwrap_or("<s>");
            let id = tokenizer
                .id(begin)
                .with_context(|| format!("{}: no token {begin} begins a text", source.display()))?;
            let begun = changed(tokenizer, |special| special.before = vec![id])?;
            Ok((forced(TokenizerPair::joint(begun), &files)?, [usual(0), usual(1)]))
        }
        TokenizerFiles::Languages => {
            let spoken = Spoken::find(tokenizers.target(), &files);
            let [read, written] = [given(0), given(1).or_else(|| spoken.written(&files))];
            let shown = || source.display().to_string();
            let ids =
                [spoken.id(read.as_deref(), "source"), spoken.id(written.as_deref(), "target")];
            let [of_source, of_target] = ids;
            let (of_source, of_target) =
                (of_source.with_context(shown)?, of_target.with_context(shown)?);
            let pair = spoken.marked(&tokenizers, &files, [of_source, of_target])?;
            Ok((pair, [read, written].map(Option::unwrap_or_default)))
        }
    }
}

/// If the settings of generation force a first token (`forced_bos_token_id`), makes targets begin
/// with it.
fn forced(tokenizers: TokenizerPair, files: &Files) -> Result<TokenizerPair> {
    let given = &files.generation()["forced_bos_token_id"];
    let target = tokenizers.target();
    let id = given.as_u64().and_then(|id| u32::try_from(id).ok());
    let id = id.filter(|&id| (id as usize) < target.vocabulary_size());
    match (given, id) {
        (Value::Null, _) => Ok(tokenizers),
        (_, None) => bail!("forced_bos_token_id is {given}, which is not a token"),
        (_, Some(id)) if target.special_tokens().before == [id] => Ok(tokenizers),
        (_, Some(id)) => {
            let of_target = changed(target, |special| special.before = vec![id])?;
            Ok(TokenizerPair::separate(tokenizers.source().clone(), of_target))
        }
    }
}

/// Finds the kind of tokenizer in a folder that does not name a model family. It is determined by
/// the class of the tokenizer, or by whether both languages in `asked` have tokens.
///
/// # Errors
/// When a file is damaged.
pub(in super::super) fn kind_of(
    (source, config): (&Path, &Value),
    tokenizer: &Tokenizer,
    asked: [Option<&str>; 2],
) -> Result<TokenizerFiles> {
    let files = Files::read(source, config)?;
    let spoken = Spoken::find(tokenizer, &files);
    let are_spoken = asked.iter().all(|name| name.is_some_and(|name| spoken.0.contains_key(name)));
    let is_of = |class: &&str| files.class().starts_with(class);
    Ok(match ["Nllb", "M2M100", "MBart"].iter().any(is_of) {
        true => TokenizerFiles::Languages,
        false if files.class().starts_with("Bart") => TokenizerFiles::Begun,
        false if are_spoken => TokenizerFiles::Languages,
        false => TokenizerFiles::Pieces,
    })
}

/// Whether `name` can be the name of a language: it must be allowed as the extension of a file
/// name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || "-_".contains(one))
}

/// Copy of an imported tokenizer whose special tokens `change` has changed.
fn changed(tokenizer: &Tokenizer, change: impl FnOnce(&mut SpecialTokens)) -> Result<Tokenizer> {
    let mut folder: FolderTokens = tokenizer.folder().cloned().context("no imported tokenizer")?;
    change(&mut folder.special);
    Ok(tokenizer.with_folder(&folder)?)
}

/// Languages that have tokens in a vocabulary, by name, with the ids of these tokens.
struct Spoken(BTreeMap<String, u32>);

impl Spoken {
    /// Finds the languages whose names are special tokens: `__en__` of M2M100, `eng_Latn` of NLLB,
    /// `en_XX` of mBART.
    fn find(tokenizer: &Tokenizer, files: &Files) -> Self {
        let named: BTreeSet<u32> =
            files.all_named().into_iter().filter_map(|token| tokenizer.id(token)).collect();
        let special = tokenizer.special_tokens().no_text.iter().copied();
        let code = |id: u32| {
            let token = tokenizer.token(id)?;
            let bare = token.strip_prefix("__").and_then(|token| token.strip_suffix("__"));
            let name = bare.unwrap_or(&token);
            let (language, script) = name.split_once('_').unwrap_or((name, ""));
            let is_code = matches!(language.len(), 2..=3)
                && language.bytes().all(|byte| byte.is_ascii_lowercase())
                && script.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_code.then(|| (name.to_owned(), id))
        };
        Self(special.chain(named).filter_map(code).collect())
    }

    /// Target language whose token comes first in every written text according to the folder's
    /// settings; `None` if there is none.
    fn written(&self, files: &Files) -> Option<String> {
        let keys = [files.keys(GENERATION_CONFIG), files.keys(CONFIG)];
        let ids = ["forced_bos_token_id", "decoder_start_token_id"]
            .into_iter()
            .flat_map(|key| keys.iter().map(move |keys| keys[key].as_u64()));
        let language_of =
            |id: u64| self.0.iter().find(|&(_, &language_id)| u64::from(language_id) == id);
        ids.flatten().find_map(language_of).map(|(name, _)| name.clone())
    }

    /// Id of the token of the language `name`; the error advises to name a language by the option
    /// `--{option}`.
    fn id(&self, name: Option<&str>, option: &str) -> Result<u32> {
        if let Some(&id) = name.and_then(|name| self.0.get(name)) {
            return Ok(id);
        }
        let wanted = name.map_or_else(
            || format!("no language of the {option} is named"),
            |name| format!("there is no language {name:?}"),
        );
        if self.0.is_empty() {
            bail!("{wanted}, and no special token of the vocabulary names any");
        }
        // Languages that begin with the same letter as `name` come first.
        let begins = |known: &&String| {
            let first = |name: &str| name.chars().next();
            name.is_some_and(|name| first(name) == first(known))
        };
        let (alike, others): (Vec<&String>, Vec<&String>) = self.0.keys().partition(begins);
        let listed: Vec<&str> =
            alike.into_iter().chain(others).take(LISTED).map(String::as_str).collect();
        let more = if self.0.len() > LISTED { ", …" } else { "" };
        bail!(
            "{wanted}: choose one of the {} by --{option}: {}{more}",
            self.0.len(),
            listed.join(", ")
        )
    }

    /// Tokenizers that add tokens of the two languages, with the ids `source` and `target`, to
    /// texts.
    ///
    /// M2M100, NLLB and mBART-50 have the language's token before each text. mBART for 25 languages
    /// has the source language's token after the end token of a source, and its decoder starts with
    /// the target language's token. NLLB with its first tokenizer (`legacy_behaviour`) also has the
    /// source language's token after the end token of a source.
    fn marked(
        &self,
        tokenizers: &TokenizerPair,
        files: &Files,
        [source, target]: [u32; 2],
    ) -> Result<TokenizerPair> {
        let first_mbart = files.is_of("MBartTokenizer", "mbart");
        let is_behind = first_mbart || files.keys(TOKENIZER_CONFIG)["legacy_behaviour"] == true;
        let start = |keys: &str| !files.keys(keys)["decoder_start_token_id"].is_null();
        let has_start = start(GENERATION_CONFIG) || start(CONFIG);
        let of_source = changed(tokenizers.source(), |special| match is_behind {
            true => special.after = vec![source],
            false => special.before = vec![source],
        })?;
        let of_target = changed(tokenizers.target(), |special| {
            if first_mbart {
                special.start = Some(target);
                return;
            }
            special.before = vec![target];
            if !has_start {
                special.start = special.ends.first().copied();
            }
        })?;
        Ok(TokenizerPair::separate(of_source, of_target))
    }
}
