//! Adapters of the library PEFT are imported, computed and exported as in PEFT. The golden files
//! are made by `scripts/golden/decoders/adapters.py`, with adapters of three kinds for a small
//! Llama: plain LoRA, LoRA in which some layers have other ranks and scales, and DoRA.

use std::fs;
use std::path::Path;

use candle_core::Device;
use serde_json::{Value, json};
use taper_model::{Batch, LanguageModel, Model, Pass, Sequences};
use taper_ops::Gradients;
use taper_run::folders::{export, export_adapters, import, import_adapters};
use taper_run::tasks::build_model;
use taper_run::{LoadSettings, LoadedRun, RunEvent, RunFolder};

use super::{changed, golden, json_of, relative, rows, set, tensors};

const VARIANTS: [&str; 3] = ["peft-lora", "peft-rslora", "peft-dora"];
const SETTINGS: &str = "adapter_config.json";
const ADAPTERS: &str = "adapter_model.safetensors";

/// Imports the golden Llama as the run `base` in `folder`, and the adapters in `source` as the run
/// `run`.
fn import_onto_base(source: &Path, folder: &Path) -> anyhow::Result<()> {
    let observer = &mut |_: &RunEvent<'_>| Ok(());
    let [base, run] = ["base", "run"].map(|name| folder.join(name));
    if !base.exists() {
        import(&golden("llama"), &RunFolder::new(&base), observer).unwrap();
    }
    import_adapters(source, &base, &RunFolder::new(&run), observer).map(|_| ())
}

/// Model of the run `run` in `folder`, whose adapters are not added to the weights.
fn adapted(folder: &Path) -> LanguageModel {
    let run = RunFolder::open(&folder.join("run")).unwrap();
    let config = run.load_config(&[]).unwrap();
    let tokenizers = config.task.load_tokenizers(run.root()).unwrap();
    let model: LanguageModel = build_model(&config, &tokenizers, &Device::Cpu, None).unwrap();
    let checkpoint = run.checkpoint(None).unwrap();
    taper_trainer::load_model(&checkpoint, &model, &tokenizers.hash()).unwrap();
    model
}

#[test]
fn peft_agrees_on_logits_losses_and_gradients() {
    for variant in VARIANTS {
        let folder = tempfile::tempdir().unwrap();
        import_onto_base(&golden(variant), folder.path()).unwrap();
        let [inputs, expected] =
            ["llama", variant].map(|name| tensors(golden(name).join("expected.safetensors")));
        let rows = rows(&inputs["ids"], &inputs["lengths"]);
        let texts: Vec<&[u32]> = rows.iter().map(|row| &row[..row.len() - 1]).collect();
        let answers: Vec<u32> = rows.iter().flat_map(|row| row[1..].iter().copied()).collect();
        let text = Sequences::pack(&texts);
        let pass = Pass::evaluate();
        // In `merged`, the adapters are added to the weights; in `model`, they are separate.
        let merged: LoadedRun<LanguageModel> =
            LoadedRun::open(&folder.path().join("run"), &LoadSettings::default()).unwrap();
        let model = adapted(folder.path());
        for model in [&model, &merged.model] {
            let logits = model.logits(&model.hidden(&text, &pass).unwrap(), &pass).unwrap();
            let error = relative(&logits, &expected["logits"]);
            assert!(error < 1e-5, "{variant}: logits {error}");
        }
        let batch = Batch::new(vec![text], answers);
        let (found, gradients) = super::trained(&model, &batch);
        let loss = f64::from(expected["loss"].to_scalar::<f32>().unwrap());
        assert!((found / loss - 1.0).abs() < 1e-5, "{variant}: loss {found} for {loss}");
        // Operations that are composed of Candle's operations give the same gradients as the fused
        // operations of this project.
        let pass = Pass::train(1, 1, 0).composed();
        let objective = taper_model::Objective::smoothed(0.0);
        let output = model.loss(&batch, &objective, 1.0 / batch.tokens() as f64, &pass).unwrap();
        let mut composed = Gradients::new(model.parameters()).unwrap();
        pass.backward(&output, model.parameters(), &mut composed).unwrap();
        let error = relative(composed.flat().unwrap(), &gradients);
        assert!(error < 1e-5, "{variant}: composed {error}");

        // Each adapter and its gradient is compared with PEFT's, under the name that the adapter
        // has in PEFT.
        let run = RunFolder::open(&folder.path().join("run")).unwrap();
        let checkpoint = run.checkpoint(None).unwrap();
        let out = folder.path().join("out");
        export_adapters(run.root(), &LoadSettings::default(), &out).unwrap();
        let stored = tensors(golden(variant).join(ADAPTERS));
        let ours = tensors(out.join(ADAPTERS));
        let named = named_gradients(&model, &gradients, folder.path(), &checkpoint);
        for (name, theirs) in &stored {
            // All layers of a run have one rank and one scale. So an import fills up the factors of
            // a layer that has a lower rank, and multiplies the factor B of a layer that has
            // another scale.
            let is_like_theirs = ours[name].dims() == theirs.dims();
            assert!(is_like_theirs || name.contains("layers.0.self_attn.v_proj"), "{name}");
            let has_scale = variant == "peft-rslora"
                && (name.contains("layers.1.mlp.down_proj")
                    || name.contains("layers.0.self_attn.v"));
            if !has_scale {
                assert!(relative(&ours[name], theirs) == 0.0, "{variant}: {name}");
                let error = relative(&named[name], &expected[&format!("grad.{name}")]);
                assert!(error < 1e-5, "{variant}: gradient of {name}: {error}");
            }
        }
        let [ours, theirs] = [&out, &golden(variant)].map(|folder| json_of(folder.join(SETTINGS)));
        for key in ["peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "task_type"] {
            // PEFT writes whole numbers without a decimal point.
            let value =
                |keys: &Value| keys[key].as_f64().map_or_else(|| keys[key].clone(), Value::from);
            assert!(!theirs[key].is_null(), "{key}");
            assert_eq!(value(&ours), value(&theirs), "{key}");
        }
        if variant != "peft-rslora" {
            assert_eq!(ours["target_modules"], theirs["target_modules"]);
        }
        // An export that is imported again changes no value.
        let again = tempfile::tempdir().unwrap();
        import_onto_base(&out, again.path()).unwrap();
        let values =
            |folder: &Path| adapted(folder).parameters().flat().unwrap().to_vec1::<f32>().unwrap();
        assert!(values(again.path()) == values(folder.path()), "{variant}");
    }
}

