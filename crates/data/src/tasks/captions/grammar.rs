//! Makes captions of images from configured sentences with fields (placeholders). The label and the
//! pixels of an image decide which words of the fields are true of it.

use crate::{DataConfig, Error, ImagesConfig, Result};

/// Fields (placeholders) of a sentence, with the words that can replace them.
const FIELDS: [(&str, &[&str]); 2] =
    [("{brightness}", &["dark", "bright"]), ("{shape}", &["tall", "wide", "square"])];
const LABEL: &str = "{label}";

/// Pixels with at most this value are the background. Brighter pixels form the object.
const GROUND: u8 = 15;
/// Smallest mean value of the pixels of a bright object.
const BRIGHT: f64 = 128.0;
/// Smallest ratio of the longer side to the shorter side of a tall or wide object.
const LONGER: f64 = 1.25;

/// Refuses sentences with unknown fields, or without the label.
///
/// # Errors
///
/// [`Error::Config`], with the offending key, if a sentence is refused.
pub(super) fn validate(config: &DataConfig) -> Result<()> {
    let captions = &config.captions;
    for (key, sentences) in [
        ("data.captions.sentences", &captions.sentences),
        ("data.captions.prompts", &captions.prompts),
    ] {
        for sentence in sentences {
            let wrong = |message: String| Err(Error::Config { key, message });
            let mut rest = sentence.replace(LABEL, "");
            for (field, _) in FIELDS {
                rest = rest.replace(field, "");
            }
            if rest.contains(['{', '}']) {
                return wrong(format!(
                    "has {sentence:?}: only {LABEL}, {} and {} may stand in braces",
                    FIELDS[0].0, FIELDS[1].0
                ));
            }
            if !sentence.contains(LABEL) {
                return wrong(format!("has {sentence:?}, which does not contain {LABEL}"));
            }
            if sentence.contains(['\t', '\n']) {
                return wrong(format!("has {sentence:?}, which is not one line"));
            }
        }
    }
    Ok(())
}

/// Replaces the fields of `sentences`: `{label}` by the label, and the other fields by every
/// combination of their words. Each resulting sentence is listed once.
fn written(sentences: &[String], label: &str) -> Vec<String> {
    let mut captions: Vec<String> =
        sentences.iter().map(|sentence| sentence.replace(LABEL, label)).collect();
    for (field, words) in FIELDS {
        let with = |sentence: String| match sentence.contains(field) {
            true => words.iter().map(|word| sentence.replace(field, word)).collect(),
            false => vec![sentence],
        };
        captions = captions.into_iter().flat_map(with).collect();
    }
    let mut once = Vec::with_capacity(captions.len());
    for sentence in captions {
        if !once.contains(&sentence) {
            once.push(sentence);
        }
    }
    once
}

/// All captions that an image can have, in the order of the labels.
pub(super) fn all_captions(config: &DataConfig) -> Vec<String> {
    let captions_of = |label: &String| written(&config.captions.sentences, label);
    config.images.labels.iter().flat_map(captions_of).collect()
}

/// Prompts for each label, with all fields replaced. If the configuration has no prompts, its
/// sentences are used.
#[must_use]
pub fn prompts(config: &DataConfig) -> Vec<Vec<String>> {
    let captions = &config.captions;
    let sentences = match captions.prompts.as_slice() {
        [] => &captions.sentences,
        _ => &captions.prompts,
    };
    config.images.labels.iter().map(|label| written(sentences, label)).collect()
}

/// Captions that are true of an image, in the order of the sentences.
pub(super) fn captions_of(config: &DataConfig, label: &str, pixels: &[u8]) -> Vec<String> {
    let words = [brightness(pixels, &config.images), shape(pixels, &config.images)];
    let fill = |sentence: &String| {
        let with_label = sentence.replace(LABEL, label);
        FIELDS
            .iter()
            .zip(words)
            .fold(with_label, |text, ((field, known), word)| text.replace(field, known[word]))
    };
    config.captions.sentences.iter().map(fill).collect()
}

