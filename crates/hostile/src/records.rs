//! Checks that reports and figures can be made from damaged records of runs, or that the records
//! are refused with a clear error. A run is the folder of one training; its records are the logs
//! and scores that reports and figures show.

use std::fs;
use std::path::{Path, PathBuf};

use taper_plots::Language;
use taper_report::{Point, Record, RunData, Study, curves, layer_figures, report, spread_figures};

/// A valid log of a run, to be damaged.
pub const LOG: &[u8] = br#"{"event":"log","step":10,"epoch":0,"loss":2.5,"nll":2.25,"accuracy":0.5,"learning_rate":0.001,"gradient_norm":1.5,"layers":{"encoder.layers.0":{"gradient":0.5,"weight":3.0}},"tokens":10,"window_tokens":10,"timing":{"elapsed_seconds":1.0}}
{"event":"validation","step":10,"epoch":0,"scores":{"nll":2.0,"bleu":12.5},"improved":true,"timing":{"elapsed_seconds":1.5}}
{"event":"log","step":20,"epoch":0,"loss":2.0,"nll":1.75,"accuracy":0.6,"learning_rate":0.002,"gradient_norm":1.0,"tokens":20,"window_tokens":10,"timing":{"elapsed_seconds":2.0}}
"#;
/// Valid scores of a test set, to be damaged.
pub const SCORES: &[u8] = br#"[{"split":"test","sentences":2,"bleu":{"score":12.5}}]"#;
/// A valid table of points, to be damaged.
pub const POINTS: &[u8] = b"name,parameters,tokens,loss\na,1e6,1e7,4.5\nb,2e6,2e7,4.0\nc,4e6,4e7,\
3.6\nd,8e6,8e7,3.3\ne,1.6e7,1.6e8,3.1\nf,3.2e7,3.2e8,2.9\n";

/// Makes a run folder with the recipe and the text of one test set, whose records are to be
/// damaged.
///
/// # Panics
/// If files cannot be written.
#[must_use]
pub fn run_folder(folder: &Path) -> PathBuf {
    let root = folder.join("run");
    fs::create_dir_all(root.join("translations")).unwrap();
    let write = |path: PathBuf, text: &str| fs::write(path, text).unwrap();
    for split in ["train", "test"] {
        write(folder.join(format!("{split}.en")), "A <house>.\nA & tree.\n");
        write(folder.join(format!("{split}.de")), "Ein Haus.\nEin Baum.\n");
    }
    let config = format!(
        "[data]\ndir = {:?}\nsource_language = \"en\"\ntarget_language = \"de\"\n\
         train = \"train\"\nvalidation = \"\"\ntest = [\"test\"]\n",
        folder.display().to_string()
    );
    write(root.join("config.toml"), &config);
    write(root.join("translations/test.txt"), "</script><b>\nEin Baum.\n");
    fs::write(root.join("metrics.jsonl"), LOG).unwrap();
    fs::write(root.join("scores.json"), SCORES).unwrap();
    root
}

/// Reads a log as a whole and in two parts. Checks that the result is the same, and that curves can
/// be drawn from it.
///
/// # Panics
/// If the log in two parts gives another result than the whole log.
pub fn log(bytes: &[u8]) {
    let mut whole = Record::default();
    let taken = whole.append(bytes);
    assert!(taken <= bytes.len());
    let mut parts = Record::default();
    let first = parts.append(&bytes[..bytes.len() / 2]);
    parts.append(&bytes[first..]);
    assert_eq!(parts.logged.len(), whole.logged.len());
    assert_eq!(parts.validated.len(), whole.validated.len());
    let curves = curves(&[("run", &whole)], Language::English);
    let layers = [layer_figures, spread_figures].map(|figures| figures(&whole, Language::Chinese));
    for figure in curves.into_iter().chain(layers.into_iter().flatten()) {
        assert!(!figure.name.is_empty());
    }
}

/// Writes `bytes` to the file `file` of a run. Checks that the report of the run contains no script
/// from this file, or that the run is refused with an error that names the file.
///
/// # Panics
/// If the check fails.
pub fn run(root: &Path, file: &str, bytes: &[u8]) {
    fs::write(root.join(file), bytes).unwrap();
    match RunData::read(root).and_then(|data| report(&data, Language::English)) {
        // A page without sentences has one script of its own, and a page with sentences has two.
        Ok(page) => assert!(page.matches("<script").count() <= 2, "a script of the record's"),
        Err(error) => {
            let message = format!("{error:#}");
            assert!(message.contains(file), "{message}");
        }
    }
}

/// Checks that scaling laws are fitted to a table of points, or that the table is refused with an
/// error that names its file.
///
/// # Panics
/// If the check fails.
pub fn points(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    match Point::from_table(path) {
        Ok(points) => {
            assert!(points.iter().all(|point| point.loss > 0.0 && point.loss.is_finite()));
            // The fit may be refused with a message if points are too few or determine nothing.
            if let Ok(study) = Study::fit(points, 0, 2) {
                assert!(!study.lines(&study.usual_flops()).is_empty());
            }
        }
        Err(error) => {
            let (message, name) = (format!("{error:#}"), path.file_name().unwrap());
            assert!(message.contains(&*name.to_string_lossy()), "{message}");
        }
    }
}
