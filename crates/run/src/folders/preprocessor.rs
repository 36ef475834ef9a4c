//! Preparation of images for a model: `preprocessor_config.json`, or the key `image_processor` of
//! `processor_config.json`, converted between a folder of the library Transformers and the section
//! `[data.images]` of a recipe (Taper's configuration).
//!
//! The defaults of omitted values depend on the image processor. If a folder has neither file, the
//! mean and the deviation are 0.5, and images are resized to the size that the model reads. Images
//! are resized in the same way as by those image processors of Transformers that use Pillow. Image
//! processors that use torchvision round differently.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use taper_data::{ImagesConfig, Resampling, Resize};

use super::json::{read_keys, write_json};

/// Name of the file with the settings.
const PREPROCESSOR: &str = "preprocessor_config.json";
/// Name of another file that can have the settings, and the key in this file that has them.
const PROCESSOR: (&str, &str) = ("processor_config.json", "image_processor");

/// Keys for changes of images that are not supported; they must be absent, null or false.
const UNKNOWN_HERE: [&str; 6] =
    ["max_size", "crop_pct", "rescale_offset", "offset", "use_square_size", "size_divisor"];
/// Keys that begin with `do_` and are allowed, because they do not change images or are supported.
const KNOWN_STEPS: [&str; 6] = [
    "do_resize",
    "do_center_crop",
    "do_rescale",
    "do_normalize",
    "do_convert_rgb",
    "do_reduce_labels",
];

/// Defaults of an image processor in Transformers.
struct Defaults {
    /// Name of the processor without the ending `ImageProcessor` or `FeatureExtractor`.
    name: &'static str,
    resample: Resampling,
    /// True if a single number as `size` means both height and width; false if it means the shorter
    /// edge.
    is_square: bool,
    /// Size in pixels to which images are resized, and size to which they are then cropped. `None`
    /// if they are resized to the size that the model reads, and are not cropped.
    sizes: Option<(usize, usize)>,
    mean: [f64; 3],
    deviation: [f64; 3],
}

const HALF: [f64; 3] = [0.5; 3];
const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_DEVIATION: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// Supported image processors with their defaults.
static PROCESSORS: [Defaults; 6] = [
    Defaults {
        name: "ViT",
        resample: Resampling::Bilinear,
        is_square: true,
        sizes: None,
        mean: HALF,
        deviation: HALF,
    },
    Defaults {
        name: "DeiT",
        resample: Resampling::Bicubic,
        is_square: true,
        sizes: Some((256, 224)),
        mean: HALF,
        deviation: HALF,
    },
    Defaults {
        name: "Beit",
        resample: Resampling::Bicubic,
        is_square: true,
        sizes: None,
        mean: HALF,
        deviation: HALF,
    },
    Defaults {
        name: "Siglip",
        resample: Resampling::Bicubic,
        is_square: true,
        sizes: None,
        mean: HALF,
        deviation: HALF,
    },
    Defaults {
        name: "CLIP",
        resample: Resampling::Bicubic,
        is_square: false,
        sizes: Some((224, 224)),
        mean: CLIP_MEAN,
        deviation: CLIP_DEVIATION,
    },
    Defaults {
        name: "Bit",
        resample: Resampling::Bicubic,
        is_square: false,
        sizes: Some((224, 224)),
        mean: CLIP_MEAN,
        deviation: CLIP_DEVIATION,
    },
];

/// Settings of an image processor in a folder.
pub(super) struct Preprocessor {
    /// Path of the file with the settings, for errors.
    path: PathBuf,
    keys: Value,
}

