//! Tests that checkpoints which are damaged or belong to another model give an error with the file
//! and the reason.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use candle_core::{DType, Device};
use common::{Generated, HeldOut, Task, VOCABULARY, model, short_run, tiny};
use sha2::Digest;
use taper_model::{Builder, Model, ModelConfig, Transformer};
use taper_trainer::{
    CheckpointError, Checkpoints, Event, Identity, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE, State,
    TrainError, Trainer, average, load_model, read_state, round_to_int8,
};

fn identity() -> Identity {
    Identity { tokenizer_hash: "7eaf".to_owned(), ..Identity::default() }
}

/// Trains a run of ten updates, with checkpoints after updates 5, 6 (because of a validation) and
/// 10. Returns the directory of the last checkpoint.
fn trained(directory: &Path) -> PathBuf {
    let mut trainer =
        Trainer::new(model(&tiny(0.0)), short_run(10), identity(), directory).unwrap();
    let data = Generated::new(Task::Copy);
    let mut observer = |_: &Event| Ok(());
    trainer
        .train(&mut data.clone(), &mut HeldOut(data), &mut observer, &AtomicBool::new(false))
        .unwrap();
    Checkpoints::new(directory).resolve("last").unwrap()
}

fn load(checkpoint: &Path) -> CheckpointError {
    load_model(checkpoint, &model(&tiny(0.0)), "7eaf").unwrap_err()
}

fn resume(directory: &Path) -> TrainError {
    Trainer::resume(model(&tiny(0.0)), short_run(20), identity(), directory, "last").err().unwrap()
}

#[test]
fn a_damaged_file_is_named_with_what_is_wrong_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = trained(directory.path());
    load_model(&checkpoint, &model(&tiny(0.0)), "7eaf").unwrap();
    for file in [MODEL_FILE, OPTIMIZER_FILE] {
        let path = checkpoint.join(file);
        let bytes = fs::read(&path).unwrap();

        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let error = resume(directory.path());
        let TrainError::Checkpoint(CheckpointError::Truncated { path: named, expected, got }) =
            error
        else {
            panic!("{error}")
        };
        assert_eq!(
            (named, expected, got),
            (path.clone(), bytes.len() as u64, bytes.len() as u64 - 1)
        );

        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let error = resume(directory.path());
        assert!(
            matches!(&error, TrainError::Checkpoint(CheckpointError::Corrupt { path: named, .. }) if *named == path),
            "{error}"
        );

        fs::remove_file(&path).unwrap();
        let error = resume(directory.path());
        assert!(
            matches!(&error, TrainError::Checkpoint(CheckpointError::Missing { path: named }) if *named == path),
            "{error}"
        );
        fs::write(&path, &bytes).unwrap();
    }
    fs::remove_file(checkpoint.join(OPTIMIZER_FILE)).unwrap();
    load_model(&checkpoint, &model(&tiny(0.0)), "7eaf").unwrap();
}

