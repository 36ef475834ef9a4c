//! Tests of training: vectors must learn from the text, depend only on the settings and the text,
//! and be the same after an interruption.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use taper_embeddings::training::{
    Architecture, Event, Limits, Outcome, TrainingSettings, resume, start,
};
use taper_embeddings::{Format, WordVectors};

/// Words of two subjects. Words of different subjects never occur in the same line. Other words
/// occur with both subjects.
const SUBJECTS: [[&str; 6]; 2] = [
    ["boat", "wave", "sail", "harbour", "anchor", "tide"],
    ["oven", "bread", "flour", "dough", "crust", "yeast"],
];

fn text(path: &Path, lines: u64) {
    let draws = taper_data::Draws::new(5, 0, 9);
    let line = |line: u64| -> String {
        let draws = draws.within(line, 0);
        let subject = SUBJECTS[(line % 2) as usize];
        let word = |place: u64| {
            let bits = draws.bits(place) >> 32;
            if bits.is_multiple_of(4) {
                ["the", "a", "of"][(bits >> 8) as usize % 3]
            } else {
                subject[(bits >> 8) as usize % 6]
            }
        };
        (0..12).map(word).collect::<Vec<_>>().join(" ") + "\n"
    };
    std::fs::write(path, (0..lines).map(line).collect::<String>()).expect("write");
}

fn settings(architecture: Architecture) -> TrainingSettings {
    TrainingSettings {
        architecture,
        dimensions: 20,
        epochs: 3,
        learning_rate: 0.05,
        subsampling: 1e-2,
        ..TrainingSettings::default()
    }
}

fn train(text: &Path, folder: &Path, settings: &TrainingSettings) -> Vec<u8> {
    let (limits, stop) = (Limits::default(), AtomicBool::new(false));
    let files = [text.to_owned()];
    match start(&files, folder, settings, &limits, &mut |_| {}, &stop).expect("training") {
        Outcome::Complete(path) => std::fs::read(path).expect("vectors"),
        Outcome::Interrupted => panic!("nothing interrupts it"),
    }
}

fn with_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(work)
}

const BOTH: [Architecture; 2] = [Architecture::SkipGram, Architecture::Cbow];

#[test]
fn words_of_a_subject_come_together() {
    let folder = tempfile::tempdir().expect("folder");
    let corpus = folder.path().join("text");
    text(&corpus, 6000);
    for architecture in BOTH {
        let output = folder.path().join(format!("{architecture:?}"));
        let mut losses = Vec::new();
        let settings = settings(architecture);
        let mut observe = |event: &Event| {
            if let Event::Progress { loss, .. } = event {
                losses.push(*loss);
            }
        };
        let (limits, stop) = (Limits::default(), AtomicBool::new(false));
        start(std::slice::from_ref(&corpus), &output, &settings, &limits, &mut observe, &stop)
            .expect("training");
        // At first, all output vectors are zero. So a positive pair and its five negative samples
        // have a loss of six times ln 2 in total, and training must reduce this.
        assert!(losses[0] < 6.0 * 2.0_f64.ln(), "{losses:?}");
        assert!(losses.last().expect("chunks") < &losses[0], "{losses:?}");
        let vectors = WordVectors::read(&output.join("vectors.bin")).expect("vectors");
        for subject in SUBJECTS {
            let near = vectors.nearest(&subject[..1], 5).expect("known");
            for (word, _) in near {
                assert!(subject.contains(&word), "{architecture:?}: {word} is near {}", subject[0]);
            }
        }
    }
}

#[test]
fn no_result_depends_on_the_number_of_threads_but_on_the_seed() {
    let folder = tempfile::tempdir().expect("folder");
    let corpus = folder.path().join("text");
    text(&corpus, 3000);
    for architecture in BOTH {
        let settings = settings(architecture);
        let output = |name: &str| folder.path().join(format!("{architecture:?}-{name}"));
        let one = with_threads(1, || train(&corpus, &output("1"), &settings));
        for threads in [2, 5] {
            let more =
                with_threads(threads, || train(&corpus, &output(&threads.to_string()), &settings));
            assert!(one == more, "{architecture:?} with {threads} threads");
        }
        let other = TrainingSettings { seed: 2, ..settings };
        assert!(one != train(&corpus, &output("other"), &other));
    }
}

#[test]
fn an_interruption_changes_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let corpus = folder.path().join("text");
    text(&corpus, 6000);
    let files = [corpus.clone()];
    for architecture in BOTH {
        let settings = settings(architecture);
        let whole = train(&corpus, &folder.path().join(format!("{architecture:?}")), &settings);
        let output = folder.path().join(format!("{architecture:?}-again"));
        let limits = Limits::default();
        // Training stops after every second chunk.
        let again = |resumes: bool| {
            let (stop, mut chunks) = (AtomicBool::new(false), 0);
            let mut observe = |event: &Event| {
                chunks += u32::from(matches!(event, Event::Progress { .. }));
                stop.store(chunks == 2, Ordering::SeqCst);
            };
            match resumes {
                false => start(&files, &output, &settings, &limits, &mut observe, &stop),
                true => resume(&output, &limits, &mut observe, &stop),
            }
        };
        let (mut outcome, mut times) = (again(false).expect("training"), 0);
        while outcome == Outcome::Interrupted {
            outcome = again(true).expect("training");
            times += 1;
        }
        assert!(times > 4, "{architecture:?} was interrupted {times} times");
        let Outcome::Complete(path) = outcome else { panic!("it is complete") };
        assert!(whole == std::fs::read(path).expect("vectors"), "{architecture:?}");
        assert!(!output.join("checkpoint.safetensors").exists());
    }
}

