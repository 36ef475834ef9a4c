//! Models that write captions, and models that compare texts with images: trained from IDX files
//! and from tables of captions, resumed, evaluated, and asked about pictures.

use std::fs;

use super::common::{Workspace, mentions, set};
use super::{resumes, write_images};

const RECIPE: &str = r#"
task = "captions"
device = "cpu"
dtype = "f32"

[data]
dir = "data"
train = "lines"
validation = ""
test = "lines"

[data.images]
labels = ["row", "column"]
size = 8
patch = 4
hold_out = 16

[data.captions]
sentences = ["a {brightness} {label}", "this {label} is {brightness}"]
max_tokens = 12

[data.batching]
max_sentences = 16

[model]
d_model = 16
d_ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
activation = "gelu"
positions = "learned"
max_positions = 16
residual_dropout = 0.1

[model.contrastive]
dimensions = 8
text_d_model = 8

[training]
label_smoothing = 0.0
max_updates = 12
log_every = 4
validate_every = 6

[training.schedule]
kind = "constant"
learning_rate = 3e-3
warmup = 5
"#;

/// Returns the pixels of an image with one line: horizontal or vertical, bright or dark, at a place
/// that follows from the number of the image.
fn pixels(image: usize) -> Vec<u8> {
    let line = 1 + image / 4 % 6;
    let value = if (image / 2).is_multiple_of(2) { 220 } else { 60 };
    let is_line = |at: usize| line == if image.is_multiple_of(2) { at / 8 } else { at % 8 };
    (0..64).map(|at| if is_line(at) { value } else { (image * 7 + at) as u8 % 15 }).collect()
}

/// Returns the caption of an image.
fn caption(image: usize) -> String {
    let brightness = if (image / 2).is_multiple_of(2) { "bright" } else { "dark" };
    format!("a {brightness} {}", ["row", "column"][image % 2])
}

/// Makes a workspace with recipes and 96 images in IDX files. The first eight images are also
/// pictures, with a table of captions.
fn workspace() -> Workspace {
    let workspace = Workspace::of_text();
    write_images(&workspace, "lines", pixels);
    workspace.write("captions.toml", RECIPE);
    workspace.write("clip.toml", RECIPE.replace("\"captions\"", "\"image-text\""));
    fs::create_dir_all(workspace.path("data/pictures")).expect("a folder");
    let mut table = String::new();
    for image in 0..8 {
        let path = workspace.path(&format!("data/pictures/{image}.png"));
        let picture = image::GrayImage::from_raw(8, 8, pixels(image)).expect("an image");
        picture.save(path).expect("written");
        table += &format!("pictures/{image}.png\t{}\n", caption(image));
    }
    // A second caption of the first picture.
    table += "pictures/0.png\ta bright line\n";
    workspace.write("data/table.tsv", table);
    workspace
}

fn evaluated(workspace: &Workspace, run: &str, more: &str) -> serde_json::Value {
    let record = workspace.json(format!("evaluate {run} --json {more}"));
    record["results"][0].clone()
}

#[test]
fn captions_are_learnt_resumed_and_written() {
    let workspace = workspace();
    resumes(&workspace, "captions.toml", "", "device=cpu");
    mentions(workspace.succeed("inspect whole"), &["1 encoder, 1 decoder", "patches of 4 x 4"]);

    let long = "--set training.max_updates=600 --set model.residual_dropout=0";
    workspace.succeed(format!("train captions.toml --run long {long}"));
    let result = evaluated(&workspace, "long", "--beam 3");
    assert_eq!(result["images"], 96, "{result}");
    assert!(result["exact_match"].as_f64().expect("a number") > 0.9, "{result}");
    assert!(result["bleu"]["score"].as_f64().expect("a number") > 90.0, "{result}");
    assert!(workspace.succeed("evaluate long").contains("exact match"));
    // A model with little training has low scores.
    let result = evaluated(&workspace, "whole", "");
    assert!(result["exact_match"].as_f64().expect("a number") < 0.9, "{result}");

    let files = ["data/pictures/0.png", "data/pictures/3.png"];
    let said = workspace.succeed(format!("predict long {}", files.join(" ")));
    let lines: Vec<(&str, &str)> =
        said.lines().map(|line| line.split_once('\t').expect("a tab")).collect();
    let is_said = |image: usize, text: &str| {
        let own = caption(image);
        let words: Vec<&str> = own.split(' ').collect();
        text == own || text == format!("this {} is {}", words[2], words[1])
    };
    assert_eq!((lines[0].0, lines[1].0), (files[0], files[1]));
    assert!(is_said(0, lines[0].1) && is_said(3, lines[1].1), "{said}");
    let record = workspace.json(format!("predict long {} --json", files[0]));
    assert_eq!(record["text"], lines[0].1);
    assert!(record["log_probability"].as_f64().expect("a number") < 0.0);
    let journey = workspace.json(format!("explain long {} --json", files[0]));
    assert_eq!(journey["found"][0]["text"], lines[0].1);
    assert_eq!(journey["text"], "0.png");
    let read = serde_json::json!(["class", "1,1", "1,2", "2,1", "2,2"]);
    assert_eq!(journey["vectors"][0]["tokens"], read);
    let parts = journey["attention"].as_array().expect("layers").iter();
    let parts: Vec<&str> = parts.map(|layer| layer["part"].as_str().expect("a part")).collect();
    assert_eq!(parts, ["encoder", "decoder", "cross"]);
    workspace.succeed(format!("explain long {} --html caption.html", files[0]));
    let page = workspace.read("caption.html");
    assert!(page.contains("journey-data") && page.contains("\"pixels\""));
    workspace.fail("explain long captions.toml", &["captions.toml: is no PNG or JPEG"]);

    workspace.fail("predict long", &["name PNG or JPEG files"]);
    workspace.fail("predict long captions.toml", &["captions.toml: is no PNG or JPEG"]);
    workspace.fail(format!("predict long {} --prompt x", files[0]), &["image-text"]);
    workspace.fail("translate long", &["task is captions", "taper predict"]);
    workspace.fail("predict long --svg labels.svg", &["--svg", "run is captions"]);
    workspace.fail("export long folder", &["captions"]);
}