#[test]
fn a_state_that_was_changed_or_is_of_a_later_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = trained(directory.path());
    let path = checkpoint.join(STATE_FILE);
    let text = fs::read_to_string(&path).unwrap();

    fs::write(&path, text.replace("\"step\": 10", "\"step\": 11")).unwrap();
    assert!(
        matches!(load(&checkpoint), CheckpointError::Corrupt { path: named, .. } if named == path)
    );
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(
        matches!(load(&checkpoint), CheckpointError::Corrupt { path: named, .. } if named == path)
    );
    fs::write(&path, text.replace("\"format_version\": 2", "\"format_version\": 9")).unwrap();
    assert!(matches!(
        load(&checkpoint),
        CheckpointError::NewerFormat { found: 9, supported: 4, .. }
    ));
    // A field that this version does not know is damage, unless the checksum includes it.
    let unknown = text.replacen("\"step\": 10,", "\"step\": 10,\n  \"momentum\": 3,", 1);
    fs::write(&path, &unknown).unwrap();
    assert!(matches!(load(&checkpoint), CheckpointError::Corrupt { .. }));
    let checksum = |text: &str| {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["checksum"].as_str().unwrap().to_owned()
    };
    let bare = unknown.replace(&checksum(&unknown), "");
    let hash: String =
        sha2::Sha256::digest(&bare).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(&path, unknown.replace(&checksum(&unknown), &hash)).unwrap();
    let error = load(&checkpoint);
    assert!(matches!(&error, CheckpointError::NewerFields { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("unknown field `momentum`") && error.ends_with("upgrade"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(matches!(load(&checkpoint), CheckpointError::Missing { path: named } if named == path));
}

#[test]
fn another_models_checkpoint_is_refused_by_tensor_and_leaves_the_model_alone() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = trained(directory.path());
    let wider = model(&ModelConfig { d_ff: 96, ..tiny(0.0) });
    let before: Vec<f32> = wider.parameters().flat().unwrap().to_vec1().unwrap();
    let error = load_model(&checkpoint, &wider, "7eaf").unwrap_err();
    let CheckpointError::Shape { name, expected, got, .. } = &error else { panic!("{error}") };
    assert!(expected.contains(&96) && got.contains(&64), "{name} {expected:?} {got:?}");
    assert!(error.to_string().contains(name.as_str()), "{error}");
    assert_eq!(wider.parameters().flat().unwrap().to_vec1::<f32>().unwrap(), before);

    let deeper = model(&ModelConfig { encoder_layers: 2, ..tiny(0.0) });
    assert!(matches!(
        load_model(&checkpoint, &deeper, "7eaf"),
        Err(CheckpointError::MissingTensor { .. })
    ));
    let words = Transformer::new(
        &tiny(0.0),
        VOCABULARY + 1,
        VOCABULARY + 1,
        Builder::seeded(3, &Device::Cpu, DType::F32),
    )
    .unwrap();
    assert!(matches!(load_model(&checkpoint, &words, "7eaf"), Err(CheckpointError::Shape { .. })));
    let bare = model(&ModelConfig { biases: false, ..tiny(0.0) });
    assert!(matches!(
        load_model(&checkpoint, &bare, "7eaf"),
        Err(CheckpointError::UnexpectedTensor { .. })
    ));
}

#[test]
fn a_tokenizer_that_is_not_the_checkpoints_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = trained(directory.path());
    let error = load_model(&checkpoint, &model(&tiny(0.0)), "beef").unwrap_err();
    assert!(
        matches!(&error, CheckpointError::Tokenizer { expected, got, .. } if expected == "7eaf" && got == "beef"),
        "{error}"
    );
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are() {
    let directory = tempfile::tempdir().unwrap();
    trained(directory.path());
    let checkpoints = Checkpoints::new(directory.path());
    for which in ["step-00000007", "averaged", "../x", ""] {
        let error = checkpoints.resolve(which).unwrap_err().to_string();
        assert!(error.contains("step-00000005, step-00000006, step-00000010"), "{error}");
    }
    let error = Checkpoints::new(&directory.path().join("nowhere"))
        .resolve("last")
        .unwrap_err()
        .to_string();
    assert!(error.contains("none yet"), "{error}");
    let names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| !name.starts_with('.')),
        "temporary files were left: {names:?}"
    );
}

