//! Tests images: reading of each format, augmentation in training, and files that are refused.

mod captions;
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use common::mentions;
use taper_data::{
    Batch, BatchingConfig, DataConfig, Dataset, Epoch, Epochs, ImageDataset, ImageFormat, Position,
    Prefetcher, Prepared, Task, prepare_images,
};

const SIZE: usize = 6;

/// Pixel values of the image with the index `image`.
fn pixels(image: usize, values: usize) -> Vec<u8> {
    (0..values).map(|at| (image * 31 + at * 7 + at * at) as u8).collect()
}

fn idx(count: usize) -> (Vec<u8>, Vec<u8>) {
    let word = |number: usize| (number as u32).to_be_bytes();
    let mut images = [[0, 0, 8, 3], word(count), word(SIZE), word(SIZE)].concat();
    let mut labels = [[0, 0, 8, 1], word(count)].concat();
    for image in 0..count {
        images.extend(pixels(image, SIZE * SIZE));
        labels.push((image % 3) as u8);
    }
    (images, labels)
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Writes `count` images to IDX files in `folder`. Returns their configuration.
fn config(folder: &Path, count: usize) -> DataConfig {
    let (images, labels) = idx(count);
    fs::write(folder.join("train-images-idx3-ubyte"), images).unwrap();
    fs::write(folder.join("train-labels-idx1-ubyte"), labels).unwrap();
    let mut config =
        DataConfig { dir: folder.to_owned(), validation: "".into(), ..DataConfig::default() };
    config.images.labels = ["a", "b", "c"].map(str::to_owned).into();
    config.images.size = SIZE;
    config.images.patch = 3;
    config.batching.max_tokens = 4 * config.images.tokens();
    config
}

fn prepare(config: &DataConfig) -> taper_data::Result<Prepared<ImageDataset>> {
    prepare_images(config, &config.dir.join("run"))
}

fn batches(data: &Arc<ImageDataset>, batching: &BatchingConfig, epoch: u64) -> Vec<Batch> {
    let plan = data.clone().plan(batching, Epoch::new(1, epoch));
    (0..plan.batches()).map(|index| plan.batch(index).unwrap()).collect()
}

/// Index, class and values of each image of `batches`.
fn of_images(batches: &[Batch]) -> Vec<(usize, u32, Vec<u8>)> {
    let mut found = Vec::new();
    for batch in batches {
        let (ids, lengths) = batch.stream(0);
        let mut rest = ids;
        for (at, (&length, &class)) in lengths.iter().zip(&batch.answers).enumerate() {
            assert_eq!(batch.asked.as_ref().unwrap()[at] as usize, ids.len() - rest.len());
            let (image, others) = rest.split_at(length);
            let image = image.iter().map(|&value| value as u8).collect();
            found.push((batch.indices[at] - 1, class, image));
            rest = others;
        }
    }
    found.sort();
    found
}

#[test]
fn idx_files_are_read_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 10);
    let data = prepare(&config).unwrap().train;
    let expected: Vec<_> =
        (0..10).map(|image| (image, image as u32 % 3, pixels(image, SIZE * SIZE))).collect();
    assert_eq!(of_images(&batches(&data, &config.batching, 0)), expected);
    for name in ["images-idx3", "labels-idx1"] {
        let path = folder.path().join(format!("train-{name}-ubyte"));
        let bytes = zipped(&fs::read(&path).unwrap());
        fs::write(folder.path().join(format!("zip-{name}-ubyte.gz")), bytes).unwrap();
    }
    config.train = "zip".into();
    let again = ImageDataset::read(&config, &config.train).unwrap();
    assert_eq!(of_images(&batches(&Arc::new(again), &config.batching, 0)), expected);
}

#[test]
fn a_folder_of_cifar_files_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let batches = folder.path().join("batches");
    fs::create_dir(&batches).unwrap();
    for name in ["test_batch_1.bin", "test_batch_2.bin"] {
        fs::write(batches.join(name), "").unwrap();
    }
    let mut config = config(folder.path(), 4);
    config.images.format = ImageFormat::Cifar10;
    config.test = "batches".into();
    let error = ImageDataset::read(&config, &config.test).unwrap_err().to_string();
    assert!(error.starts_with(batches.to_str().unwrap()), "{error}");
    mentions(&error, &["batches: is a folder: name each file of it, as in"]);
}

