//! Views of a model's attention: in the terminal, as a page and as numbers. The model is that of a
//! run that an earlier version of Taper wrote. Its translations have the words of the source in
//! reverse order.

use serde_json::Value;

use super::common::{Workspace, mentions, stderr, stdout};

fn json(workspace: &Workspace, arguments: &str) -> Value {
    serde_json::from_str(&workspace.succeed(arguments)).expect("JSON")
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|one| one.as_str().expect("text")).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number")).collect()
}

/// Returns the parts (encoder, decoder, cross) of each view of attention on a page.
fn parts_of_views(page: &str) -> Vec<Vec<Value>> {
    let data = page.split("data-parts=\"").skip(1).filter_map(|after| after.split('"').next());
    let plain = |text: &str| {
        let text = text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
        text.replace("&#39;", "'").replace("&amp;", "&")
    };
    data.map(|text| serde_json::from_str(&plain(text)).expect("JSON")).collect()
}

/// Returns the JSON data that a page holds for its scripts in the element `id`.
fn page_data(page: &str, id: &str) -> Value {
    let begin = format!("id=\"{id}\">");
    let json = page.split(&begin).nth(1).and_then(|after| after.split("</script>").next());
    serde_json::from_str(json.expect("data")).expect("JSON")
}

/// Counts the heads in all layers of all parts.
fn heads_of(parts: &[Value]) -> usize {
    let layers = parts.iter().filter_map(|part| part["layers"].as_array()).flatten();
    layers.filter_map(|layer| layer["heads"].as_array()).map(Vec::len).sum()
}

#[test]
fn attention_lines_words_up() {
    let workspace = Workspace::of_frozen_run();
    let text = "red dogs sees";
    let map = json(&workspace, &format!("attention run '{text}' --json"));
    assert_eq!(map["translation"], "sees dogs red");
    let layers = map["layers"].as_array().expect("layers");
    let parts: Vec<&str> = layers.iter().map(|one| one["part"].as_str().expect("a name")).collect();
    assert_eq!(parts, ["encoder", "decoder", "cross"]);
    let cross = &map["layers"][2];
    let (queries, keys) = (strings(&cross["queries"]), strings(&cross["keys"]));
    assert_eq!(keys.last(), Some(&"</s>"));
    // In the mean over heads, each output word attends most to the same word in the source.
    let heads: Vec<Vec<Vec<f64>>> = cross["heads"]
        .as_array()
        .expect("heads")
        .iter()
        .map(|head| head.as_array().expect("rows").iter().map(numbers).collect())
        .collect();
    for (query, name) in queries.iter().enumerate() {
        for head in &heads {
            assert!((head[query].iter().sum::<f64>() - 1.0).abs() < 1e-5);
        }
        let weight = |key: usize| heads.iter().map(|head| head[query][key]).sum::<f64>();
        let most = (0..keys.len()).max_by(|a, b| weight(*a).total_cmp(&weight(*b)));
        if *name != "</s>" {
            assert_eq!(keys[most.expect("keys")], *name, "{map}");
        }
    }
    // With the translation as `--target`, attention is the same.
    let given = format!("attention run '{text}' --target 'sees dogs red' --json");
    assert_eq!(json(&workspace, &given)["layers"], map["layers"]);

    let shown = workspace.run(format!("attention run '{text}'"));
    assert!(stderr(&shown).contains("Attention cross, layer 1, mean of 2 heads"));
    assert_eq!(stdout(&shown).matches('│').count(), 2 * queries.len());
    let rolled = workspace.succeed(format!("attention run '{text}' --rollout"));
    assert_eq!(rolled.matches('│').count(), 2 * keys.len());
    let table = workspace.succeed(format!("attention run '{text}' --heads"));
    assert_eq!(table.lines().count(), 1 + 3 * 2, "{table}");

    // Pictures and pages.
    workspace.succeed(format!("attention run '{text}' --html a.html --svg a.svg"));
    let read = |name: &str| workspace.read(name);
    let (page, drawing) = (read("a.html"), read("a.svg"));
    assert!(drawing.starts_with("<svg") && drawing.contains("Attention cross, layer 1"));
    // The view has each head, and the rollouts of encoder and decoder; cross-attention comes first.
    let [parts] = &parts_of_views(&page)[..] else { panic!("one view") };
    let names: Vec<&str> = parts.iter().filter_map(|one| one["part"].as_str()).collect();
    assert_eq!((names, heads_of(parts)), (vec!["cross", "encoder", "decoder"], 3 * 2 + 2));
    workspace.succeed("attention run '<script>alert(1)</script>' --target run --html b.html");
    assert!(!read("b.html").contains("<script>alert"));
    workspace.succeed(format!("attention run '{text}' --html c.html --language zh"));
    let chinese = parts_of_views(&read("c.html")).remove(0);
    assert_eq!(
        (&chinese[0]["part"], &chinese[0]["layers"][0]["layer"]),
        (&"交叉".into(), &"1".into())
    );

    workspace.fail(format!("attention run '{text}' --layer 2"), &["layers 1 to 1, not 2"]);
    workspace.fail(format!("attention run '{text}' --head 3"), &["heads 1 to 2"]);
    workspace.fail(
        format!("attention run '{text}' --rollout --part cross"),
        &["rolled out over layers of self-attention"],
    );

    // The model needs the head that finds words: without this head, the loss is much higher.
    let worth = json(&workspace, "prune-heads run --dry-run --split test --json");
    let heads = worth["heads"].as_array().expect("heads");
    assert_eq!(heads.len(), 3 * 2);
    let whole = worth["loss"].as_f64().expect("a loss");
    for head in heads {
        let of = |key: &str| head[key].as_f64().expect("a number");
        assert!((of("loss") - whole - of("lost")).abs() < 1e-9, "{head}");
    }
    let most = heads.last().expect("heads")["lost"].as_f64().expect("a number");
    assert!(most > 0.5, "{worth}");
    workspace.fail("prune-heads run", &["--dry-run"]);
}

