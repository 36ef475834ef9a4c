//! Tests of `taper bleu` against the output of sacreBLEU for the same files and arguments.
//!
//! `scripts/compare/with_sacrebleu.py` compares many more cases, and needs sacreBLEU.

use crate::common::{Workspace, mentions, stdout};
use serde_json::{Value, json};

/// Makes a workspace with the files of two systems and two references.
fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("a", "The ferry leaves at seven.\nNobody answered the second letter\nRain, then 3.5 hours of sun!\n");
    workspace.write(
        "b",
        "The ferry goes at seven .\nThe second letter nobody answered\nRain and then sun\n",
    );
    workspace.write("r1", "The ferry departs at seven.\nNobody has answered the second letter.\nRain, and then 3.5 hours of sun.\n");
    workspace.write("r2", "At seven the ferry leaves.\nThe second letter was never answered.\nFirst rain, then sun for 3.5 hours!\n");
    workspace
}

/// Returns the output of the command, with sacreBLEU's version in signatures instead of Taper's.
fn printed(workspace: &Workspace, arguments: &str) -> String {
    let printed = workspace.succeed(format!("bleu {arguments}"));
    printed.replace(concat!("taper-", env!("CARGO_PKG_VERSION")), "2.6.0")
}

/// Returns the output of the command, parsed as JSON.
fn parsed(workspace: &Workspace, arguments: &str) -> Value {
    serde_json::from_str(&printed(workspace, arguments)).expect("JSON")
}

#[test]
fn json_of_one_system_is_sacrebleu_s() {
    let expected = json!([
        {
            "name": "BLEU", "score": 49.456,
            "signature": "nrefs:2|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
            "confidence_mean": 47.807, "confidence_var": 12.159, "confidence": "μ = 47.807 ± 12.159",
            "verbose_score": "100.0/81.2/46.2/30.0 (BP = 0.854 ratio = 0.864 hyp_len = 19 ref_len = 22)",
            "nrefs": "2", "bs": "1000", "seed": "12345", "case": "mixed", "eff": "no", "tok": "13a", "smooth": "exp",
            "version": "2.6.0",
        },
        {
            "name": "chrF2", "score": 75.863,
            "signature": "nrefs:2|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
            "confidence_mean": 75.732, "confidence_var": 4.428, "confidence": "μ = 75.732 ± 4.428",
            "nrefs": "2", "bs": "1000", "seed": "12345", "case": "mixed", "eff": "yes", "nc": "6", "nw": "0", "space": "no",
            "version": "2.6.0",
        },
        {
            "name": "TER", "score": 27.778,
            "signature": "nrefs:2|bs:1000|seed:12345|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0",
            "confidence_mean": 27.703, "confidence_var": 6.667, "confidence": "μ = 27.703 ± 6.667",
            "nrefs": "2", "bs": "1000", "seed": "12345", "case": "lc", "tok": "tercom", "norm": "no", "punct": "yes",
            "asian": "no", "version": "2.6.0",
        },
    ]);
    let workspace = workspace();
    assert_eq!(parsed(&workspace, "r1 r2 -i a -m ter bleu chrf -w 3 -ci"), expected);
    let one = printed(&workspace, "r1 -i a");
    assert!(
        one.starts_with("{\n \"name\": \"BLEU\",\n \"score\": "),
        "keys keep sacreBLEU's order: {one}"
    );
}

#[test]
fn paired_tests_are_sacrebleu_s() {
    let workspace = workspace();
    // The output is compared as text, digit for digit, because parsing may round numbers.
    let bootstrap = printed(&workspace, "r1 r2 -i a b -pbs");
    let expected = r#"[
    {
        "system": "Baseline: a",
        "BLEU": {
            "score": 49.45558206997092,
            "p_value": null,
            "mean": 47.80726642817652,
            "ci": 12.15912808193681
        }
    },
    {
        "system": "b",
        "BLEU": {
            "score": 19.50621575778473,
            "p_value": 0.000999000999000999,
            "mean": 19.7083138585803,
            "ci": 10.69705481176073
        }
    }
]
"#;
    assert_eq!(bootstrap, expected);
    let randomization = printed(&workspace, "r1 r2 -i a b -m bleu chrf ter --paired-ar -parn=200");
    for (metric, score) in [
        ("BLEU", "19.50621575778473"),
        ("chrF2", "53.879502673845124"),
        ("TER", "61.111111111111114"),
    ] {
        let expected = format!(
            "\"{metric}\": {{\n            \"score\": {score},\n            \"p_value\": 0.004975124378109453,"
        );
        mentions(&randomization, &[&expected]);
    }
    let said = printed(&workspace, "r1 r2 -i a b -pbs -f text -w 2");
    mentions(
        &said,
        &[
            "│ Baseline: a │ 49.46 (47.81 ± 12.16) │",
            "│     (p = 0.0010)*     │",
            "\n - BLEU       nrefs:2|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        ],
    );
    let table = printed(&workspace, "r1 r2 -i a b -par -parn 200 -m ter -f text");
    let signature = "\n - TER        nrefs:2|ar:200|seed:12345|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0";
    mentions(&table, &[signature]);
    let table = printed(&workspace, "r1 r2 -i a b -f text");
    assert!(
        table
            .contains("\n - BLEU       nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"),
        "{table}"
    );
    // 65535 is the largest number of decimals that can be requested.
    for format in ["text", "latex"] {
        assert!(printed(&workspace, &format!("r1 -i a b -w 65535 -f {format}")).contains("System"));
    }
}