#[test]
fn cifar_files_are_planes_behind_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 1);
    (config.images.size, config.images.channels, config.images.patch) = (32, 3, 8);
    (config.images.mean, config.images.deviation) = (vec![0.5; 3], vec![0.5; 3]);
    for (format, labels) in [(ImageFormat::Cifar10, 1), (ImageFormat::Cifar100, 2)] {
        config.images.format = format;
        let record = |image: usize| {
            let mut bytes = vec![9; labels];
            bytes[labels - 1] = (image % 3) as u8;
            bytes.extend(pixels(image, 3072));
            bytes
        };
        let bytes: Vec<u8> = (0..4).flat_map(record).collect();
        fs::write(folder.path().join("one.bin"), &bytes).unwrap();
        fs::write(folder.path().join("two.bin"), &bytes[..2 * (labels + 3072)]).unwrap();
        config.train = "one".into();
        let both = ["one", "two"].map(|stem| config.split(stem).0).concat();
        config.train = taper_data::Corpora(both);
        let data = Arc::new(ImageDataset::read(&config, &config.train).unwrap());
        let found = of_images(&batches(&data, &config.batching, 0));
        assert_eq!(found.len(), 6);
        for (at, (number, class, values)) in found.into_iter().enumerate() {
            let image = if at < 4 { at } else { at - 4 };
            assert_eq!((number, class), (at, image as u32 % 3));
            assert_eq!(values, pixels(image, 3072));
        }
        fs::write(folder.path().join("one.bin"), &bytes[1..]).unwrap();
        let error = ImageDataset::read(&config, &config.train).unwrap_err();
        mentions(&error, &["one.bin", "no multiple"]);
        let mut wrong = bytes.clone();
        wrong[labels - 1] = 3;
        fs::write(folder.path().join("one.bin"), &wrong).unwrap();
        let error = ImageDataset::read(&config, &config.train).unwrap_err();
        mentions(&error, &["image 1: has label 3"]);
    }
}

/// Writes a folder for each of three classes. Each contains a PNG file with `SIZE` x `SIZE` pixels
/// and a larger JPEG file.
fn write_pictures(folder: &Path) {
    for (class, label) in ["a", "b", "c"].iter().enumerate() {
        fs::create_dir_all(folder.join(label)).unwrap();
        let small = image::RgbImage::from_fn(SIZE as u32, SIZE as u32, |x, y| {
            image::Rgb([10 * x as u8, 20 * y as u8, 100 * class as u8])
        });
        small.save(folder.join(label).join("one.png")).unwrap();
        let large = image::RgbImage::from_pixel(40, 25, image::Rgb([200, 100, 50]));
        large.save(folder.join(label).join("two.JPG")).unwrap();
    }
}

#[test]
fn pictures_in_folders_are_scaled_and_taken_channel_by_channel() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 1);
    write_pictures(&folder.path().join("pictures"));
    fs::write(folder.path().join("pictures/a/.hidden"), "no picture").unwrap();
    config.train = "pictures".into();
    config.images.format = ImageFormat::Folders;
    config.images.channels = 3;
    (config.images.mean, config.images.deviation) = (vec![0.5; 3], vec![0.5; 3]);
    let data = Arc::new(ImageDataset::read(&config, &config.train).unwrap());
    assert_eq!(data.classes(), [0, 0, 1, 1, 2, 2]);
    let found = of_images(&batches(&data, &config.batching, 0));
    let plane = SIZE * SIZE;
    for (class, pair) in found.chunks(2).enumerate() {
        let small = &pair[0].2;
        for at in 0..plane {
            let (x, y) = (at % SIZE, at / SIZE);
            let colours = [small[at], small[plane + at], small[2 * plane + at]];
            assert_eq!(colours, [10 * x as u8, 20 * y as u8, 100 * class as u8]);
        }
        for (channel, colour) in [200_i32, 100, 50].into_iter().enumerate() {
            let values = &pair[1].2[channel * plane..(channel + 1) * plane];
            // JPEG changes values a little.
            assert!(values.iter().all(|&value| (i32::from(value) - colour).abs() < 6));
        }
    }
    config.images.channels = 1;
    (config.images.mean, config.images.deviation) = (vec![0.5], vec![0.5]);
    let data = Arc::new(ImageDataset::read(&config, &config.train).unwrap());
    assert_eq!(batches(&data, &config.batching, 0)[0].streams[0].lengths[0], plane);

    let says = |config: &DataConfig| {
        let data = Arc::new(ImageDataset::read(config, &config.train)?);
        let plan = data.plan(&config.batching, Epoch::new(1, 0));
        (0..plan.batches()).try_for_each(|index| plan.batch(index).map(drop))
    };
    let path = |name: &str| folder.path().join("pictures").join(name);
    let whole = fs::read(path("b/one.png")).unwrap();
    for damaged in [&whole[..40], b"GIF89a", b"", &[&whole[..50], b"damage", &whole[56..]].concat()]
    {
        fs::write(path("b/one.png"), damaged).unwrap();
        mentions(says(&config).unwrap_err(), &["b/one.png: is no PNG or JPEG"]);
    }
    // The header declares 2^31 - 1 pixels for each side.
    let mut huge = whole.clone();
    huge[16..24].copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF]);
    fs::write(path("b/one.png"), &huge).unwrap();
    assert!(says(&config).unwrap_err().to_string().contains("b/one.png"));
    fs::write(path("b/one.png"), &whole).unwrap();
    says(&config).unwrap();
    fs::write(path("c/notes.txt"), "text").unwrap();
    assert!(says(&config).unwrap_err().to_string().contains("notes.txt: is not an image"));
    fs::remove_file(path("c/notes.txt")).unwrap();
    fs::create_dir(path("d")).unwrap();
    assert!(says(&config).unwrap_err().to_string().contains("pictures/d: is not a class"));
    fs::remove_dir(path("d")).unwrap();
    fs::remove_dir_all(path("c")).unwrap();
    assert!(says(&config).unwrap_err().to_string().contains("pictures/c: no such file"));
}