/// Returns the gradients of the adapters, under the names that the adapters have in PEFT. To get
/// these names, a run whose adapters have the values of the gradients is made and exported.
fn named_gradients(
    model: &LanguageModel,
    gradients: &candle_core::Tensor,
    folder: &Path,
    checkpoint: &Path,
) -> std::collections::HashMap<String, candle_core::Tensor> {
    model.parameters().set_flat(gradients).unwrap();
    let state = taper_trainer::read_state(checkpoint).unwrap();
    let root = folder.join("gradients");
    let run = folder.join("run");
    fs::create_dir(&root).unwrap();
    fs::create_dir(root.join("checkpoints")).unwrap();
    for file in fs::read_dir(&run).unwrap() {
        let file = file.unwrap();
        if file.path().is_file() {
            fs::copy(file.path(), root.join(file.file_name())).unwrap();
        }
    }
    let base = |root: &Path| root.join("checkpoints").join(taper_trainer::BASE_FILE);
    fs::copy(base(&run), base(&root)).unwrap();
    let parameters = model.parameters().parameters();
    let shapes = parameters.iter().map(|one| (one.name().to_owned(), one.shape().to_vec()));
    let values = |name: &str| {
        let values = model.parameters().get(name).unwrap().var().flatten_all().unwrap();
        Ok(values.to_vec1::<f32>().unwrap().into())
    };
    taper_trainer::Checkpoints::new(&root.join("checkpoints"))
        .save_weights(shapes, values, || Ok(state))
        .unwrap();
    let out = folder.join("named");
    export_adapters(&root, &LoadSettings::default(), &out).unwrap();
    tensors(out.join(ADAPTERS))
}

/// An export of the whole model contains weights to which the adapters have been added.
#[test]
fn an_export_of_the_model_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    import_onto_base(&golden("peft-lora"), folder.path()).unwrap();
    let run: LoadedRun<LanguageModel> =
        LoadedRun::open(&folder.path().join("run"), &LoadSettings::default()).unwrap();
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    let again = folder.path().join("again");
    import(&out, &RunFolder::new(&again), &mut |_: &RunEvent<'_>| Ok(())).unwrap();
    let again: LoadedRun<LanguageModel> =
        LoadedRun::open(&again, &LoadSettings::default()).unwrap();
    let values = |run: &LoadedRun<LanguageModel>| {
        run.model.parameters().flat().unwrap().to_vec1::<f32>().unwrap()
    };
    assert!(values(&again) == values(&run));
}

/// Function that changes the files of a folder.
type Change<'a> = &'a dyn Fn(&Path);

#[test]
fn other_adapters_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |number: usize, change: Change<'_>| -> String {
        let place = folder.path().join(number.to_string());
        let source = changed(&golden("peft-lora"), &place, change);
        let error = import_onto_base(&source, folder.path()).expect_err("refused");
        assert!(!folder.path().join("run").exists(), "{error:#}");
        format!("{error:#}")
    };
    let key =
        |key: &'static str, value: Value| move |path: &Path| set(path.join(SETTINGS), key, &value);
    let rewrite = |path: &Path, change: &dyn Fn(&mut std::collections::HashMap<_, _>)| {
        let mut all = tensors(path.join(ADAPTERS));
        change(&mut all);
        candle_core::safetensors::save(&all, path.join(ADAPTERS)).unwrap();
    };
    let name = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight";
    let cases: [(Change<'_>, &str); 7] = [
        (&key("peft_type", json!("LOHA")), "peft_type is \"LOHA\""),
        (&key("bias", json!("all")), "bias is \"all\""),
        (&key("r", json!(0)), "r is 0"),
        (&key("alpha_pattern", json!({"layers.[01].x": 2})), "a regular expression"),
        (&|path| rewrite(path, &|all| drop(all.remove(name))), "one is missing"),
        (
            &|path| {
                rewrite(path, &|all| {
                    let whole: candle_core::Tensor = all.remove(name).unwrap();
                    all.insert(name.to_owned(), whole.narrow(0, 0, 2).unwrap().copy().unwrap());
                });
            },
            "expected [rank, 16] and [12, rank]",
        ),
        (
            &|path| {
                rewrite(path, &|all| {
                    let whole: candle_core::Tensor = all.remove(name).unwrap();
                    all.insert(name.replace("k_proj", "z_proj"), whole);
                });
            },
            "z_proj.lora_B.weight: a Llama of the run has no such module",
        ),
    ];
    for (number, (change, says)) in cases.into_iter().enumerate() {
        let said = refused(number, change);
        assert!(said.contains(says), "{says} is not in {said}");
    }
    let observer = &mut |_: &RunEvent<'_>| Ok(());
    let run = RunFolder::new(&folder.path().join("run"));
    let error = import(&golden("peft-lora"), &run, observer).expect_err("refused");
    assert!(error.to_string().contains("onto the run of that model"), "{error}");
}
