//! Tests that text that spells special tokens stays text, becomes the tokens, or is refused, with
//! tokenizers of all kinds.

mod common;

use std::path::Path;

use taper_data::{SpelledSpecial, Tokenizer, TokenizerConfig, TokenizerKind, TokenizerPair};

fn golden(name: &str) -> Tokenizer {
    let path = format!("../run/tests/golden/{name}/tokenizer.json");
    Tokenizer::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn id_of(tokenizer: &Tokenizer, token: &str) -> u32 {
    let ids = 0..tokenizer.vocabulary_size() as u32;
    ids.into_iter().find(|&id| tokenizer.token(id).as_deref() == Some(token)).unwrap()
}

#[test]
fn every_kind_reads_its_special_tokens_where_it_is_asked_to() {
    let texts = || common::sentences(300).into_iter().map(|(source, _)| Ok(source));
    let mut tokenizers = vec![(golden("gpt2"), "<|endoftext|>"), (golden("bert"), "[MASK]")];
    for kind in
        [TokenizerKind::Bpe, TokenizerKind::Unigram, TokenizerKind::Bytes, TokenizerKind::Char]
    {
        let config = TokenizerConfig { kind, vocabulary_size: 420, ..TokenizerConfig::default() };
        tokenizers.push((Tokenizer::train(&config, false, false, texts()).unwrap(), "</s>"));
    }
    for (tokenizer, special) in tokenizers {
        let id = id_of(&tokenizer, special);
        let text = format!("the dog{special}sees a {special} house");
        assert_eq!(tokenizer.spelled(&text), Some(special));
        assert_eq!(tokenizer.spelled("the dog sees a house"), None);
        assert!(!tokenizer.encode(&text).unwrap().contains(&id));

        let reads = tokenizer.with_spelled(SpelledSpecial::Read);
        let ids = reads.encode(&text).unwrap();
        assert_eq!(ids.iter().filter(|&&one| one == id).count(), 2, "{special}: {ids:?}");
        assert_eq!(reads.encode(special).unwrap(), [id]);
        assert_eq!(reads.encode_text(&text).unwrap().ids(), ids);
        // Text around special tokens has the same tokens as it has alone.
        let before = tokenizer.encode("the dog").unwrap();
        assert_eq!(ids[..before.len()], before);
        let plain = "the dog sees a house";
        assert_eq!(reads.encode(plain).unwrap(), tokenizer.encode(plain).unwrap());
        assert_eq!(reads.hash(), tokenizer.hash());

        let refuses = tokenizer.with_spelled(SpelledSpecial::Refuse);
        let message = refuses.encode(&text).unwrap_err().to_string();
        assert!(message.contains(special) && message.contains("refused"), "{message}");
        assert!(refuses.encode(plain).is_ok() && refuses.check_spelled(&text).is_err());
        assert!(tokenizer.check_spelled(&text).is_ok());
    }
}

/// The tokenizer has a token that its file marks as special but that has no role in this project.
#[test]
fn added_tokens_that_are_special_are_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    golden("gpt2").save(&path).unwrap();
    let mut json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let id = golden("gpt2").vocabulary_size();
    json["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({
        "id": id, "content": "<|user|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    }));
    std::fs::write(&path, json.to_string()).unwrap();
    let tokenizer = Tokenizer::load(&path).unwrap();
    assert_eq!(tokenizer.spelled("<|user|>the<|endoftext|>"), Some("<|user|>"));
    let ids = tokenizer.with_spelled(SpelledSpecial::Read).encode("the<|user|>").unwrap();
    assert_eq!(ids.last(), Some(&(id as u32)));
    assert!(!tokenizer.encode("the<|user|>").unwrap().contains(&(id as u32)));
}

#[test]
fn both_tokenizers_of_a_pair_follow() {
    let pair = TokenizerPair::separate(golden("gpt2"), golden("bert"));
    let reads = pair.with_spelled(SpelledSpecial::Read);
    assert_eq!(reads.source().encode("<|endoftext|>").unwrap(), [pair.source().end()]);
    assert_eq!(reads.target().encode("[SEP]").unwrap(), [pair.target().end()]);
}