fn error_of(
    files: &[PathBuf],
    folder: &Path,
    settings: &TrainingSettings,
    limits: &Limits,
) -> String {
    let stop = AtomicBool::new(false);
    start(files, folder, settings, limits, &mut |_| {}, &stop).expect_err("refused").to_string()
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("folder");
    let (corpus, output) = (folder.path().join("text"), folder.path().join("words"));
    text(&corpus, 300);
    let (files, limits) = ([corpus], Limits::default());
    let settings = settings(Architecture::SkipGram);
    let refused =
        |settings: TrainingSettings, limits: &Limits| error_of(&files, &output, &settings, limits);
    let zero = TrainingSettings { window: 0, ..settings.clone() };
    assert_eq!(refused(zero, &limits), "--window = 0: a whole number from 1 to 1000 is expected");
    let all = TrainingSettings { subsampling: 1.0, ..settings.clone() };
    let expected = "--subsampling = 1: a number from 0, and below 1, is expected";
    assert_eq!(refused(all, &limits), expected);
    let rare = TrainingSettings { min_count: 1_000_000, ..settings.clone() };
    assert!(refused(rare, &limits).contains("0 of 3600 words come at least 1000000 times"));
    let wide = TrainingSettings { dimensions: 60_000, ..settings.clone() };
    let small = Limits { memory: Some(36 << 20), ..Limits::default() };
    let message = refused(wide.clone(), &small);
    assert!(message.starts_with("15 words of 60000 dimensions need about"), "{message}");
    assert!(message.ends_with("only the most frequent words with --max-words 12"), "{message}");
    // CBOW keeps the means of the context vectors of a chunk, which take far more memory here.
    let means = TrainingSettings { architecture: Architecture::Cbow, ..wide };
    let large = Limits { memory: Some(8 << 30), ..Limits::default() };
    let message = refused(means, &large);
    assert!(message.starts_with("15 words of 60000 dimensions need about"), "{message}");
    assert!(!output.exists());
    let missing = error_of(&[folder.path().join("absent")], &output, &settings, &limits);
    assert!(missing.contains("absent: no such file"), "{missing}");
    train(&files[0], &output, &settings);
    assert!(refused(settings.clone(), &limits).contains("it has a training already"));
    // Files of a training whose record was removed are not taken for those of a new training.
    std::fs::remove_file(output.join("embeddings.json")).expect("remove");
    assert!(refused(settings.clone(), &limits).contains("it has vectors.bin of another training"));
    let old = output.join("checkpoint.safetensors");
    std::fs::rename(output.join("vectors.bin"), old).expect("rename");
    assert!(refused(settings, &limits).contains("checkpoint.safetensors of another training"));
}

#[test]
fn a_folder_that_was_changed_is_not_resumed() {
    let folder = tempfile::tempdir().expect("folder");
    let (corpus, output) = (folder.path().join("text"), folder.path().join("words"));
    text(&corpus, 6000);
    let limits = Limits { format: Format::Text, ..Limits::default() };
    let settings = settings(Architecture::SkipGram);
    let stop = AtomicBool::new(true);
    let files = [corpus.clone()];
    let outcome = start(&files, &output, &settings, &limits, &mut |_| {}, &stop);
    assert_eq!(outcome.expect("training"), Outcome::Interrupted);
    let message = || resume(&output, &limits, &mut |_| {}, &stop).expect_err("refused").to_string();
    let damaged = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = output.join(name);
        let kept = std::fs::read(&path).expect("read");
        let mut bytes = kept.clone();
        change(&mut bytes);
        std::fs::write(&path, &bytes).expect("write");
        let message = message();
        std::fs::write(&path, kept).expect("write");
        assert!(message.contains(name), "{message}");
        message
    };
    let last = |bytes: &mut Vec<u8>| *bytes.last_mut().expect("bytes") ^= 1;
    let short = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 9);
    let checkpoint = "checkpoint.safetensors";
    assert!(damaged(checkpoint, &last).contains("its numbers are not those that were saved"));
    assert!(damaged(checkpoint, &short).contains("ends early"));
    assert!(damaged(checkpoint, &|bytes| bytes[3] = 9).contains("head is too long"));
    assert!(damaged("vocabulary.txt", &last).contains("not the file that training wrote"));
    damaged("embeddings.json", &short);
    let without_files = |bytes: &mut Vec<u8>| {
        let mut record: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
        record["files"] = serde_json::json!([]);
        *bytes = serde_json::to_vec(&record).expect("JSON");
    };
    assert!(damaged("embeddings.json", &without_files).contains("names no file of text"));
    text(&corpus, 6001);
    assert!(message().contains("the text has changed since training began"));
    text(&corpus, 6000);
    let outcome = resume(&output, &limits, &mut |_| {}, &AtomicBool::new(false));
    let Outcome::Complete(path) = outcome.expect("training") else { panic!("it is complete") };
    assert!(path.ends_with("vectors.txt"));
}