#[test]
fn images_and_texts_find_each_other() {
    let workspace = workspace();
    resumes(&workspace, "clip.toml", "", "device=cpu");
    mentions(workspace.succeed("inspect whole"), &["1 of images, 1 of text"]);

    let long = "training.max_updates=1200 training.accumulation=2 training.validate_every=600 \
         model.residual_dropout=0 model.contrastive.text_d_model=16";
    workspace.succeed(format!("train clip.toml --run long {}", set(long)));
    let result = evaluated(&workspace, "long", "");
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    assert!(number(&result["zero_shot_accuracy"]) > 0.9, "{result}");
    // There are eight texts: two sentences for each of four kinds of images.
    assert_eq!((&result["image_to_text"]["among"], &result["images"]), (&8.into(), &96.into()));
    assert!(number(&result["image_to_text"]["at_1"]) > 0.9, "{result}");
    assert!(number(&result["image_to_text"]["at_5"]) >= number(&result["image_to_text"]["at_1"]));
    assert!(number(&result["text_to_image"]["at_1"]) > 0.7, "{result}");
    assert!(workspace.succeed("evaluate long").contains("recall at 1"));

    let file = "data/pictures/1.png";
    let told = workspace.succeed(format!("predict long {file}"));
    assert!(told.starts_with(&format!("{file}\tcolumn\t")), "{told}");
    let prompts = "--prompt 'a dark row' --prompt 'a bright column'";
    let json = workspace.succeed(format!("predict long {file} --json {prompts}"));
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["label"], "a bright column");
    assert_eq!(record["probabilities"].as_array().map(Vec::len), Some(2));
    // The figure also says in words which text matches each image.
    let ask = format!("predict long --json --svg matches.svg {file} data/pictures/0.png {prompts}");
    let lines = workspace.succeed(&ask);
    let figure = workspace.read("matches.svg");
    for (line, name) in lines.lines().zip(["1", "0"]) {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let label = record["label"].as_str().expect("a label");
        let told = format!("{name}: {label} {:.2}", number(&record["probability"]));
        assert!(figure.contains(&told), "{told:?} is not in {figure}");
    }
    workspace.succeed(format!("predict long {file} --svg labels.svg"));
    mentions(workspace.read("labels.svg"), &[">column<", ">row<"]);
    let endless = "row ".repeat(40);
    workspace
        .fail(format!("predict long {file} --prompt '{endless}'"), &["tokens", "more than 16"]);
    workspace.fail("predict long", &["name PNG or JPEG files"]);
}

#[test]
fn tables_of_captions_are_read_and_damage_is_named() {
    let workspace = workspace();
    let table = set("data.train=table data.test=table data.images.format=table \
         data.images.hold_out=1 data.tokenizer.vocabulary_size=300");
    let train = |recipe: &str, run: &str| format!("train {recipe} --run {run} {table}");
    workspace.succeed(train("captions.toml", "written"));
    assert_eq!(evaluated(&workspace, "written", "")["images"], 8);
    workspace.succeed(train("clip.toml", "compared"));
    let result = evaluated(&workspace, "compared", "");
    assert_eq!(result["image_to_text"]["among"], 5, "{result}");
    assert!(result.get("zero_shot_accuracy").is_none(), "{result}");
    workspace.fail("predict compared data/pictures/0.png", &["no labels", "--prompt"]);
    let table = workspace.read("data/table.tsv");
    let says = |text: &str, what: &[&str]| {
        workspace.write("data/table.tsv", text);
        workspace.fail(train("captions.toml", "other"), what);
    };
    says("pictures/0.png a row\n", &["table.tsv, line 1", "has no tab"]);
    says(&format!("{table}pictures/none.png\tno\n"), &["none.png", "a table of captions names it"]);
    says(&format!("{table}pictures/1.png\t \n"), &["line 10", "empty path or caption"]);
    workspace.write("data/table.tsv", &table);
    let few = train("captions.toml", "few") + " --set data.captions.max_tokens=1";
    workspace.fail(&few, &["data.captions.max_tokens", "every caption"]);
    let labels = train("captions.toml", "labels") + " --set task=image-classification";
    workspace.fail(&labels, &["data.images.format", "captions and no labels"]);
    for (sentence, what) in [("[\"a {color}\"]", "in braces"), ("[\"a thing\"]", "{label}")] {
        let run =
            format!("train captions.toml --run no --set 'data.captions.sentences={sentence}'");
        workspace.fail(&run, &["data.captions.sentences", what]);
    }
}