#[test]
fn training_varies_its_images_and_validation_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 40);
    config.images.hold_out = 10;
    config.images.flip = true;
    config.images.crop_padding = 2;
    let Prepared { train, validation, .. } = prepare(&config).unwrap();
    let validation = validation.unwrap();
    let plain = |image: usize| pixels(image, SIZE * SIZE);
    let held_out = of_images(&batches(&validation, &config.batching, 3));
    assert!(held_out.iter().all(|(image, _, values)| *values == plain(*image)));
    let first = of_images(&batches(&train, &config.batching, 0));
    assert_eq!(first, of_images(&batches(&train, &config.batching, 0)));
    let changed = first.iter().filter(|(image, _, values)| *values != plain(*image)).count();
    assert!(changed > 20, "{changed}");
    assert_ne!(first, of_images(&batches(&train, &config.batching, 1)));
    let mut all: Vec<usize> = first.iter().chain(&held_out).map(|(image, ..)| *image).collect();
    all.sort();
    assert_eq!(all, (0..40).collect::<Vec<_>>());

    // Any batch can be requested without the batches before it.
    let position = Position { epoch: 2, batch: 3 };
    let data: Arc<dyn Dataset> = train.clone();
    let epochs = Arc::new(Epochs::new(data, &config.batching, 1));
    let item = Prefetcher::new(&epochs, epochs.positions(position)).next().unwrap().unwrap();
    assert_eq!(item.batch, batches(&train, &config.batching, 2)[3]);
    assert_eq!(epochs.plan(2).batches(), 8);
    config.batching.max_sentences = 3;
    let threes = batches(&train, &config.batching, 0);
    assert_eq!(threes.len(), 10);
    let largest = train.largest_batch(2 * config.images.tokens());
    assert_eq!(largest.streams[0].lengths, [SIZE * SIZE; 2]);
}

#[test]
fn a_fraction_is_part_of_a_larger_one_and_leaves_what_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 50);
    config.images.hold_out = 10;
    let mut of = |fraction: f64, seed: u64| {
        (config.images.fraction, config.images.seed) = (fraction, seed);
        let Prepared { train, validation, .. } = prepare(&config).unwrap();
        let numbers = |data: &Arc<ImageDataset>| {
            let found = of_images(&batches(data, &config.batching, 0));
            found.into_iter().map(|(image, ..)| image).collect::<Vec<_>>()
        };
        (numbers(&train), numbers(&validation.unwrap()))
    };
    let (whole, held_out) = of(1.0, 1);
    let (half, of_half) = of(0.5, 1);
    let (tenth, of_tenth) = of(0.1, 1);
    assert_eq!((whole.len(), half.len(), tenth.len()), (40, 20, 4));
    assert!(of_half == held_out && of_tenth == held_out);
    assert!(tenth.iter().all(|image| half.contains(image)));
    assert!(half.iter().all(|image| whole.contains(image) && !held_out.contains(image)));
    assert_ne!(of(0.1, 2).0, tenth);
}