impl Preprocessor {
    /// Reads the settings of the folder `source`.
    ///
    /// # Errors
    /// When the file is damaged.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let (file, key) = PROCESSOR;
        let path = source.join(file);
        if path.exists() {
            let keys = read_keys(&path)?[key].take();
            if keys.is_object() {
                return Ok(Self { path, keys });
            }
        }
        let path = source.join(PREPROCESSOR);
        let keys = if path.exists() { read_keys(&path)? } else { json!({}) };
        if !keys.is_object() {
            bail!("{}: does not describe an image processor", path.display());
        }
        Ok(Self { path, keys })
    }

    /// Sets `images` to these settings. The size and the channels of `images` must already be set.
    ///
    /// # Errors
    /// When a setting is not supported; the message names the key.
    pub(super) fn describe(&self, images: &mut ImagesConfig) -> Result<()> {
        self.put_into(images).with_context(|| self.path.display().to_string())
    }

    fn put_into(&self, images: &mut ImagesConfig) -> Result<()> {
        let defaults = self.defaults()?;
        self.refuse_unknown()?;
        let channels = images.channels;
        if channels == 1 && self.flag("do_convert_rgb", false)? {
            bail!("do_convert_rgb is true, but the model's num_channels is 1");
        }
        images.center_crop = self.flag("do_center_crop", defaults.sizes.is_some())?;
        if images.center_crop {
            self.require_crop(defaults, images.size)?;
        }
        images.resample = self.resample(defaults)?;
        (images.resize, images.resize_to) = match self.flag("do_resize", true)? {
            true => self.resize(defaults, images)?,
            false => (Resize::None, Vec::new()),
        };
        images.rescale = match self.flag("do_rescale", true)? {
            true => self.number("rescale_factor")?.unwrap_or(1.0 / 255.0),
            false => 1.0,
        };
        let (mean, deviation) = match self.flag("do_normalize", true)? {
            true => (
                self.numbers("image_mean")?.unwrap_or(defaults.mean.into()),
                self.numbers("image_std")?.unwrap_or(defaults.deviation.into()),
            ),
            false => (vec![0.0; channels], vec![1.0; channels]),
        };
        images.mean = for_channels(mean, channels);
        images.deviation = for_channels(deviation, channels);
        Ok(())
    }

    /// Defaults of the image processor that the settings name, or of ViT's if they name none.
    fn defaults(&self) -> Result<&'static Defaults> {
        let named = ["image_processor_type", "feature_extractor_type"]
            .iter()
            .find_map(|key| self.keys[*key].as_str().map(|name| (*key, name)));
        let Some((key, name)) = named else { return Ok(&PROCESSORS[0]) };
        let family = name
            .split_once("ImageProcessor")
            .or_else(|| name.split_once("FeatureExtractor"))
            .map_or(name, |(family, _)| family);
        PROCESSORS.iter().find(|known| known.name == family).with_context(|| {
            let known: Vec<&str> = PROCESSORS.iter().map(|known| known.name).collect();
            format!(
                "{key} is {name:?}, which is not known here; the known ones are {}",
                known.join(", ")
            )
        })
    }

    /// Refuses settings that switch on steps which are not supported.
    fn refuse_unknown(&self) -> Result<()> {
        for (key, value) in self.keys.as_object().into_iter().flatten() {
            let is_off = matches!(value, Value::Null | Value::Bool(false));
            let is_step = key.starts_with("do_") && !KNOWN_STEPS.contains(&key.as_str());
            if !is_off && (is_step || UNKNOWN_HERE.contains(&key.as_str())) {
                bail!("{key} is {value}, which is not done here");
            }
        }
        Ok(())
    }

    /// Refuses a crop size other than `size` x `size` pixels, the size of the images that the model
    /// reads.
    fn require_crop(&self, defaults: &Defaults, size: usize) -> Result<()> {
        let given = &self.keys["crop_size"];
        let crop = match (given, defaults.sizes) {
            (Value::Null, Some((_, crop))) => Some([crop; 2]),
            (Value::Null, None) => bail!("do_center_crop is true, but there is no crop_size"),
            (given, _) => both(given).or_else(|| whole(given).map(|side| [side; 2])),
        };
        match crop {
            Some(crop) if crop == [size; 2] => Ok(()),
            Some([height, width]) => {
                bail!("crop_size is {height} x {width}, but the model's image_size is {size}")
            }
            None => bail!("crop_size is {given}: expected a height and a width"),
        }
    }

    fn resample(&self, defaults: &Defaults) -> Result<Resampling> {
        let given = &self.keys["resample"];
        if given.is_null() {
            return Ok(defaults.resample);
        }
        let number = given.as_u64().and_then(|number| usize::try_from(number).ok());
        number
            .and_then(|number| Resampling::ALL.get(number).copied())
            .with_context(|| format!("resample is {given}: expected a filter of Pillow, 0 to 5"))
    }

    /// Method of resizing, and the sizes in pixels that it needs, according to the key `size`.
    fn resize(&self, defaults: &Defaults, images: &ImagesConfig) -> Result<(Resize, Vec<usize>)> {
        let size = &self.keys["size"];
        let edge = |name: &str| whole(&size[name]);
        let is_square = self.flag("default_to_square", defaults.is_square)?;
        let single = match (size, defaults.sizes) {
            (Value::Null, sizes) => Some(sizes.map_or(images.size, |(size, _)| size)),
            _ => whole(size),
        };
        let (resize, mut to) = match (single, both(size), edge("shortest_edge")) {
            (Some(side), ..) if is_square => (Resize::Stretch, vec![side; 2]),
            (Some(side), ..) => (Resize::ShortestEdge, vec![side]),
            (None, Some(both), _) => (Resize::Stretch, both.into()),
            (None, None, Some(shortest)) => {
                let longest = edge("longest_edge");
                (Resize::ShortestEdge, [Some(shortest), longest].into_iter().flatten().collect())
            }
            _ => match (edge("max_height"), edge("max_width")) {
                (Some(height), Some(width)) => (Resize::Fit, vec![height, width]),
                _ => bail!(
                    "size is {size}: expected height and width, shortest_edge, or max_height and \
                     max_width"
                ),
            },
        };
        if resize == Resize::Stretch && !images.center_crop && to != [images.size; 2] {
            bail!(
                "size is {} x {} and do_center_crop is off, but the model's image_size is {}",
                to[0],
                to[1],
                images.size
            );
        }
        if resize == Resize::Stretch && to == [images.size; 2] {
            to.clear();
        }
        Ok((resize, to))
    }

    /// Value of the flag `key`. As in Transformers, an omitted key means `default`, and null means
    /// `false`.
    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.keys.get(key) {
            None => Ok(default),
            Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => bail!("{key} is {other}: expected true or false"),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>> {
        let given = &self.keys[key];
        match given.as_f64() {
            None if !given.is_null() => bail!("{key} is {given}: expected a number"),
            number => Ok(number),
        }
    }

    /// Value of the key `key`: a number for each channel, or a single number for all channels.
    /// `None` if the key is absent.
    fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Value::Array(list) = &self.keys[key] else {
            return Ok(self.number(key)?.map(|number| vec![number]));
        };
        let numbers: Option<Vec<f64>> = list.iter().map(Value::as_f64).collect();
        numbers.map(Some).with_context(|| format!("{key} is not a list of numbers"))
    }
}

