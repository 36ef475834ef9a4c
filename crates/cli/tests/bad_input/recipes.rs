//! Bad recipes, and bad options that change them.

use super::common::{Workspace, refused, set, stderr};
use super::{TRAIN, set_fails};

#[test]
fn a_missing_recipe() {
    let workspace = Workspace::new();
    workspace.fail("train absent.toml", &["absent.toml"]);
}

#[test]
fn an_unknown_key_names_file_line_and_nearest() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[model]\nd_model = 16\nhaeds = 2\n");
    workspace.fail("config check bad.toml", &["bad.toml:3", "`model.haeds`", "`model.heads`"]);
    set_fails(
        "training.max_update=3",
        &["override training.max_update=3", "`training.max_updates`"],
    );
}

#[test]
fn names_of_other_toolkits_lead_to_keys() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[training]\nlr = 5e-4\n");
    workspace.fail(
        "config check bad.toml",
        &["bad.toml:2: unknown key `training.lr`, did you mean `training.schedule.learning_rate`?"],
    );
    workspace.write("bad.toml", "[optim]\nwarmup = 400\n");
    workspace.fail(
        "config check bad.toml",
        &["bad.toml:1: unknown section `optim`, did you mean `training.schedule.warmup`?"],
    );
    for (set, meant) in [
        ("patience=3", "`training.early_stopping.patience`"),
        ("training.batch_size=64", "`data.batching.max_tokens`"),
        ("decoding.beam=4", "`decoding.beam_size`"),
        ("model.dropout=0.3", "`model.residual_dropout`"),
        ("model.layers=2", "`model.encoder_layers` and `model.decoder_layers`"),
    ] {
        workspace.fail(format!("config check tiny.toml --set {set}"), &["unknown key", meant]);
    }
}

#[test]
fn a_key_without_effect_is_named() {
    let output = Workspace::new().succeed("config check tiny.toml --set decoding.sampling.top_k=5");
    assert!(
        output
            .contains("decoding.sampling.top_k has no effect: decoding.sampling.temperature is 0")
            && output.ends_with("valid\n"),
        "{output}"
    );
}

#[test]
fn training_that_ends_before_its_direction_is_trained_alone_says_so() {
    let workspace = Workspace::new();
    let warns = |settings: &str| {
        let run = format!("runs/{}", settings.replace(' ', ""));
        let output = workspace.finish(format!("train tiny.toml --run {run} {}", set(settings)));
        stderr(&output)
            .contains("warning: training ends before the wanted direction is trained alone")
    };
    let two_epochs = "training.max_epochs=2 training.max_updates=0";
    assert!(warns("data.bidirectional_epochs=1000"));
    assert!(warns(&format!("data.bidirectional_epochs=2 {two_epochs}")));
    assert!(!warns(&format!("data.bidirectional_epochs=1 {two_epochs}")));
    assert!(!warns("training.max_epochs=1"));
}

#[test]
fn the_target_language_chooses_the_tokenizer_of_scores() {
    let workspace = Workspace::new();
    let shown = |set: &str| {
        workspace
            .succeed(format!("config show tiny.toml --set data.target_language=zh --set {set}"))
    };
    assert!(shown("name=a").contains("tokenize = \"zh\""));
    assert!(shown("evaluation.tokenize=13a").contains("tokenize = \"13a\""), "what is named holds");
}

#[test]
fn a_mistyped_value_names_file_line_key_and_type() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "[training]\n\nmax_updates = \"many\"\n");
    workspace.fail(
        "config check bad.toml",
        &["bad.toml:3", "`training.max_updates`", "text \"many\"", "an integer from 0"],
    );
    set_fails(
        "model.heads=two",
        &["override model.heads=two", "`model.heads`", "an integer from 1"],
    );
    set_fails("evaluation.tokenize=zj", &["`evaluation.tokenize`", "`zh`"]);
}

#[test]
fn broken_toml_names_the_line() {
    let workspace = Workspace::new();
    workspace.write("bad.toml", "seed = = 1\n");
    workspace.fail("config check bad.toml", &["bad.toml:1"]);
}

