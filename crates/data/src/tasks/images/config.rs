//! Settings of images: the `[data.images]` table of a recipe (the TOML file with all settings of a
//! training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Resampling, Resize, Result};

/// Training data of models of images.
///
/// A split named `train` is, with `format = "idx"`, the files `{dir}/train-images-idx3-ubyte` and
/// `{dir}/train-labels-idx1-ubyte`, which may end in `.gz`; with `"cifar10"` and `"cifar100"` the
/// file `{dir}/train.bin`; with `"folders"` the folder `{dir}/train`, in which each class has a
/// folder of PNG and JPEG files; with `"table"` the file `{dir}/train.tsv`, whose paths are
/// relative to its folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImagesConfig {
    /// Storage format of the images.
    pub format: ImageFormat,
    /// The labels, in the order of the classes. Files have the numbers of these classes, from 0;
    /// folders have their names.
    #[schemars(extend("x-idle" = ["captions-in-table"]))]
    pub labels: Vec<String>,
    /// Height and width in pixels of the model's input. `resize` and `center_crop` bring pictures
    /// in folders and tables to this size.
    #[schemars(range(min = 1, max = 4096))]
    pub size: usize,
    /// Resizing of pictures in folders and tables.
    pub resize: Resize,
    /// Target size of resizing, in pixels: two numbers, or one for both; empty: `size`.
    #[schemars(extend("x-values" = "a list of at most two integers"))]
    pub resize_to: Vec<usize>,
    /// Filter of resizing, as in Pillow.
    #[schemars(extend("x-names" = "interpolation"))]
    pub resample: Resampling,
    /// Whether the middle of a resized picture is cropped, `size` by `size`; smaller pictures get a
    /// black margin.
    #[schemars(extend("x-names" = "do_center_crop crop_size"))]
    pub center_crop: bool,
    /// Channels: 1 for grey, 3 for red, green and blue.
    #[schemars(range(min = 1, max = 3))]
    pub channels: usize,
    /// The side in pixels of the squares that an image is cut into; each square is a token. It
    /// divides `size`.
    #[schemars(range(min = 1))]
    pub patch: usize,
    /// Number by which pixel values from 0 to 255 are multiplied before `mean` and `deviation` are
    /// applied: 1/255 unless the model was made with another number.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    #[schemars(extend("x-names" = "rescale_factor"))]
    pub rescale: f64,
    /// Mean that is subtracted from the values of each channel, after `rescale`; one number for
    /// each channel.
    #[schemars(extend("x-values" = "a list of numbers"))]
    #[schemars(extend("x-names" = "image_mean"))]
    pub mean: Vec<f64>,
    /// Standard deviation by which the values of each channel are divided, after `mean` has been
    /// subtracted; one number for each channel.
    #[schemars(extend("x-values" = "a list of numbers"))]
    #[schemars(extend("x-names" = "image_std"))]
    pub deviation: Vec<f64>,
    /// Width in pixels of a black margin around training images; a window of the original size is
    /// then cropped, at a random place that is drawn anew in each epoch. 0 takes images unchanged.
    pub crop_padding: usize,
    /// Whether training mirrors half of the images left to right; the half is drawn anew in each
    /// epoch.
    pub flip: bool,
    /// Share of the images in which training fills a rectangle with random values (random erasing,
    /// Zhong et al. 2020). Images and rectangles are drawn anew in each epoch.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub erase: f64,
    /// Number of training images that are drawn for validation, and not trained on; 0 draws none.
    pub hold_out: usize,
    /// Share of the training images that is used, drawn after the held-out images are removed. With
    /// the same `seed`, the images of a smaller share are also in a larger one.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0))]
    pub fraction: f64,
    /// Seed from which `hold_out` and `fraction` are drawn.
    #[schemars(extend("x-idle" = ["no-images-drawn"]))]
    pub seed: u64,
}

/// Storage format of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// Two files, of images and of labels, like MNIST and Fashion-MNIST.
    Idx,
    /// Files of labels and colours, like the binary version of CIFAR-10.
    Cifar10,
    /// Files as for `"cifar10"`, but with a coarse label before each label. The coarse label is
    /// ignored.
    Cifar100,
    /// A folder of PNG and JPEG files for each class.
    Folders,
    /// A table of captions: each line has the path of a PNG or JPEG file, a tab and a caption of
    /// it.
    Table,
}

