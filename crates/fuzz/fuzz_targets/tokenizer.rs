//! Fuzz target for the reader of tokenizer files, `tokenizer.json`.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_data::{Tokenizer, TokenizerConfig, TokenizerKind};
use taper_hostile::corpora::tokenizer_file;

static FILE: LazyLock<PathBuf> = LazyLock::new(|| taper_fuzz::folder().join("tokenizer.json"));

fuzz_target!(
    init: {
        // The tokenizers library may panic, and Taper catches such a panic. libFuzzer installs a
        // panic hook that ends the fuzzer at every panic, even if it is caught. This hook replaces
        // libFuzzer's hook. A panic that is not caught still ends the fuzzer.
        std::panic::set_hook(Box::new(|_| {}));
        for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram] {
            let config = TokenizerConfig { kind, vocabulary_size: 290, ..TokenizerConfig::default() };
            let texts = ["the dog sees two birds", "a woman paints the sea"].map(|text| Ok(text.to_owned()));
            let tokenizer = Tokenizer::train(&config, true, true, texts.into_iter()).expect("trains");
            tokenizer.save(&FILE).expect("saved");
            taper_fuzz::seed("tokenizer", &format!("{kind:?}"), &std::fs::read(&*FILE).expect("read"));
        }
    },
    |bytes: &[u8]| tokenizer_file(&FILE, bytes)
);
