//! Compares decoded and resized pictures with those of Pillow and of the image processors of
//! Transformers.
//!
//! `scripts/golden/images/pictures.py` makes `pictures.json.gz`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Pixels;
use super::picture::turned;
use crate::{ImageFormat, ImagesConfig, Resampling, Resize};

/// Bytes written as hexadecimal digits.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Bytes(Vec<u8>);

impl TryFrom<String> for Bytes {
    type Error = std::num::ParseIntError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
        (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Deserialize)]
struct Golden {
    decoded: Vec<Decoded>,
    resized: Resized,
    whole: Vec<Whole>,
}

#[derive(Deserialize)]
struct Decoded {
    name: String,
    file: Bytes,
    height: usize,
    width: usize,
    rgb: Bytes,
    grey: Bytes,
}

#[derive(Deserialize)]
struct Resized {
    file: Bytes,
    size: usize,
    cases: Vec<ResizedCase>,
}

#[derive(Deserialize)]
struct ResizedCase {
    resize: Resize,
    resize_to: Vec<usize>,
    resample: Resampling,
    center_crop: bool,
    planes: Bytes,
}

#[derive(Deserialize)]
struct Whole {
    name: String,
    file: Bytes,
    taken: bool,
}

fn golden() -> Golden {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures.json.gz");
    let file = std::fs::File::open(path).expect("golden file");
    serde_json::from_reader(flate2::read::GzDecoder::new(file)).expect("JSON")
}

#[test]
fn pictures_are_turned_and_converted_as_pillow_does_it() {
    for Decoded { name, file, height, width, rgb, grey } in golden().decoded {
        let turned =
            |channels| turned(&file.0, Path::new(&name)).expect("a picture").in_channels(channels);
        for (channels, expected) in [(3, rgb), (1, grey)] {
            let raster = turned(channels);
            assert_eq!((raster.height, raster.width), (height, width), "{name}");
            assert!(raster.values == expected.0, "{name}, {channels} channels");
        }
    }
}

#[test]
fn resizing_and_cropping_give_the_pixels_of_transformers() {
    let Resized { file, size, cases } = golden().resized;
    for ResizedCase { resize, resize_to, resample, center_crop, planes } in cases {
        let settings = ImagesConfig {
            format: ImageFormat::Folders,
            size,
            channels: 3,
            resize,
            resize_to,
            resample,
            center_crop,
            ..ImagesConfig::default()
        };
        let pixels = Pixels::of_bytes(&file.0, &settings).expect("a picture");
        assert!(pixels.0 == planes.0, "{resize:?} {:?} {resample:?}", settings.resize_to);
    }
}

#[test]
fn a_jpeg_is_taken_or_refused_as_pillow_does_it() {
    let settings = ImagesConfig { channels: 3, ..ImagesConfig::default() };
    for Whole { name, file: Bytes(file), taken } in golden().whole {
        let result = Pixels::of_bytes(&file, &settings);
        assert_eq!(result.is_ok(), taken, "{name}: {result:?}");
        if !name.ends_with("whole") {
            continue;
        }
        for part in 0..file.len() {
            let error = Pixels::of_bytes(&file[..part], &settings).expect_err("cut off");
            let phrase = if part < 3 { "is no PNG or JPEG" } else { "is a JPEG that is cut off" };
            assert!(error.to_string().contains(phrase), "{name}, {part} bytes: {error}");
        }
    }
}

#[test]
fn a_picture_that_comes_out_in_another_size_is_refused() {
    let file = golden().resized.file.0;
    let resized = |resize, resize_to: &[usize]| {
        let resize_to = resize_to.to_vec();
        let settings =
            ImagesConfig { size: 16, channels: 3, resize, resize_to, ..ImagesConfig::default() };
        Pixels::of_bytes(&file, &settings).expect_err("refused").to_string()
    };
    let error = resized(Resize::ShortestEdge, &[16]);
    assert!(error.contains("25 x 16 pixels, but the model reads 16 x 16"), "{error}");
    let error = resized(Resize::None, &[]);
    assert!(error.contains("37 x 23 pixels"), "{error}");
}