impl Default for ImagesConfig {
    fn default() -> Self {
        Self {
            format: ImageFormat::Idx,
            labels: (0..10).map(|digit| digit.to_string()).collect(),
            size: 28,
            resize: Resize::Stretch,
            resize_to: Vec::new(),
            resample: Resampling::Bilinear,
            center_crop: false,
            rescale: 1.0 / 255.0,
            channels: 1,
            patch: 4,
            mean: vec![0.5],
            deviation: vec![0.5],
            crop_padding: 0,
            flip: false,
            erase: 0.0,
            hold_out: 0,
            fraction: 1.0,
            seed: 1,
        }
    }
}

/// Largest side of an image, in pixels.
const LARGEST: usize = 4096;

impl ImagesConfig {
    /// Number of tokens of an image: its patches, and one for the class.
    #[must_use]
    pub fn tokens(&self) -> usize {
        let side = self.size / self.patch.max(1);
        side * side + 1
    }

    /// Number of values of an image: one for each pixel and channel.
    #[must_use]
    pub fn values(&self) -> usize {
        self.channels * self.size * self.size
    }

    /// Refuses settings that are impossible whatever the task is.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], with the offending key, if a setting is impossible.
    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |key, message: String| Err(Error::Config { key, message });
        if !(1..=LARGEST).contains(&self.size) {
            return wrong("data.images.size", format!("must be from 1 to {LARGEST}"));
        }
        if !matches!(self.channels, 1 | 3) {
            return wrong("data.images.channels", "must be 1 or 3".to_owned());
        }
        if self.patch == 0 || !self.size.is_multiple_of(self.patch) {
            let message = format!("must divide data.images.size = {}", self.size);
            return wrong("data.images.patch", message);
        }
        self.validate_resizing()?;
        if !(self.rescale > 0.0 && self.rescale.is_finite()) {
            return wrong("data.images.rescale", "must be a positive number".to_owned());
        }
        let [is_mean, is_deviation] =
            [|x: &f64| x.is_finite(), |x: &f64| *x > 0.0 && x.is_finite()];
        if self.mean.len() != self.channels || !self.mean.iter().all(is_mean) {
            let message =
                format!("must be a list of {} number(s), one for each channel", self.channels);
            return wrong("data.images.mean", message);
        }
        if self.deviation.len() != self.channels || !self.deviation.iter().all(is_deviation) {
            let message = format!(
                "must be a list of {} positive number(s), one for each channel",
                self.channels
            );
            return wrong("data.images.deviation", message);
        }
        if self.crop_padding > self.size {
            let message = format!("must be at most data.images.size = {}", self.size);
            return wrong("data.images.crop_padding", message);
        }
        if !(0.0..=1.0).contains(&self.erase) {
            return wrong("data.images.erase", "must be from 0 to 1".to_owned());
        }
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            return wrong("data.images.fraction", "must be above 0 and at most 1".to_owned());
        }
        let labels = &self.labels;
        if labels.len() < 2 {
            return wrong("data.images.labels", "must list at least two labels".to_owned());
        }
        if (1..labels.len()).any(|at| labels[..at].contains(&labels[at])) {
            return wrong("data.images.labels", "lists a label twice".to_owned());
        }
        let is_name = |label: &String| {
            !label.is_empty() && !label.starts_with('.') && !label.contains(['/', '\\'])
        };
        if self.format == ImageFormat::Folders && !labels.iter().all(is_name) {
            return wrong("data.images.labels", "must be names of folders".to_owned());
        }
        Ok(())
    }

    fn validate_resizing(&self) -> Result<()> {
        let wrong = |key, message: String| Err(Error::Config { key, message });
        let to = &self.resize_to;
        if to.len() > 2 || !to.iter().all(|side| (1..=LARGEST).contains(side)) {
            let message = format!("must be at most two numbers from 1 to {LARGEST}");
            return wrong("data.images.resize_to", message);
        }
        match self.resize {
            Resize::None if !to.is_empty() => {
                wrong("data.images.resize_to", "must be empty with resize = \"none\"".to_owned())
            }
            Resize::ShortestEdge if matches!(to[..], [shorter, longer] if longer < shorter) => {
                let message = "must be the shorter edge, and then the limit of the longer edge";
                wrong("data.images.resize_to", message.to_owned())
            }
            Resize::Stretch if !self.center_crop && to.iter().any(|side| *side != self.size) => {
                let message = format!(
                    "must be data.images.size = {} unless data.images.center_crop = true",
                    self.size
                );
                wrong("data.images.resize_to", message)
            }
            _ => Ok(()),
        }
    }
}
