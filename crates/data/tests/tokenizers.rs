//! Tests of tokenizers: training has the same result each time, no text is lost, and a tokenizer is
//! checked when it is loaded.

mod common;

use common::mentions;
use taper_data::{
    DataConfig, Error, SPECIAL_TOKENS, Task, Tokenizer, TokenizerConfig, TokenizerKind,
    TokenizerPair, UNKNOWN,
};

const KINDS: [TokenizerKind; 2] = [TokenizerKind::Bpe, TokenizerKind::Unigram];

fn texts() -> impl Iterator<Item = Result<String, Error>> {
    let chinese = ["我爱你。", "我不爱你。", "他们喜欢猫吗？", "猫喜欢我。"];
    common::sentences(300)
        .into_iter()
        .flat_map(|(source, target)| [source, target])
        .chain(chinese.into_iter().cycle().take(80).map(str::to_owned))
        .map(Ok)
}

fn settings(kind: TokenizerKind) -> TokenizerConfig {
    TokenizerConfig { kind, vocabulary_size: 420, ..TokenizerConfig::default() }
}

fn trained(kind: TokenizerKind) -> Tokenizer {
    Tokenizer::train(&settings(kind), false, false, texts()).unwrap()
}

#[test]
fn any_text_survives() {
    let lines = [
        "the dog sees a house.",
        "der Hund sieht zwei Vögel, und eine Frau!",
        "我爱你。他们喜欢狗吗？",
        "👩‍👩‍👧 emoji 🏴󠁧󠁢󠁥󠁮󠁧󠁿 and 🤷🏽",
        "\u{0}\u{1}\u{7f}\u{85}\u{2028} control\tcharacters \u{200b}",
        "ᚠᛇᚻ ᛒᛦᚦ ‎עברית‎ العربية ไทย አማርኛ 𒀀𒁀 𝔘𝔫𝔦",
        "e\u{301} is not é",
        "</s> <pad> <s> <unk> <0x41> <0xE4>",
        "<0x41><0x42></s></s>",
        "100% of 3.14159 = (almost) π, isn't it?",
        "é",
        "x",
        "two  spaces   inside",
    ];
    for kind in KINDS {
        let tokenizer = trained(kind);
        for line in lines {
            let ids = tokenizer.encode(line).unwrap();
            assert_eq!(tokenizer.decode(&ids).unwrap(), line, "{kind:?} {ids:?}");
            let specials = ids.iter().filter(|id| (**id as usize) < SPECIAL_TOKENS.len());
            assert_eq!(specials.count(), 0, "{kind:?} {line:?} {ids:?}");
        }
    }
}

/// If a file has a dropout, the library tokenizers would segment a text differently in each call.
#[test]
fn a_dropout_in_a_file_does_not_count() {
    let tokenizer = trained(TokenizerKind::Bpe);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    tokenizer.save(&path).unwrap();
    let json = std::fs::read_to_string(&path).unwrap();
    let with_dropout = json.replacen("\"dropout\": null", "\"dropout\": 0.9", 1);
    assert_ne!(with_dropout, json);
    std::fs::write(&path, with_dropout).unwrap();
    let text = "the dog sees a house.";
    assert_eq!(
        Tokenizer::load(&path).unwrap().encode(text).unwrap(),
        tokenizer.encode(text).unwrap()
    );
}

#[test]
fn every_character_survives() {
    let all: Vec<char> = (0..0x3_0000_u32)
        .filter_map(char::from_u32)
        // The space mark is decoded to a space, so it does not survive.
        .filter(|character| *character != '▁')
        .collect();
    for kind in KINDS {
        let tokenizer = trained(kind);
        let lines: Vec<String> =
            all.chunks(97).map(|chunk| format!("a{}z", chunk.iter().collect::<String>())).collect();
        let rows = tokenizer.encode_batch(&lines).unwrap();
        for (text, line) in tokenizer.decode_batch(&rows).unwrap().iter().zip(&lines) {
            assert_eq!(text, line, "{kind:?}");
        }
    }
}

#[test]
fn training_is_repeatable_and_uses_the_vocabulary() {
    for kind in KINDS {
        let first = trained(kind);
        for _ in 0..3 {
            assert_eq!(first.hash(), trained(kind).hash(), "{kind:?}");
        }
        assert!(first.vocabulary_size() <= 420, "{kind:?} {}", first.vocabulary_size());
        assert!(first.vocabulary_size() > 320, "{kind:?} {}", first.vocabulary_size());
        // A frequent sentence is divided into words, not characters.
        let tokens = first.tokens("the dog likes the sea.").unwrap();
        assert!(tokens.len() <= 10, "{kind:?} {tokens:?}");
    }
}

#[test]
fn batches_of_texts_equal_single_texts_in_order() {
    let tokenizer = trained(TokenizerKind::Bpe);
    let lines: Vec<String> = texts().map(Result::unwrap).collect();
    let rows = tokenizer.encode_batch(&lines).unwrap();
    for (line, row) in lines.iter().zip(&rows) {
        assert_eq!(&tokenizer.encode(line).unwrap(), row);
    }
}

#[test]
fn saved_and_loaded_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let tokenizer = trained(kind);
        let path = directory.path().join("tokenizer.json");
        tokenizer.save(&path).unwrap();
        let loaded = Tokenizer::load(&path).unwrap();
        assert_eq!(loaded.hash(), tokenizer.hash());
        let text = "the dog </s> 🦊 likes 我";
        assert_eq!(loaded.encode(text).unwrap(), tokenizer.encode(text).unwrap());
    }
}