/// Value of the brightest channel of each pixel, row by row.
fn grey<'p>(pixels: &'p [u8], settings: &ImagesConfig) -> impl Iterator<Item = u8> + 'p {
    let plane = settings.size * settings.size;
    (0..plane).map(move |at| pixels.iter().skip(at).step_by(plane).copied().max().unwrap_or(0))
}

fn brightness(pixels: &[u8], settings: &ImagesConfig) -> usize {
    let thing = grey(pixels, settings).filter(|&value| value > GROUND);
    let (sum, count) =
        thing.fold((0.0, 0.0), |(sum, count), value| (sum + f64::from(value), count + 1.0));
    usize::from(count > 0.0 && sum / count >= BRIGHT)
}

fn shape(pixels: &[u8], settings: &ImagesConfig) -> usize {
    let size = settings.size;
    let (mut rows, mut columns) = ((size, 0), (size, 0));
    for (at, value) in grey(pixels, settings).enumerate() {
        if value > GROUND {
            let (row, column) = (at / size, at % size);
            rows = (rows.0.min(row), rows.1.max(row + 1));
            columns = (columns.0.min(column), columns.1.max(column + 1));
        }
    }
    let side = |(first, end): (usize, usize)| end.saturating_sub(first) as f64;
    let (height, width) = (side(rows), side(columns));
    match (height, width) {
        _ if height == 0.0 => 2,
        _ if height >= LONGER * width => 0,
        _ if width >= LONGER * height => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(size: usize, channels: usize) -> DataConfig {
        let mut config = DataConfig::default();
        config.images.size = size;
        config.images.channels = channels;
        config.images.labels = vec!["bag".to_owned(), "boot".to_owned()];
        config.captions.sentences =
            vec!["a {brightness} {label}".to_owned(), "one {shape} {label}".to_owned()];
        config
    }

    #[test]
    fn captions_say_what_the_pixels_have() {
        let grey = config(4, 1);
        let said = |pixels: &[u8]| captions_of(&grey, "bag", pixels).join(", ");
        let mut pixels = [0; 16];
        assert_eq!(said(&pixels), "a dark bag, one square bag");
        // The object is two columns of four pixels; the background does not count.
        (0..4).for_each(|row| pixels[4 * row + 1..4 * row + 3].fill(128));
        assert_eq!(said(&pixels), "a bright bag, one tall bag");
        pixels[0] = 15;
        assert_eq!(said(&pixels), "a bright bag, one tall bag");
        pixels[1] = 127;
        assert_eq!(said(&pixels), "a dark bag, one tall bag");
        pixels[..8].fill(200);
        pixels[8..].fill(3);
        assert_eq!(said(&pixels), "a bright bag, one wide bag");
        // For colours the brightest channel counts.
        let colours = config(2, 3);
        let pixels = [0, 0, 0, 0, 200, 0, 0, 0, 10, 0, 140, 0];
        assert_eq!(captions_of(&colours, "boot", &pixels), ["a bright boot", "one tall boot"]);
    }

    #[test]
    fn every_caption_is_known_beforehand() {
        let config = config(4, 1);
        let all = all_captions(&config);
        assert_eq!(all.len(), 2 * (2 + 3));
        for level in [0, 20, 255] {
            let said = captions_of(&config, "boot", &[level; 16]);
            assert!(said.iter().all(|caption| all.contains(caption)));
        }
        let asked = prompts(&config);
        assert_eq!(
            asked[1],
            ["a dark boot", "a bright boot", "one tall boot", "one wide boot", "one square boot"]
        );
        let mut with_prompts = config;
        with_prompts.captions.prompts = vec!["the {label}".to_owned()];
        assert_eq!(prompts(&with_prompts), [["the bag"], ["the boot"]]);
    }
}