/// Number of pixels in `value`; `None` if it is not a positive integer.
fn whole(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0)
}

/// Height and width in pixels, from an object with these keys or from a list of the two; `None` if
/// `size` is neither.
fn both(size: &Value) -> Option<[usize; 2]> {
    match size {
        Value::Array(list) if list.len() == 2 => Some([whole(&list[0])?, whole(&list[1])?]),
        _ => Some([whole(&size["height"])?, whole(&size["width"])?]),
    }
}

/// One number for each of `channels` channels. If all `numbers` are equal, the result has this
/// number for each channel; otherwise, it is `numbers`.
fn for_channels(numbers: Vec<f64>, channels: usize) -> Vec<f64> {
    let alike = numbers.windows(2).all(|pair| pair[0] == pair[1]);
    match numbers.first() {
        Some(&first) if alike => vec![first; channels],
        _ => numbers,
    }
}

/// Writes the settings in `images` as a file for an image processor into `folder`.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write_preprocessor(images: &ImagesConfig, folder: &Path) -> Result<()> {
    write_json(&folder.join(PREPROCESSOR), &settings(images))
}

fn settings(images: &ImagesConfig) -> Value {
    let first = images.resize_to.first().copied().unwrap_or(images.size);
    let second = images.resize_to.get(1).copied();
    let square = second.unwrap_or(first);
    let size = match (images.resize, second) {
        (Resize::Stretch | Resize::None, _) => json!({ "height": first, "width": square }),
        (Resize::ShortestEdge, None) => json!({ "shortest_edge": first }),
        (Resize::ShortestEdge, Some(longest)) => {
            json!({ "shortest_edge": first, "longest_edge": longest })
        }
        (Resize::Fit, _) => json!({ "max_height": first, "max_width": square }),
    };
    // Each of these image processors also has the needed steps in older versions of Transformers.
    let processor = match (images.resize, images.center_crop) {
        (Resize::ShortestEdge, _) => "CLIPImageProcessor",
        (Resize::Stretch, true) => "DeiTImageProcessor",
        _ => "ViTImageProcessor",
    };
    let mut settings = json!({
        "image_processor_type": processor,
        "do_center_crop": images.center_crop,
        "do_normalize": images.mean.iter().any(|mean| *mean != 0.0)
            || images.deviation.iter().any(|deviation| *deviation != 1.0),
        "do_rescale": images.rescale != 1.0,
        "do_resize": images.resize != Resize::None,
        "image_mean": images.mean,
        "image_std": images.deviation,
        "resample": Resampling::ALL.iter().position(|known| *known == images.resample),
        "rescale_factor": if images.rescale == 1.0 { 1.0 / 255.0 } else { images.rescale },
        "size": size,
    });
    if images.center_crop {
        settings["crop_size"] = json!({ "height": images.size, "width": images.size });
    }
    if images.channels == 3 {
        settings["do_convert_rgb"] = json!(true);
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(keys: Value) -> Result<ImagesConfig> {
        let mut images = ImagesConfig { size: 32, channels: 3, ..ImagesConfig::default() };
        Preprocessor { path: "p.json".into(), keys }.describe(&mut images)?;
        Ok(images)
    }

    #[test]
    fn settings_survive_a_round_trip() {
        let crop = json!({ "height": 32, "width": 32 });
        for keys in [
            json!({ "size": crop, "resample": 3 }),
            json!({ "size": 32, "resample": 0, "do_normalize": false }),
            json!({ "size": { "shortest_edge": 40 }, "do_center_crop": true, "crop_size": crop }),
            json!({ "size": { "shortest_edge": 40, "longest_edge": 50 }, "resample": 5 }),
            json!({ "size": { "max_height": 32, "max_width": 40 }, "resample": 1 }),
            json!({ "size": [40, 48], "do_center_crop": true, "crop_size": 32, "resample": 4 }),
            json!({ "do_resize": false, "do_center_crop": true, "crop_size": 32 }),
            json!({ "do_rescale": false, "image_mean": [127.5, 127.0, 1.0], "image_std": 64 }),
            json!({ "rescale_factor": 0.5, "image_mean": 0.25 }),
            json!({ "image_processor_type": "CLIPImageProcessor", "size": 36, "crop_size": 32 }),
            json!({ "feature_extractor_type": "DeiTFeatureExtractor", "size": 36, "crop_size": 32 }),
        ] {
            let images = described(keys.clone()).expect("known");
            let written = settings(&images);
            assert_eq!(described(written.clone()).expect("known"), images, "{keys} {written}");
            for key in ["resample", "rescale_factor", "do_rescale", "do_resize", "do_normalize"] {
                if !keys[key].is_null() {
                    assert_eq!(written[key], keys[key], "{keys}");
                }
            }
        }
    }

    #[test]
    fn a_step_that_is_null_is_not_taken() {
        let images = described(json!({ "do_resize": null, "do_rescale": null })).expect("known");
        assert_eq!((images.resize, images.rescale), (Resize::None, 1.0));
        let images = described(json!({ "do_normalize": null, "do_center_crop": null }));
        let images = images.expect("known");
        assert_eq!((images.mean, images.deviation), (vec![0.0; 3], vec![1.0; 3]));
        assert!(!images.center_crop);
    }

    #[test]
    fn what_is_not_done_here_is_refused_by_its_name() {
        for (keys, phrase) in [
            (json!({ "resample": 6 }), "resample is 6"),
            (json!({ "size": { "longest_edge": 32 } }), "size is {\"longest_edge\":32}"),
            (json!({ "size": 40 }), "size is 40 x 40 and do_center_crop is off"),
            (json!({ "size": 40, "do_center_crop": true }), "no crop_size"),
            (
                json!({ "size": 40, "do_center_crop": true, "crop_size": 36 }),
                "crop_size is 36 x 36",
            ),
            (json!({ "do_pad": true }), "do_pad is true"),
            (json!({ "do_flip_channel_order": true }), "do_flip_channel_order is true"),
            (json!({ "crop_pct": 0.875 }), "crop_pct is 0.875"),
            (json!({ "do_resize": "yes" }), "do_resize is \"yes\""),
            (json!({ "image_processor_type": "LevitImageProcessor" }), "\"LevitImageProcessor\""),
        ] {
            let error = format!("{:#}", described(keys).expect_err("refused"));
            assert!(error.starts_with("p.json: ") && error.contains(phrase), "{phrase}: {error}");
        }
    }
}
