//! Tests of `bench train`, with the real binary and small files of batches.

use crate::common::Workspace;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

/// Writes a safetensors file with one int32 matrix for each name.
fn write_batches(workspace: &Workspace, file: &str, tensors: &[(&str, &[&[i32]])]) {
    let tensors = tensors.iter().map(|(name, rows)| {
        let shape = vec![rows.len(), rows.first().map_or(0, |row| row.len())];
        (*name, shape, rows.concat().into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>())
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (*name, TensorView::new(Dtype::I32, shape.clone(), bytes).expect("tensor"))
    });
    workspace.write(file, safetensors::serialize(views, None).expect("safetensors"));
}

/// Returns the report of three training steps on the file `batches`.
fn report(workspace: &Workspace, extra: &str) -> Value {
    let arguments =
        "bench train --batches batches --preset tiny --vocab 40 --threads 1 --warmup 1 --steps 3";
    let shown = workspace.succeed(format!("{arguments} --json {extra}"));
    serde_json::from_str(&shown).expect("JSON")
}

fn loss(report: &Value) -> f64 {
    report["last_loss"].as_f64().expect("last_loss")
}

#[test]
fn a_report_of_training_steps() {
    let workspace = Workspace::new();
    let (first, second): ([&[i32]; 2], [&[i32]; 2]) =
        ([&[5, 6, 7, 3], &[8, 3, 0, 0]], [&[2, 9, 10, 3], &[2, 11, 3, 0]]);
    let (third, fourth): ([&[i32]; 1], [&[i32]; 1]) = ([&[12, 3]], [&[2, 13, 14, 3]]);
    write_batches(
        &workspace,
        "batches",
        &[("src.0", &first), ("tgt.0", &second), ("src.1", &third), ("tgt.1", &fourth)],
    );
    let plain = report(&workspace, "");
    for figure in ["target_tokens_per_s", "s_per_step"] {
        assert!(plain[figure].as_f64().expect(figure) > 0.0, "{plain}");
    }
    assert_eq!(
        (&plain["operations"], &plain["threads"], &plain["r_drop"]),
        (&"fused".into(), &1.into(), &0.0.into())
    );
    let composed = report(&workspace, "--composed");
    assert_eq!(composed["operations"], "composed");
    assert!((loss(&composed) / loss(&plain) - 1.0).abs() < 1e-4, "{plain} {composed}");
    let (fused, composed) =
        (report(&workspace, "--r-drop 1"), report(&workspace, "--r-drop 1 --composed"));
    assert!((loss(&composed) / loss(&fused) - 1.0).abs() < 1e-4, "{fused} {composed}");
    assert!((loss(&fused) - loss(&plain)).abs() > 1e-3, "{plain} {fused}");
}

#[test]
fn impossible_batches_and_options_are_refused() {
    let workspace = Workspace::new();
    let refuse = |file: &str, extra: &str, fragments: &[&str]| {
        let arguments = format!("bench train --batches {file} --preset tiny --warmup 0");
        workspace.fail(format!("{arguments} {extra}"), fragments);
    };
    let (row, target): ([&[i32]; 1], [&[i32]; 1]) = ([&[5, 3]], [&[2, 6, 3]]);
    write_batches(&workspace, "good", &[("src.0", &row), ("tgt.0", &target)]);
    refuse("missing", "", &["missing", "cannot read"]);
    refuse("tiny.toml", "", &["tiny.toml", "not a safetensors file"]);
    refuse("good", "--vocab 6", &["tgt.0", "id 6 is not in a vocabulary of 6"]);
    refuse("good", "--r-drop=-1", &["r_drop is -1"]);
    refuse("good", "--dropout 1.5", &["dropout"]);
    refuse("good", "--steps 0", &["--steps 0"]);
    write_batches(&workspace, "alone", &[("src.0", &row)]);
    refuse("alone", "", &["alone: tgt.0"]);
    write_batches(&workspace, "none", &[("src.1", &row), ("tgt.1", &target)]);
    refuse("none", "", &["no batch"]);
    write_batches(&workspace, "uneven", &[("src.0", &row), ("tgt.0", &[target[0], target[0]])]);
    refuse("uneven", "", &["tgt.0", "2 sentences, but 1 in src.0"]);
    write_batches(&workspace, "empty", &[("src.0", &[]), ("tgt.0", &[])]);
    refuse("empty", "", &["src.0", "no sentences"]);
    write_batches(&workspace, "narrow", &[("src.0", &[&[]]), ("tgt.0", &[&[]])]);
    refuse("narrow", "", &["src.0", "no sentences"]);
    write_batches(&workspace, "short", &[("src.0", &row), ("tgt.0", &[&[2, 0, 0]])]);
    refuse("short", "", &["a sentence is empty"]);
    write_batches(&workspace, "negative", &[("src.0", &[&[-1, 3]]), ("tgt.0", &target)]);
    refuse("negative", "", &["src.0", "id -1"]);
}
