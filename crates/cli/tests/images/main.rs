//! A classifier of images: trained from IDX files and from folders of pictures, resumed, evaluated,
//! asked for labels, exported for the library Transformers, and imported again.

#[path = "../common/mod.rs"]
mod common;
mod image_text;

use std::fs;

use common::{Workspace, json_lines, mentions, metrics, set};

const RECIPE: &str = r#"
task = "image-classification"
device = "cpu"
dtype = "f32"

[data]
dir = "data"
train = "shapes"
validation = ""
test = "shapes"

[data.images]
labels = ["row", "column"]
size = 8
patch = 4
crop_padding = 1
flip = true
hold_out = 16

[data.batching]
max_sentences = 16

[model]
d_model = 16
d_ff = 32
heads = 2
encoder_layers = 2
activation = "gelu"
positions = "learned"
residual_dropout = 0.1

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

/// Returns the pixels of an image with one bright line: horizontal or vertical, at a place that
/// follows from the number of the image.
fn pixels(image: usize) -> Vec<u8> {
    let line = 1 + image / 2 % 6;
    let is_line = |at: usize| line == if image.is_multiple_of(2) { at / 8 } else { at % 8 };
    (0..64).map(|at| if is_line(at) { 200 } else { (image * 7 + at) as u8 % 40 }).collect()
}

/// Writes IDX files of 96 images with labels, which are 0 and 1 in turn.
fn write_images(workspace: &Workspace, name: &str, pixels: impl Fn(usize) -> Vec<u8>) {
    let word = |number: u32| number.to_be_bytes();
    let mut images = [[0, 0, 8, 3], word(96), word(8), word(8)].concat();
    let mut labels = [[0, 0, 8, 1], word(96)].concat();
    for image in 0..96 {
        images.extend(pixels(image));
        labels.push((image % 2) as u8);
    }
    workspace.write(&format!("data/{name}-images-idx3-ubyte"), images);
    workspace.write(&format!("data/{name}-labels-idx1-ubyte"), labels);
}

/// Trains without interruption, in two parts, and on one thread, and checks that weights and
/// metrics are the same. The names of the runs end with `suffix`.
fn resumes(workspace: &Workspace, recipe: &str, suffix: &str, set: &str) {
    let [whole, parts, alone] = ["whole", "parts", "alone"].map(|run| format!("{run}{suffix}"));
    let train = |run: &str, other: &str| {
        workspace.succeed(format!("train {recipe} --run {run} --set {set} --set {other}"))
    };
    train(&whole, "threads=0");
    train(&parts, "training.max_updates=6");
    workspace.succeed(format!("resume {parts} --set training.max_updates=12"));
    let weights = |run: &str| {
        let file = workspace.path(run).join("checkpoints/step-00000012/model.safetensors");
        fs::read(file).expect("weights")
    };
    assert!(weights(&whole) == weights(&parts), "{recipe}{suffix}: the weights differ");
    train(&alone, "threads=1");
    workspace.same_end(&whole, &alone, 12);
    let last = metrics(&workspace.path(&whole)).pop();
    assert_eq!(last, metrics(&workspace.path(&parts)).pop());
}