#[test]
fn the_average_is_the_mean_of_the_weights() {
    let directory = tempfile::tempdir().unwrap();
    trained(directory.path());
    let saved = Checkpoints::new(directory.path()).list().unwrap();
    let paths: Vec<PathBuf> = saved.iter().map(|saved| saved.path.clone()).collect();
    let models: Vec<Vec<f32>> = paths
        .iter()
        .map(|path| {
            let model = model(&tiny(0.0));
            load_model(path, &model, "7eaf").unwrap();
            model.parameters().flat().unwrap().to_vec1().unwrap()
        })
        .collect();
    let target = directory.path().join("mean");
    average(&paths).unwrap().save(&target).unwrap();
    let mean = model(&tiny(0.0));
    load_model(&target, &mean, "7eaf").unwrap();
    let mean: Vec<f32> = mean.parameters().flat().unwrap().to_vec1().unwrap();
    for (index, &value) in mean.iter().enumerate() {
        let sum: f64 = models.iter().map(|model| f64::from(model[index])).sum();
        assert_eq!(value, (sum / models.len() as f64) as f32);
    }
    assert_ne!(models[0], models[1], "the mean of equal models would prove nothing");
    assert_eq!(read_state(&target).unwrap().step, 10);
    assert!(matches!(average(&[]), Err(CheckpointError::NothingToAverage)));
}

#[test]
fn weights_that_are_not_finite_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let model = model(&tiny(0.0));
    let store = model.parameters();
    let last = store.parameters().last().unwrap().name().to_owned();
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let shapes =
            store.parameters().iter().map(|one| (one.name().to_owned(), one.shape().to_vec()));
        let values = |name: &str| {
            let mut values = vec![0.5; store.get(name).unwrap().len()];
            if name == last {
                *values.last_mut().unwrap() = value;
            }
            Ok(values.into())
        };
        let checkpoints = Checkpoints::new(directory.path());
        let state = || Ok(State::new(1, identity()));
        let checkpoint = checkpoints.save_weights(shapes, values, state).unwrap();
        for error in [
            load_model(&checkpoint, &model, "7eaf").unwrap_err(),
            average(std::slice::from_ref(&checkpoint)).unwrap_err(),
            round_to_int8(&checkpoint).unwrap_err(),
        ] {
            let CheckpointError::NotFinite { path, name } = &error else { panic!("{error}") };
            assert_eq!((path, name), (&checkpoint.join(MODEL_FILE), &last));
        }
    }
}

/// Weights in int8 have a smaller file, are read as the values to which they were rounded, and
/// cannot be rounded again or averaged.
#[test]
fn weights_in_int8_are_those_that_were_rounded() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = trained(directory.path());
    let mut expected = model(&tiny(0.0));
    load_model(&checkpoint, &expected, "7eaf").unwrap();
    expected.round_to_int8().unwrap();
    let int8 = directory.path().join("int8");
    round_to_int8(&checkpoint).unwrap().save(&int8).unwrap();
    let found = model(&tiny(0.0));
    let state = load_model(&int8, &found, "7eaf").unwrap();
    assert_eq!(state.step, 10);
    assert_eq!(state.int8_of.as_ref().unwrap().path, checkpoint.canonicalize().unwrap());
    for (found, expected) in
        found.parameters().parameters().iter().zip(expected.parameters().parameters())
    {
        let values = |parameter: &taper_ops::Parameter| -> Vec<f32> {
            parameter.var().as_tensor().flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(values(found), values(expected), "{}", found.name());
    }
    let size = |folder: &Path| fs::metadata(folder.join(MODEL_FILE)).unwrap().len();
    assert!(size(&int8) * 2 < size(&checkpoint), "{} {}", size(&int8), size(&checkpoint));

    let again = round_to_int8(&int8).unwrap_err().to_string();
    assert!(again.contains("is in int8: use the checkpoint that it was made from"), "{again}");
    assert!(matches!(
        average(&[checkpoint.clone(), int8.clone()]),
        Err(CheckpointError::Int8 { .. })
    ));
    let bytes = fs::read(int8.join(MODEL_FILE)).unwrap();
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(int8.join(MODEL_FILE), &flipped).unwrap();
    assert!(matches!(load(&int8), CheckpointError::Corrupt { .. }));
    fs::write(int8.join(MODEL_FILE), &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(load(&int8), CheckpointError::Truncated { .. }));
}
