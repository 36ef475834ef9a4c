//! Files that describe the tokenizer in an export.

use super::*;

#[test]
fn what_a_folder_came_with_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let cased = r#"{"tokenizer_class": "BertTokenizer", "do_lower_case": false, "cls_token": "[CLS]",
        "model_max_length": 1000000000000000019884624838656}"#;
    let source = changed("bert-classifier", folder.path(), |path| {
        respell(path, "\"lowercase\": true", "\"lowercase\": false");
        fs::write(path.join("tokenizer_config.json"), cased).unwrap();
        fs::write(path.join("special_tokens_map.json"), r#"{"mask_token": "[MASK]"}"#).unwrap();
    });
    let run: LoadedRun<TextClassifier> = imported(&source, &folder.path().join("run")).unwrap();
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    for file in [TOKENIZER, "tokenizer_config.json", "special_tokens_map.json"] {
        let [ours, theirs] = [&out, &source].map(|folder| fs::read(folder.join(file)).unwrap());
        assert!(ours == theirs, "{file}");
    }
    // In Transformers, the arguments of a tokenizer in `tokenizer_config.json` take precedence over
    // `tokenizer.json`.
    let other = changed("bert", folder.path(), |path| {
        fs::write(path.join("tokenizer_config.json"), cased).unwrap();
    });
    let run: LoadedRun<MaskedLanguageModel> = imported(&other, &folder.path().join("b")).unwrap();
    let out = folder.path().join("out-of-b");
    export(&run, &out).unwrap();
    assert_eq!(json_of(out.join(TOKENIZER))["normalizer"]["lowercase"], false);
    assert!(run.tokenizers.target().encode("The").unwrap().contains(&1));
    // Defaults of the arguments also take precedence, even if no file names the tokenizer's class.
    for (name, config) in
        [("named", Some(r#"{"tokenizer_class": "BertTokenizer"}"#)), ("bare", None)]
    {
        let other = changed("bert", &folder.path().join(name), |path| {
            respell(path, "\"lowercase\": true", "\"lowercase\": false");
            if let Some(config) = config {
                fs::write(path.join("tokenizer_config.json"), config).unwrap();
            }
        });
        let run = folder.path().join(name).join("run");
        let run: LoadedRun<MaskedLanguageModel> = imported(&other, &run).unwrap();
        let tokenizer = run.tokenizers.target();
        assert_eq!(tokenizer.encode("The").unwrap(), tokenizer.encode("the").unwrap(), "{name}");
    }

    // The ids of end tokens are kept, and so is the file that names them.
    let ends = json!({ "eos_token_id": [5, 271], "bos_token_id": 271, "top_k": 7 }).to_string();
    let source = changed("gpt2", folder.path(), |path| {
        fs::write(path.join("generation_config.json"), &ends).unwrap();
        set(path.join(CONFIG), "pad_token_id", &json!(270));
    });
    let run: LoadedRun<LanguageModel> = imported(&source, &folder.path().join("g")).unwrap();
    let out = folder.path().join("out-of-g");
    export(&run, &out).unwrap();
    assert_eq!(fs::read_to_string(out.join("generation_config.json")).unwrap(), ends);
    let config = json_of(out.join(CONFIG));
    assert_eq!((&config["eos_token_id"], &config["pad_token_id"]), (&json!(271), &json!(270)));
    // If the folder did not name the tokenizer's class, an export adds it.
    let written = json_of(out.join("tokenizer_config.json"));
    assert_eq!(written["tokenizer_class"], "PreTrainedTokenizerFast");
    assert_eq!((&written["eos_token"], &written["model_max_length"]), (&json!("&"), &json!(40)));
}

/// Run of the task `task` with random weights. Its model has a shape that can be exported for
/// Transformers. `kind`: kind of its tokenizer.
fn untrained<M: TaskModel>(
    folder: &Path,
    task: Task,
    kind: &str,
    documents: Documents,
) -> LoadedRun<M> {
    let lines = "the sea, the se\u{e4} and 7 ships on the sea\n".repeat(40);
    fs::write(folder.join("text.txt"), &lines).unwrap();
    fs::write(folder.join("labels.tsv"), lines.replace("the sea,", "yes\tthe sea,")).unwrap();
    let (layers, train) = match task {
        Task::LanguageModel => ("decoder_layers = 1", "text"),
        Task::Classification => ("encoder_layers = 1\nnorm = \"post\"", "labels"),
        _ => ("encoder_layers = 1\nnorm = \"post\"", "text"),
    };
    let documents = match documents {
        Documents::Lines => "lines",
        Documents::Files => "files",
    };
    let recipe = format!(
        "name = \"small\"\ntask = \"{task}\"\ndtype = \"f32\"\n[data]\ndir = \"{}\"\ntrain = \
         \"{train}\"\nvalidation = \"\"\ntest = []\n[data.text]\nblock_length = 32\ndocuments = \
         \"{documents}\"\n[data.labelled]\nlabels = [\"no\", \"yes\"]\nmax_tokens = \
         24\n[data.tokenizer]\nkind = \"{kind}\"\nvocabulary_size = 300\n[model]\nd_model = 16\nd_ff \
         = 32\nheads = 2\n{layers}\nactivation = \"gelu\"\npositions = \"learned\"\nmax_positions = \
         64\nscale_embeddings = false\nbiases = true\n",
        folder.display()
    );
    let path = folder.join("small.toml");
    fs::write(&path, recipe).unwrap();
    let config = RunConfig::load(&path, &[]).unwrap();
    let tokenizers = config.task.train_tokenizers(&config.data).unwrap();
    let model = build_model(&config, &tokenizers, &Device::Cpu, Some(1)).unwrap();
    LoadedRun {
        config,
        tokenizers,
        model,
        checkpoint: folder.to_owned(),
        state: State::new(1, Identity::default()),
        is_int8: false,
        shortlist: taper_run::shortlist::RunShortlist::default(),
    }
}

#[test]
fn tokenizers_of_ours_are_exported_so_that_their_tokens_are_known() {
    for kind in ["bpe", "unigram", "char", "bytes"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for (documents, start) in [(Documents::Lines, "</s>"), (Documents::Files, "\n")] {
            let run: LoadedRun<LanguageModel> =
                untrained(path, Task::LanguageModel, kind, documents);
            let out = path.join(start.escape_default().to_string());
            export(&run, &out).unwrap();
            let tokenizer = run.tokenizers.target();
            let config = json_of(out.join("tokenizer_config.json"));
            assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
            assert_eq!(config["model_max_length"], 64);
            assert_eq!(config["model_input_names"], json!(["input_ids", "attention_mask"]));
            assert_eq!(config["clean_up_tokenization_spaces"], false);
            // The spelling of a special token is read as text, as in Taper.
            assert_eq!(config["split_special_tokens"], true);
            let names = json_of(out.join("special_tokens_map.json"));
            for (role, token) in
                [("pad_token", "<pad>"), ("unk_token", "<unk>"), ("eos_token", "</s>")]
            {
                assert_eq!((&names[role], &config[role]), (&json!(token), &json!(token)), "{kind}");
            }
            assert_eq!(names.get("bos_token").is_some(), documents == Documents::Lines);
            let start = match documents {
                Documents::Lines => 3,
                Documents::Files => tokenizer.encode("\n").unwrap()[0],
            };
            for file in [CONFIG, "generation_config.json"] {
                let keys = json_of(out.join(file));
                assert_eq!(keys["bos_token_id"], start, "{kind}, {file}");
                assert_eq!(keys["eos_token_id"], 3, "{kind}, {file}");
                assert_eq!(keys["pad_token_id"], 0, "{kind}, {file}");
            }
            // If the export is imported again, texts begin and end in the same way and are divided
            // into the same tokens.
            let again: LoadedRun<LanguageModel> = imported(&out, &out.join("run")).unwrap();
            let text = "the sea, the se\u{e4}";
            assert_eq!(scored(&again, text), scored(&run, text), "{kind}");
        }

        let run: LoadedRun<TextClassifier> =
            untrained(path, Task::Classification, kind, Documents::Files);
        let out = path.join("classifier");
        export(&run, &out).unwrap();
        let config = json_of(out.join("tokenizer_config.json"));
        assert_eq!(
            (&config["cls_token"], &config["sep_token"]),
            (&json!("<cls>"), &json!("<sep>"))
        );
        assert_eq!(
            (&config["mask_token"], &config["model_max_length"]),
            (&json!("<mask>"), &json!(24))
        );
        let inputs = json!(["input_ids", "token_type_ids", "attention_mask"]);
        assert_eq!(config["model_input_names"], inputs);
        let processor = &json_of(out.join(TOKENIZER))["post_processor"];
        assert_eq!(
            processor["pair"][4],
            json!({ "SpecialToken": { "id": "<sep>", "type_id": 1 } })
        );
        let class = run.tokenizers.target().id("<cls>").unwrap();
        assert_eq!(processor["special_tokens"]["<cls>"]["ids"], json!([class]));
        let again: LoadedRun<TextClassifier> = imported(&out, &out.join("run")).unwrap();
        assert_eq!(again.tokenizers.target().mark_ids(), run.tokenizers.target().mark_ids());

        let run: LoadedRun<MaskedLanguageModel> =
            untrained(path, Task::MaskedLanguageModel, kind, Documents::Files);
        let out = path.join("masked");
        export(&run, &out).unwrap();
        // For a masked language model, the spelling of the mask in a text is read as the mask.
        assert_eq!(json_of(out.join("tokenizer_config.json"))["split_special_tokens"], false);
    }
}

#[test]
fn an_encoder_has_the_marks_that_it_needs_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let unhidden = |path: &Path| respell(path, "[MASK]", "sailor");
    let whole = changed("bert-classifier", &folder.path().join("whole"), |_| {});
    let without = changed("bert-classifier", &folder.path().join("without"), unhidden);
    let labels = |source: &Path| {
        let run: LoadedRun<TextClassifier> =
            imported(source, &source.with_extension("run")).unwrap();
        let texts = ["The seagulls sail on.".to_owned(), "Nothing is lost!\tCaf\u{e9}".to_owned()];
        let found = predict(&run, &texts, |_| {}).unwrap().into_iter().map(Result::unwrap);
        found.map(|prediction| prediction.probabilities).collect::<Vec<_>>()
    };
    assert_eq!(labels(&without), labels(&whole));
    let says = |change: &dyn Fn(&Path)| refusal::<MaskedLanguageModel>(&golden("bert"), change);
    let error = says(&unhidden);
    assert!(error.contains(TOKENIZER) && error.contains("mask_token"), "{error}");
    let error = says(&|path| {
        let mut file = json_of(path.join(TOKENIZER));
        file["post_processor"] = Value::Null;
        fs::write(path.join(TOKENIZER), file.to_string()).unwrap();
        respell(path, "[CLS]", "sailor");
    });
    assert!(error.contains(TOKENIZER) && error.contains("cls_token"), "{error}");
}

#[test]
fn settings_of_generation_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let mut run: LoadedRun<LanguageModel> =
        untrained(folder.path(), Task::LanguageModel, "bpe", Documents::Lines);
    let decoding = &mut run.config.decoding;
    (decoding.repetition_penalty, decoding.no_repeat_ngram) = (1.3, 4);
    (decoding.min_length, decoding.max_length) = (2, 33);
    let out = folder.path().join("out");
    export(&run, &out).unwrap();
    let keys = json_of(out.join("generation_config.json"));
    let given = ["repetition_penalty", "no_repeat_ngram_size", "min_new_tokens", "max_new_tokens"];
    assert_eq!(given.map(|key| &keys[key]), [&json!(1.3), &json!(4), &json!(2), &json!(33)]);
    let again: LoadedRun<LanguageModel> = imported(&out, &folder.path().join("again")).unwrap();
    let decoding = &again.config.decoding;
    assert_eq!((decoding.repetition_penalty, decoding.no_repeat_ngram), (1.3, 4));
    assert_eq!((decoding.min_length, decoding.max_length), (2, 33));
}
