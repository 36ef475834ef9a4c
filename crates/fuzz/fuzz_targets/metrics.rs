//! Fuzz target for scores such as BLEU, on arbitrary lines of text. The first byte of an input
//! chooses the tokenizer of BLEU.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taper_hostile::scores::scores;
use taper_metrics::Tokenizer;

fuzz_target!(
    init: {
        for choice in 0..Tokenizer::ALL.len() as u8 {
            let text = "The cat sat, on 3.5 mats.\n我爱你。\na cat sat on mats\n我喜欢你";
            taper_fuzz::seed("metrics", &format!("valid-{choice}"), &[&[choice], text.as_bytes()].concat());
        }
    },
    |bytes: &[u8]| {
        if let [choice, bytes @ ..] = bytes {
            let lines: Vec<String> = String::from_utf8_lossy(bytes).split('\n').map(str::to_owned).collect();
            scores(Tokenizer::ALL[usize::from(*choice) % Tokenizer::ALL.len()], &lines);
        }
    }
);