#[test]
fn a_report_shows_where_the_model_looks_in_chosen_sentences() {
    let workspace = Workspace::of_frozen_run();
    let chosen = "report run --attention 1,test:2 --svg figures";
    workspace.fail(chosen, &["attention is shown of translations of a test set"]);
    // Training has ended, so `resume` only translates the test set.
    workspace.succeed("resume run");
    workspace.succeed(chosen);
    let page = workspace.read("run/report.html");
    let views = parts_of_views(&page);
    assert_eq!(views.iter().map(|parts| heads_of(parts)).collect::<Vec<_>>(), [3 * 2 + 2; 2]);
    assert!(page.contains("<h3>test, line 1</h3>") && page.contains("<h3>test, line 2</h3>"));
    assert!(workspace.path("figures/test-line-2-cross-layer-1-head-2.svg").is_file());
    assert!(workspace.path("figures/test-line-1-encoder-rollout-mean.svg").is_file());
    workspace.succeed("report run -o zh.html --attention 1 --language zh");
    let chinese = workspace.read("zh.html");
    assert!(chinese.contains("<h3>test，第 1 行</h3>"));
    assert_eq!(parts_of_views(&chinese)[0][1]["part"], "编码器");

    workspace.fail("report run --attention 0", &["lines are counted from 1"]);
    workspace.fail("report run --attention 9999", &["split `test` has lines 1 to"]);
    workspace.fail("report run --attention val:1", &["translations are kept of test"]);
}

#[test]
fn a_sentence_is_followed_step_by_step() {
    let workspace = Workspace::of_frozen_run();
    let journey = json(&workspace, "explain run 'red dogs sees' --json");
    let best = &journey["found"][0];
    assert_eq!(best["text"], "sees dogs red");
    // The log-probability of the beam is the sum over the chosen tokens.
    let sum = best["log_probability"].as_f64().expect("a number");
    let choices = journey["choices"].as_array().expect("choices");
    let logarithm = |choice: &Value| choice["probability"].as_f64().expect("a number").ln();
    let of_choices: f64 = choices.iter().map(logarithm).sum();
    assert!((of_choices - sum).abs() < 1e-3, "{of_choices} {sum}");
    let beam = journey["beam"].as_array().expect("a beam");
    let path: Vec<&Value> = beam.iter().filter(|branch| branch["is_best"] == true).collect();
    assert_eq!(path.len(), choices.len());
    assert!(
        (path.last().expect("a path")["log_probability"].as_f64().expect("a number") - sum).abs()
            < 1e-3
    );
    for (branch, choice) in path.iter().zip(choices) {
        assert_eq!(branch["token"], choice["token"]);
    }
    let alternatives = choices[0]["alternatives"].as_array().expect("alternatives");
    assert!(alternatives.len() == 5 && alternatives[0][0] == choices[0]["token"]);
    let pieces = journey["pieces"].as_array().expect("pieces");
    for stack in journey["norms"].as_array().expect("norms") {
        assert_eq!(stack["norms"].as_array().expect("layers").len(), 2, "before and after a layer");
    }
    assert_eq!(journey["norms"][0]["tokens"].as_array().expect("tokens").len(), pieces.len());

    let told = workspace.succeed("explain run 'red dogs sees'");
    mentions(&told, &["1. Pieces", "2. Vectors", "3. Where", "4. The beam", "5. Each next"]);
    workspace.succeed("explain run 'red dogs sees' --html journey.html");
    let page = workspace.read("journey.html");
    let drawn = page_data(&page, "journey-data");
    assert_eq!(drawn["choices"].as_array().expect("choices").len(), choices.len());
    // The page shows the vectors at every point of a layer, and every head.
    let points = |stack: usize| {
        let steps = drawn["stacks"][stack]["steps"].as_array().expect("steps");
        steps.iter().map(|step| step["point"].as_str().expect("a point")).collect::<Vec<_>>()
    };
    assert_eq!(points(0), ["token", "position", "layer", "self-attention", "layer"]);
    assert_eq!(points(1)[3..], ["self-attention", "cross-attention", "layer"]);
    assert_eq!(drawn["heads"].as_array().expect("heads").len(), 3);
    workspace.succeed("explain run 'red dogs sees' --html zh.html --language zh");
    let chinese = workspace.read("zh.html");
    assert!(chinese.contains("lang=\"zh-Hans\"") && chinese.contains("的旅程"));
    // The input of the first layer is the sum of token and position vectors.
    let steps = journey["vectors"][0]["steps"].as_array().expect("steps");
    let rows = |step: usize| numbers(&steps[step]["rows"][1]);
    for ((token, position), sum) in rows(0).iter().zip(rows(1)).zip(rows(2)) {
        assert!((token + position - sum).abs() < 1e-4, "{token} {position} {sum}");
    }
    workspace.fail("explain run '  '", &["the text is empty"]);

    let said = workspace.succeed("positions tiny.toml");
    mentions(&said, &["distance  sinusoidal  rotary  alibi, head 1"]);
    workspace.succeed("positions tiny.toml --svg drawings --html positions.html");
    let drawings = std::fs::read_dir(workspace.path("drawings")).expect("drawings").count();
    assert_eq!(drawings, 5);
    workspace.fail("positions tiny.toml --count 1", &["from 2 to 4096"]);
}
