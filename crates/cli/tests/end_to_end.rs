//! Tests of the real binary, from recipe to translation.

mod common;

use std::fs;

use common::{Workspace, mentions, stderr, stdout};

#[test]
fn train_translate_evaluate_score_average_inspect() {
    let workspace = Workspace::new();
    let shown = workspace.succeed("train tiny.toml --run run");
    mentions(
        &shown,
        &[
            "200 pairs read",
            "parameters",
            "BLEU|nrefs:1",
            "sample translations",
            "taper translate run",
        ],
    );
    for file in [
        "config.toml",
        "tokenizer.json",
        "data.json",
        "metrics.jsonl",
        "scores.json",
        "translations/test.txt",
    ] {
        assert!(workspace.path("run").join(file).is_file(), "{file} is missing");
    }

    // The output has one line for each line of input, in order; blank lines stay empty.
    let sources = "red cat sees\n\ntwo big dogs run here\n   \nred cat sees\n";
    let output = workspace.run_with_input("translate run", sources.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.split('\n').collect();
    assert_eq!(lines.len(), 6, "{text:?}");
    assert_eq!((lines[1], lines[3], lines[5]), ("", "", ""));
    assert_eq!(lines[0], lines[4]);
    let alone = workspace.run_with_input("translate run", b"two big dogs run here\n");
    assert_eq!(stdout(&alone).trim_end_matches('\n'), lines[2]);

    workspace.write("in.txt", sources);
    workspace.succeed("translate run --input in.txt --output out.txt");
    assert_eq!(workspace.read("out.txt"), text);
    let n_best = workspace.run_with_input("translate run --n-best 2 --beam 3", b"red cat\n");
    assert_eq!(stdout(&n_best).lines().count(), 2, "{}", stderr(&n_best));

    let record = workspace.json("evaluate run --json");
    assert_eq!(record["results"][0]["sentences"], 12);
    assert!(
        record["results"][0]["bleu"]["signature"].as_str().expect("signature").contains("tok:13a")
    );

    let scored = workspace.succeed("score run --source data/test.aa --target data/test.bb");
    assert_eq!(scored.lines().count(), 12);
    assert!(scored.lines().all(|line| line.starts_with('-')), "{scored}");

    assert!(workspace.succeed("average run --last 2").contains("steps 6 to 12"));
    let inspected = workspace.json("inspect run --json");
    let sum: u64 = inspected["parameters"]
        .as_array()
        .expect("parameters")
        .iter()
        .map(|parameter| parameter["scalars"].as_u64().expect("scalars"))
        .sum();
    assert_eq!(inspected["cost"]["parameters"], sum);
    // With R-Drop, training computes two forward passes for each batch.
    let twice = workspace.json("inspect run --json --set training.r_drop=1");
    for cost in ["training_flops_per_token_pair", "activation_bytes"] {
        assert_eq!(
            twice["cost"][cost].as_u64(),
            inspected["cost"][cost].as_u64().map(|once| 2 * once),
            "{cost}"
        );
    }
    let bytes = |json: &serde_json::Value| json["cost"]["training_state_bytes"].as_u64();
    assert_eq!(bytes(&twice), bytes(&inspected));
    // Each of four processes has a quarter of the optimizer's two moments, and buffers to send and
    // to receive.
    let four = workspace.json("inspect run --json --processes 4");
    let parameters = four["cost"]["parameters"].as_u64().expect("a number");
    let quarter = 4 * (2 * parameters).div_ceil(4);
    let of_four = |one| one - 4 * 2 * parameters + quarter + 4 * 2 * parameters;
    assert_eq!(bytes(&four), bytes(&inspected).map(of_four));
}

#[test]
fn a_run_is_named_by_its_recipe() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --set name=first");
    assert!(workspace.path("runs/first/scores.json").is_file());
}

#[test]
fn a_score_of_lowercased_data_says_so() {
    let workspace = Workspace::new();
    workspace.succeed("train tiny.toml --run run --set data.lowercase=true");
    let scores = workspace.read("run/scores.json");
    assert!(scores.contains("case:lc") && !scores.contains("case:mixed"), "{scores}");
}

#[test]
fn resolved_configuration_is_a_fixed_point() {
    let workspace = Workspace::new();
    let shown = workspace.succeed("config show tiny.toml --set model.d_model=32");
    mentions(&shown, &["d_model = 32"]);
    assert!(shown.contains("norm_epsilon"), "defaults are written out: {shown}");
    workspace.write("again.toml", &shown);
    assert_eq!(workspace.succeed("config show again.toml"), shown);
}

#[test]
fn tokenizer_round_trip() {
    let workspace = Workspace::new();
    workspace.succeed("tokenizer train tiny.toml --output tokens");
    let text = "red cat sees 我 ∮\n\ntwo dogs\n";
    let encoded = workspace.run_with_input("tokenizer encode tokens", text.as_bytes());
    assert!(encoded.status.success(), "{}", stderr(&encoded));
    let decoded = workspace.run_with_input("tokenizer decode tokens", &encoded.stdout);
    assert_eq!(stdout(&decoded), text);
}

#[test]
fn bleu_prints_the_reference_implementation_s_numbers() {
    // sacreBLEU 2.6.0: corpus_bleu(["the cat sat on the mat"], [["the cat is on the mat"]],
    // force=True) is 37.99, precisions 83.3/60.0/25.0/16.7.
    let workspace = Workspace::new();
    workspace.write("hypothesis", "the cat sat on the mat\n");
    workspace.write("reference", "the cat is on the mat\n");
    let line = workspace.succeed("bleu hypothesis reference");
    assert!(line.starts_with("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|"), "{line}");
    mentions(&line, &["= 37.99 83.3/60.0/25.0/16.7 (BP = 1.000"]);
    let all = workspace.succeed("bleu hypothesis hypothesis -m bleu chrf chrfpp");
    assert_eq!(all.matches("= 100.00").count(), 3, "{all}");
    // A metric that is named twice, by two names, is printed once.
    let all = workspace.succeed("bleu hypothesis hypothesis -m chrf chrfpp -cw 2");
    assert_eq!(all.matches("= 100.00").count(), 1, "{all}");
    for (arguments, named) in [
        ("-cw 3", "chrfpp"),
        ("-cc 18446744073709551615", "18446744073709551615"),
        ("--confidence --confidence-n 18446744073709551615", "18446744073709551615"),
    ] {
        workspace.fail(format!("bleu hypothesis hypothesis -m chrf chrfpp {arguments}"), &[named]);
    }
}

#[test]
fn shells_are_told_what_can_follow() {
    let workspace = Workspace::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = workspace.succeed(format!("completions {shell}"));
        assert!(script.contains("TAPER_COMPLETE"), "{shell}: {script}");
    }
    fs::create_dir_all(workspace.path("runs/one/checkpoints/step-00000007")).unwrap();
    let asked = |words: &str| {
        let script = format!("TAPER_COMPLETE=fish \"$0\" -- taper {words}");
        let output = workspace.script(&["sh"], &script);
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    for (words, expected) in [
        ("trans", "translate"),
        ("translate --be", "--beam"),
        ("translate runs/o", "runs/one"),
        ("translate runs/one --checkpoint ''", "step-00000007"),
        ("train a.toml --set model.encoder_l", "model.encoder_layers="),
        ("train a.toml --set model.norm=po", "model.norm=post"),
    ] {
        assert!(asked(words).contains(expected), "{words}: {}", asked(words));
    }
    assert!(!asked("train a.toml --set model.encoder_l").contains("decoder"));
}
