//! Tests of `taper bench attention`. The command measures each kind of attention at each length,
//! and fits the exponents with which time and memory grow with the length.

use crate::common::{Workspace, mentions};
use serde_json::Value;

#[test]
fn every_kind_is_measured_at_every_length() {
    let workspace = Workspace::new();
    let small = "bench attention --lengths 64,512 --heads 2 --head-width 8";
    let settings = "--window 16 --seconds 0 --causal --json --svg time.svg";
    let found = workspace.json(format!("{small} {settings}"));
    let drawn = workspace.read("time.svg");
    for kind in [
        "full",
        "sparse",
        "linear",
        "performer",
        "reformer",
        "hierarchical",
        "transformer-xl",
        "mamba",
        "s4d",
    ] {
        assert!(drawn.contains(&format!("{kind}, n to the")), "{kind} is not drawn");
        for length in [64, 512] {
            let measured = found["measurements"].as_array().expect("an array");
            let is_wanted = |one: &&Value| one["kind"] == kind && one["length"] == length;
            let one = measured.iter().find(is_wanted).expect("a measurement");
            let (forward, both) = (one["forward"].as_f64(), one["both"].as_f64());
            assert!(forward > Some(0.0) && both >= forward, "{one}");
        }
        let growth = found["exponents"].as_array().expect("an array");
        let own = growth.iter().find(|one| one["kind"] == kind).expect("exponents");
        assert!(own["both"].as_f64().is_some(), "{own}");
    }
    let said = workspace.succeed(format!("{small} --kinds linear --seconds 0"));
    mentions(&said, &["linear: grows with the length"]);
    workspace.succeed(
        "bench attention --kinds linear --lengths 64 --heads 2 --head-width 8 --seconds 0 \
         --svg one.svg",
    );
    assert!(workspace.read("one.svg").contains("linear"), "one kind at one length is drawn too");
    workspace.fail("bench attention --kinds psychic", &["psychic", "full, sparse"]);
}