#[test]
fn normalisation_is_part_of_the_tokenizer() {
    for kind in KINDS {
        let tokenizer = Tokenizer::train(&settings(kind), true, true, texts()).unwrap();
        let text = "ＡＢＣ ﬁne Straße";
        assert_eq!(tokenizer.normalize(text).unwrap(), "abc fine straße");
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), "abc fine straße");
    }
}

#[test]
fn without_byte_fallback_unseen_characters_are_unknown() {
    for kind in KINDS {
        let config =
            TokenizerConfig { byte_fallback: false, vocabulary_size: 150, ..settings(kind) };
        let tokenizer = Tokenizer::train(&config, false, false, texts()).unwrap();
        let ids = tokenizer.encode("the 🦊").unwrap();
        assert!(ids.contains(&UNKNOWN), "{kind:?} {ids:?}");
        let plain = tokenizer.encode("the dog").unwrap();
        assert!(!plain.contains(&UNKNOWN), "{kind:?} {plain:?}");
    }
}

#[test]
fn a_vocabulary_too_small_for_its_characters_is_refused() {
    for kind in KINDS {
        let config = TokenizerConfig { vocabulary_size: 270, ..settings(kind) };
        let error = Tokenizer::train(&config, false, false, texts()).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("data.tokenizer.vocabulary_size: is 270 but"), "{message}");
    }
}

#[test]
fn a_foreign_tokenizer_needs_the_special_ids() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokenizer.json");
    trained(TokenizerKind::Bpe).save(&path).unwrap();
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, json.replace("\"</s>\"", "\"<end>\"")).unwrap();
    mentions(Tokenizer::load(&path).unwrap_err(), &["</s> must have id 3 but is absent"]);
    // A tokenizer with GPT-2's special tokens can be used only for running text.
    let gpt2 = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../run/tests/golden/gpt2/tokenizer.json");
    let tokenizer = Tokenizer::load(&gpt2).unwrap();
    assert!(!tokenizer.has_special_tokens());
    assert_eq!(tokenizer.end() as usize, tokenizer.vocabulary_size() - 1);
    let text = "<|endoftext|> and \"#$%\" are text";
    let ids = tokenizer.encode(text).unwrap();
    assert!(!ids.contains(&tokenizer.end()), "{ids:?}");
    assert_eq!(tokenizer.decode(&[&ids[..], &[tokenizer.end()]].concat()).unwrap(), text);
    let mut config = DataConfig::default();
    config.tokenizer.path = Some(gpt2);
    mentions(TokenizerPair::train(&config).unwrap_err(), &["<pad> must have id 0 but is absent"]);
    std::fs::write(&path, "{}").unwrap();
    mentions(Tokenizer::load(&path).unwrap_err(), &["not a tokenizer.json"]);
    let missing = Tokenizer::load(&directory.path().join("none.json")).unwrap_err();
    assert!(missing.to_string().contains("data.tokenizer.path"), "{missing}");
}

#[test]
fn pairs_are_joint_or_separate_and_survive_a_round_trip() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = common::corpus(directory.path());
    for joint in [true, false] {
        config.tokenizer.joint = joint;
        let run = directory.path().join(format!("run-{joint}"));
        let pair = TokenizerPair::obtain(&config, &run).unwrap();
        assert_eq!(pair.is_joint(), joint);
        assert_eq!(pair.source().hash() == pair.target().hash(), joint);
        assert_eq!(TokenizerPair::load(&run).unwrap().hash(), pair.hash());
    }
    // The tokenizers of a run can be used for another run.
    let files = directory.path().join("run-false");
    config.tokenizer.path = Some(files.join("tokenizer.source.json"));
    config.tokenizer.target_path = Some(files.join("tokenizer.target.json"));
    Task::Translation.validate(&config).unwrap();
    let again = TokenizerPair::obtain(&config, &directory.path().join("other")).unwrap();
    assert_eq!(again.hash(), TokenizerPair::load(&files).unwrap().hash());
}

#[test]
fn impossible_settings_are_refused_by_key() {
    type Change = fn(&mut DataConfig);
    let refused = |change: Change| {
        let mut config = DataConfig::default();
        change(&mut config);
        Task::Translation.validate(&config).unwrap_err().to_string()
    };
    let cases: [(Change, &str); 7] = [
        (|c| c.target_language = "en".to_owned(), "data.target_language"),
        (|c| c.cleaning.max_tokens = 0, "data.cleaning.max_tokens"),
        (|c| c.cleaning.max_ratio = 0.5, "data.cleaning.max_ratio"),
        (|c| c.batching.max_tokens = 0, "data.batching.max_tokens"),
        (|c| c.tokenizer.target_path = Some("t.json".into()), "data.tokenizer.target_path"),
        (
            |c| {
                c.lowercase = true;
                c.tokenizer.path = Some("t.json".into());
            },
            "data.tokenizer.path",
        ),
        (
            |c| {
                c.bidirectional_epochs = 1;
                c.tokenizer.joint = false;
            },
            "data.bidirectional_epochs",
        ),
    ];
    for (change, key) in cases {
        let message = refused(change);
        assert!(message.starts_with(key), "{message}");
    }
    assert!(Task::Translation.validate(&DataConfig::default()).is_ok());
}
