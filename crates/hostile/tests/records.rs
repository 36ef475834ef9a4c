//! Damaged records of runs (logs, scores and tables of points) are read or refused, and never end
//! the program.
//!
//! A few hundred cases run with the other tests; many more with
//! `cargo test --release -p taper-hostile --test records -- --ignored`.

use taper_hostile::assault;
use taper_hostile::records::{LOG, POINTS, SCORES, log, points, run, run_folder};

fn records(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let root = run_folder(folder.path());
    assault(cases * 4, &[LOG], log);
    assault(cases, &[LOG], |bytes| run(&root, "metrics.jsonl", bytes));
    std::fs::write(root.join("metrics.jsonl"), LOG).unwrap();
    assault(cases, &[SCORES], |bytes| run(&root, "scores.json", bytes));
    let table = folder.path().join("points.csv");
    assault(cases, &[POINTS], |bytes| points(&table, bytes));
}

#[test]
fn damaged_records_are_shown_or_refused() {
    records(200);
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn very_many_damaged_records_are_shown_or_refused() {
    records(20_000);
}

#[test]
fn what_is_damaged_was_valid() {
    let mut record = taper_report::Record::default();
    record.append(LOG);
    assert_eq!((record.logged.len(), record.validated.len(), record.unreadable), (2, 1, 0));
    let folder = tempfile::tempdir().unwrap();
    let data = taper_report::RunData::read(&run_folder(folder.path())).unwrap();
    assert!(data.missing.is_empty(), "{:?}", data.missing);
    assert_eq!(data.sets.len(), 1);
}