/// Makes a workspace with a recipe and 96 images in IDX files. The first four images are also
/// pictures.
fn workspace() -> Workspace {
    let workspace = Workspace::of_text();
    write_images(&workspace, "shapes", pixels);
    workspace.write("images.toml", RECIPE);
    for (image, name) in [(0, "row/0"), (1, "column/1"), (2, "row/2"), (3, "column/3")] {
        let path = workspace.path(&format!("data/pictures/{name}.png"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let picture = image::GrayImage::from_raw(8, 8, pixels(image)).expect("an image");
        picture.save(path).expect("written");
    }
    workspace
}

#[test]
fn a_classifier_of_images_trains_resumes_and_labels() {
    let workspace = workspace();
    resumes(&workspace, "images.toml", "", "model.image_encoder=transformer");
    resumes(&workspace, "images.toml", "-convolutional", "model.image_encoder=convolutional");
    let said = workspace.succeed("inspect whole");
    mentions(&said, &["class_token.weight", "8 x 8 pixels in 1 channel(s), patches of 4 x 4"]);

    mentions(workspace.succeed("inspect whole-convolutional"), &["2 convolutions; first width 16"]);

    // With more updates, the model learns to distinguish rows from columns.
    let long = "--set training.max_updates=250 --set data.images.flip=false";
    workspace.succeed(format!("train images.toml --run long {long}"));
    let json = workspace.succeed("evaluate long --json");
    let record: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let result = &record["results"][0];
    assert_eq!(result["images"], 96, "{json}");
    assert!(result["accuracy"].as_f64().expect("a number") > 0.95, "{json}");
    let count = |right: usize| -> u64 {
        let row = result["confusion"][right].as_array().expect("a row");
        row.iter().map(|count| count.as_u64().expect("a count")).sum()
    };
    assert_eq!((count(0), count(1)), (48, 48));
    assert!(workspace.succeed("evaluate long").contains("(96 images)"));

    let row = "data/pictures/row/0.png";
    let ask = |run: &str| {
        workspace.succeed(format!("predict {run} {row} data/pictures/column/1.png --json"))
    };
    let labels = ask("long");
    let lines = json_lines(&labels);
    assert_eq!((&lines[0]["label"], &lines[1]["label"]), (&"row".into(), &"column".into()));
    let plain = workspace.succeed(format!("predict long {row} --attention seen"));
    assert!(plain.starts_with("data/pictures/row/0.png\trow\t"), "{plain}");
    let seen = image::open(workspace.path("seen/0.png")).expect("a picture").to_rgb8();
    assert_eq!(seen.dimensions(), (448, 224));
    // In the right half of the picture, the patch with the most attention is as bright as in the
    // left half, and other patches are darker.
    let (left, right) = (0..224)
        .flat_map(|y| (0..224).map(move |x| (x, y)))
        .map(|(x, y)| (seen.get_pixel(x, y)[0], seen.get_pixel(x + 224, y)[0]))
        .fold((0_u64, 0_u64), |sums, (a, b)| (sums.0 + u64::from(a), sums.1 + u64::from(b)));
    assert!(0 < right && right < left, "{left} {right}");
    keeps_every_picture(&workspace);

    workspace.succeed("export long folder");
    mentions(workspace.read("folder/README.md"), &["| shapes | Accuracy |"]);
    workspace.succeed("import folder back");
    assert_eq!(ask("back"), labels);

    workspace.fail("predict long", &["name PNG or JPEG files"]);
    workspace.fail("predict long images.toml", &["images.toml: is no PNG or JPEG"]);
    workspace.fail("generate long", &["task is image-classification", "taper predict"]);
    workspace.fail(
        "attention long x",
        &["the run looks at images; `taper predict RUN IMAGE --attention FOLDER` draws where"],
    );
    workspace.fail(
        format!("predict whole-convolutional {row} --attention none"),
        &["no attention weights"],
    );
    workspace.fail("export whole-convolutional other", &["model.image_encoder"]);
    workspace.fail("tokenizer train images.toml -o t", &["has no text"]);
}

/// Checks that images whose names are equal, or differ only between dots, have separate pictures
/// of their attention, and different names in a figure.
fn keeps_every_picture(workspace: &Workspace) {
    fs::create_dir(workspace.path("other")).expect("a folder");
    let images = ["data/pictures/row/0.png", "other/0.png", "0.v1.png", "0.v2.png"];
    for copy in &images[1..] {
        fs::copy(workspace.path(images[0]), workspace.path(copy)).expect("copied");
    }
    let images = images.join(" ");
    workspace.succeed(format!("predict long {images} --attention pictures --svg rows.svg"));
    let entries = fs::read_dir(workspace.path("pictures")).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["0-2.png", "0.png", "0.v1.png", "0.v2.png"]);
    mentions(workspace.read("rows.svg"), &["data/pictures/row/0.png", "other/0.png", "0.v1"]);
    workspace.fail(
        format!("predict long {images} --attention pictures"),
        &["pictures/0.png exists already", "name another folder with --attention"],
    );
}

#[test]
fn folders_of_pictures_are_trained_on_and_damage_is_named() {
    let workspace = workspace();
    let folders = set("data.train=pictures data.test=pictures data.images.format=folders \
         data.images.hold_out=1");
    let train = |run: &str| format!("train images.toml --run {run} {folders}");
    workspace.succeed(train("run"));
    workspace.write("data/pictures/row/0.png", b"no picture");
    workspace.fail(train("other"), &["pictures/row/0.png: is no PNG or JPEG"]);
    // The image is a JPEG file that is cut off, although its name ends with `.png`.
    let picture = image::GrayImage::from_raw(8, 8, pixels(0)).expect("an image");
    let mut jpeg = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut jpeg, image::ImageFormat::Jpeg).expect("written");
    let jpeg = jpeg.into_inner();
    workspace.write("data/pictures/row/0.png", &jpeg[..jpeg.len() - 2]);
    let said = ["pictures/row/0.png: is a JPEG that is cut off", "copy it again"];
    workspace.fail(train("another"), &said);
    workspace.fail("predict run data/pictures/row/0.png", &said);
    workspace.write("data/pictures/row/0.png", &jpeg);
    workspace.succeed("predict run data/pictures/row/0.png");
    workspace.fail("resume run --set training.max_updates=20", &["--accept-changes"]);
}