#[test]
fn damaged_idx_files_are_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), 10);
    let (images, labels) = idx(10);
    let images_path = folder.path().join("train-images-idx3-ubyte");
    let labels_path = folder.path().join("train-labels-idx1-ubyte");
    let says = |config: &DataConfig, images: &[u8], labels: &[u8]| {
        fs::write(&images_path, images).unwrap();
        fs::write(&labels_path, labels).unwrap();
        ImageDataset::read(config, &config.train).expect_err("refused").to_string()
    };
    let changed = |bytes: &[u8], at: usize, to: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    let ten = 16 + 10 * SIZE * SIZE;
    for (images, labels, said) in [
        (images[..ten - 1].to_vec(), labels.clone(), "images-idx3-ubyte: has 375 bytes"),
        ([&images[..], b"x"].concat(), labels.clone(), "376 are expected"),
        (images[..9].to_vec(), labels.clone(), "at least 16"),
        (changed(&images, 0, &[0, 0, 13, 3]), labels.clone(), "begins with"),
        (labels.clone(), labels.clone(), "begins with"),
        (changed(&images, 4, &[0xFF; 4]), labels.clone(), "has 376 bytes"),
        (changed(&images, 4, &[0xFF; 12]), labels.clone(), "4294967295 x 4294967295 pixels"),
        (changed(&images, 11, &[7]), labels.clone(), "7 x 6 pixels, but data.images.size is 6"),
        (images.clone(), changed(&labels, 7, &[9]), "9 labels for the 10 images"),
        (images.clone(), labels[..17].to_vec(), "labels-idx1-ubyte: has 17 bytes"),
        (
            images.clone(),
            changed(&labels, 10, &[3]),
            "label 3: is 3, but data.images.labels names 3 classes",
        ),
    ] {
        mentions(says(&config, &images, &labels), &[said]);
    }
    let none = idx(0);
    mentions(says(&config, &none.0, &none.1), &["\"train\" is empty"]);
    // A compressed file is not decompressed beyond the length that its header declares.
    fs::remove_file(&images_path).unwrap();
    fs::remove_file(&labels_path).unwrap();
    let zip = |bytes: &[u8], name: &str| {
        fs::write(folder.path().join(format!("train-{name}-ubyte.gz")), zipped(bytes)).unwrap();
    };
    zip(&labels, "labels-idx1");
    zip(&[&images[..], &[0; 1 << 20]].concat(), "images-idx3");
    let error = ImageDataset::read(&config, &config.train).unwrap_err();
    mentions(&error, &["ubyte.gz: has 377 bytes or more where 376"]);
    config.train = "nothing".into();
    let error = ImageDataset::read(&config, &config.train).unwrap_err();
    mentions(&error, &["nothing-images-idx3-ubyte: no such file"]);
}

#[test]
fn settings_that_make_no_image_are_refused_by_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let says = |change: &dyn Fn(&mut DataConfig)| {
        let mut config = config(folder.path(), 5);
        change(&mut config);
        let error = prepare(&config).map(drop).expect_err("refused").to_string();
        assert_eq!(Task::ImageClassification.validate(&config).is_err(), !error.contains("are 5"));
        error
    };
    type Change = fn(&mut DataConfig);
    let cases: [(Change, &str); 14] = [
        (|config| config.images.size = 0, "data.images.size"),
        (|config| config.images.size = 1 << 40, "data.images.size"),
        (|config| config.images.channels = 2, "data.images.channels"),
        (|config| config.images.patch = 4, "data.images.patch"),
        (|config| config.images.patch = 0, "data.images.patch"),
        (|config| config.images.mean = vec![], "data.images.mean"),
        (|config| config.images.deviation = vec![0.0], "data.images.deviation"),
        (|config| config.images.crop_padding = 7, "data.images.crop_padding"),
        (|config| config.images.erase = 1.5, "data.images.erase"),
        (|config| config.images.fraction = 0.0, "data.images.fraction"),
        (|config| config.images.labels.truncate(1), "data.images.labels"),
        (|config| config.images.labels[2] = "a".to_owned(), "lists a label twice"),
        (|config| config.hold_out = 2, "data.hold_out: is for sentence pairs"),
        (|config| config.images.hold_out = 5, "data.images.hold_out: is 5, but there are 5"),
    ];
    for (change, said) in cases {
        mentions(says(&change), &[said]);
    }
}