#[test]
fn impossible_combinations() {
    set_fails("model.heads=3", &["heads = 3", "d_model = 16"]);
    set_fails("data.tokenizer.joint=false", &["tied", "joint"]);
    set_fails("training.label_smoothing=2", &["training.label_smoothing"]);
    set_fails("decoding.beam_size=0", &["beam_size"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_this_build_lacks() {
    set_fails("device=cuda", &["cuda", "--features cuda"]);
    set_fails("device=gpu", &["gpu", "cuda:N"]);
    set_fails("dtype=f16", &["dtype", "f16"]);
}

#[test]
fn a_matrix_kernel_that_is_not_there() {
    let workspace = Workspace::new();
    let choose = |kernel: &str| {
        workspace.command(TRAIN).env("TAPER_KERNEL", kernel).output().expect("the binary runs")
    };
    refused(&choose("tile"), &["TAPER_KERNEL=tile", "no such matrix kernel", "gemm"]);
    refused(&choose(""), &["TAPER_KERNEL=", "no such matrix kernel"]);
    assert!(!workspace.path("run").exists(), "a run folder was left behind");
}

#[test]
fn what_is_watched_must_be_measured() {
    let workspace = Workspace::new();
    let refused = |settings: &str, fragments: &[&str]| {
        workspace.fail(format!("config check tiny.toml {settings}"), fragments);
        workspace.fail(format!("train tiny.toml --run run {settings}"), fragments);
        assert!(!workspace.path("run").exists());
    };
    let bleu = "--set training.early_stopping.metric=bleu --set evaluation.validation_sentences=0";
    refused(
        bleu,
        &["training.early_stopping.metric = \"bleu\"", "evaluation.validation_sentences"],
    );
    let blind = "--set training.early_stopping.patience=3 --set data.validation=";
    refused(blind, &["training.early_stopping.patience = 3", "data.validation"]);
}

/// Numbers in a recipe or an option may demand any amount of memory, so large numbers are refused.
#[test]
fn figures_beyond_all_measure_are_refused() {
    set_fails("training.accumulation=1000000000000", &["training.accumulation", "65536"]);
    let workspace = Workspace::new();
    workspace.write("hypothesis", "a\nb\n");
    workspace.write("reference", "a\tb\nb\tc\n");
    workspace.fail(
        "bleu hypothesis reference --num-refs 1000000000000",
        &["reference:1", "2 references", "1000000000000"],
    );
    for option in ["--confidence-n", "--paired-bs-n", "--paired-ar-n", "--chrf-char-order"] {
        let output = workspace.run(format!("bleu hypothesis reference {option} 1000000000000"));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
    }
}

/// Numbers that are out of range, or that are 0 or infinite in f32, would lead to results that are
/// not finite, so they are refused.
#[test]
fn absurd_figures_are_refused_with_their_key() {
    let workspace = Workspace::new();
    let check = |key: &str, value: &str| {
        workspace.fail(format!("config check tiny.toml --set {key}={value}"), &[key]);
    };
    for key in [
        "model.norm_epsilon",
        "model.residual_dropout",
        "training.optimizer.epsilon",
        "training.optimizer.beta1",
        "training.optimizer.weight_decay",
        "training.schedule.learning_rate",
        "training.label_smoothing",
        "training.clip_norm",
        "training.r_drop",
        "decoding.length_penalty",
        "decoding.sampling.temperature",
        "data.batching.length_noise",
        "data.cleaning.max_ratio",
    ] {
        for value in ["-1.0", "nan", "inf"] {
            check(key, value);
        }
        if key != "data.cleaning.max_ratio" {
            check(key, "1e300");
        }
    }
    check("model.norm_epsilon", "1e-300");
    for key in ["model.d_model", "model.d_ff", "model.encoder_layers", "model.max_positions"] {
        check(key, "0");
        check(key, "9223372036854775806");
    }
    // An edited configuration in a run's folder is checked too.
    workspace.train("run");
    let config = workspace.read("run/config.toml");
    workspace
        .write("run/config.toml", config.replace("norm_epsilon = 0.00001", "norm_epsilon = 1e300"));
    workspace.fail("translate run", &["run/config.toml", "model.norm_epsilon = 1e300"]);
}

#[test]
fn a_name_that_leads_elsewhere() {
    let workspace = Workspace::new();
    for name in ["../../etc", "a/b", "/etc", "..", "."] {
        workspace.fail(format!("train tiny.toml --set name={name}"), &["`name`", "runs/", "--run"]);
    }
    assert!(!workspace.path("runs").exists());
}