#[test]
fn the_seed_comes_from_the_environment() {
    let workspace = workspace();
    let with_seed = |seed: &str| {
        let arguments = "bleu r1 r2 -i a -ci -cin 200 -f text -w 5";
        workspace.command(arguments).env("SACREBLEU_SEED", seed).output().expect("the binary runs")
    };
    mentions(stdout(&with_seed("7")), &["|bs:200|seed:7|", "= 49.45558 (μ = 48.29495 ± 9.06897)"]);
    crate::common::refused(&with_seed("none"), &["SACREBLEU_SEED=none"]);
}

#[test]
fn sentences_columns_and_standard_input() {
    let workspace = workspace();
    let signature = "TER|nrefs:2|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.6.0";
    let expected = format!("{signature} = 20.0000\n{signature} = 33.3333\n{signature} = 28.5714\n");
    assert_eq!(printed(&workspace, "r1 r2 -i a -m ter -sl -w 4"), expected);
    assert_eq!(printed(&workspace, "r1 r2 -i a -sl -b -w 4"), "42.7287\n47.3988\n56.7850\n");

    let read = |name: &str| workspace.read(name);
    let columns: String = read("r1")
        .lines()
        .zip(read("r2").lines())
        .map(|(left, right)| format!("{left}\t{right}\n"))
        .collect();
    workspace.write("columns", columns);
    assert_eq!(printed(&workspace, "columns -nr 2 -i a -b -w 4"), "49.4556\n");

    let piped = |text: &str| stdout(&workspace.run_with_input("bleu r1 -b -w 4", text.as_bytes()));
    let score = printed(&workspace, "r1 -i a -b -w 4");
    assert_eq!(piped(&read("a")), score);
    let of_two = workspace.run_with_input("bleu r1 r2 -i - -b -w 4", read("a").as_bytes());
    assert_eq!(stdout(&of_two), "49.4556\n");
    // Lines of standard input have a field for each system. Whitespace at the end of a field is
    // removed, but in the first line it is kept for all fields except the last. sacreBLEU does the
    // same, and gives these scores if whitespace counts.
    let spaced = [
        "The ferry leaves at seven. \tThe ferry goes at seven .\n",
        "Nobody answered the second letter\tThe second letter nobody answered\n",
        "Rain, then 3.5 hours of sun!\tRain and then sun\n",
    ];
    let arguments = "bleu r1 -m chrf --chrf-whitespace -w 6";
    let said = stdout(&workspace.run_with_input(arguments, spaced.concat().as_bytes()));
    mentions(&said, &["\"77.117082\"", "\"57.428741\""]);
    // A byte-order mark is not part of the text, neither in a file nor in standard input.
    let marked = format!("\u{feff}{}", read("a"));
    workspace.write("marked", &marked);
    assert_eq!(
        (piped(&marked), printed(&workspace, "r1 -i marked -b -w 4")),
        (score.clone(), score)
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_a_way_out() {
    let workspace = workspace();
    for tokenizer in ["ja-mecab", "ko-mecab", "spm", "flores101", "flores200", "spBLEU-1K"] {
        workspace.fail(format!("bleu r1 -i a -tok {tokenizer}"), &[tokenizer, "needs", "`none`"]);
    }
    workspace.fail("bleu r1 -i a -l en-ja", &["ja-mecab", "MeCab"]);
    workspace.fail("bleu -t wmt14 -l en-de -i a", &["--test-set", "--echo ref"]);
    for option in ["--list", "--citation", "--download=wmt14", "--echo=src"] {
        let name = option.split('=').next().expect("a name");
        workspace.fail(format!("bleu r1 {option}"), &[name, "no test sets", "sacrebleu -t"]);
    }
    workspace.fail("bleu r1 -i a -s wishful", &["wishful", "add-k"]);
    workspace.fail("bleu r1 -i a --encoding latin-1", &["latin-1", "UTF-8"]);
    workspace.fail("bleu r1 -i a a", &["a:", "twice"]);
    workspace.fail("bleu r1 -i a --paired-bs", &["paired", "--input"]);
    workspace.fail("bleu r1 -i a b --confidence", &["--confidence", "--paired-bs"]);
    workspace.fail("bleu r1 -i a -sl -m bleu ter", &["--sentence-level", "one metric"]);
    workspace.fail("bleu r1 -i a -sl --json", &["--sentence-level", "--json"]);
    assert_eq!(workspace.succeed("bleu r1 -i a -sl -b -f json").lines().count(), 3);
    workspace.fail("bleu r1 -nr 2 -i a", &["r1:1", "--num-refs"]);
    workspace.fail("bleu r1 -nr 0 -i a", &["--num-refs", "0"]);
    workspace.fail("bleu r1 -i a -l zh", &["--language-pair zh", "en-zh"]);
    workspace.fail("bleu r1 -i a -w 70000", &["70000", "--width"]);
    workspace.fail("bleu r1 -i a b -par -pbs", &["--paired-ar", "--paired-bs"]);
}
