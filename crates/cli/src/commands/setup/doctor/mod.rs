//! `taper doctor`: describes this machine and its problems, with advice, and checks that it
//! computes correctly.

mod computing;
mod finding;
mod places;
mod self_check;

use anyhow::Result;
use serde_json::json;

use crate::arguments::{Doctor, about_build};
use crate::error::Unfit;
use crate::text::print_line;
use finding::{Finding, Verdict};

/// Examinations, in the order of their output.
const EXAMINATIONS: [fn() -> Vec<Finding>; 12] = [
    program,
    computing::processor,
    computing::kernels,
    computing::cores,
    computing::memory,
    computing::limits,
    computing::devices,
    places::libraries,
    places::folders,
    places::terminal,
    self_check::products,
    self_check::models,
];

/// Runs the command. Without `--json`, each finding is printed as soon as it is made.
///
/// # Errors
/// When a finding has the verdict `Fail`.
pub(crate) fn run(arguments: &Doctor) -> Result<()> {
    let mut findings = Vec::new();
    for examine in EXAMINATIONS {
        for finding in examine() {
            if !arguments.json {
                print_line(&finding.to_string())?;
            }
            findings.push(finding);
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    if arguments.json {
        let report = json!({ "passed": failed == 0, "findings": findings });
        print_line(&serde_json::to_string_pretty(&report)?)?;
    }
    if failed > 0 {
        return Err(Unfit(format!("{failed} of {} findings are failures", findings.len())).into());
    }
    match (arguments.json, warned) {
        (true, _) => Ok(()),
        (false, 0) => print_line("all is well"),
        (false, _) => print_line(&format!("fit to train; warnings: {warned}")),
    }
}

/// Reports version, commit, features and kernel; warns if the build is not optimised.
fn program() -> Vec<Finding> {
    let about = about_build();
    vec![if cfg!(debug_assertions) {
        Finding::warn("program", about, "not optimised: build with `cargo build --release`")
    } else {
        Finding::ok("program", about)
    }]
}
