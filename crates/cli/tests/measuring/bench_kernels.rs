//! Tests of `taper bench kernels`: it measures every product of a layer with every kernel of this
//! machine.

use crate::common::Workspace;
use serde_json::Value;

#[test]
fn every_kernel_is_measured_against_its_peak() {
    let workspace = Workspace::new();
    let small = "bench kernels --layers 'tiny attention, out' --rows 64";
    let shown = workspace.succeed(format!("{small} --repeats 1 --threads 1,2 --json"));
    let found: Vec<Value> = serde_json::from_str(&shown).expect("JSON");
    for threads in [1, 2] {
        for pass in ["forward", "gradient of the input", "gradient of the weight"] {
            for dtype in ["f32", "bf16"] {
                let is_wanted = |one: &&Value| {
                    one["kernel"] == "gemm"
                        && one["pass"] == pass
                        && one["dtype"] == dtype
                        && one["threads"] == threads
                };
                let one = found.iter().find(is_wanted).expect("a measurement");
                assert!(one["rate"].as_f64().expect("a rate") > 0.0, "{one}");
            }
        }
    }
    let has_peak = |one: &Value| one["peak"].as_f64().is_some_and(|peak| peak > 0.0);
    assert!(found.iter().filter(|one| one["kernel"] != "gemm").all(has_peak), "{shown}");
    workspace.fail("bench kernels --layers giant", &["--layers", "giant", "tiny attention, in"]);
    workspace.fail("bench kernels --threads 0", &["--threads", "at least 1"]);
    workspace.fail("bench kernels --device gpu", &["unknown device `gpu`", "cuda"]);
}
