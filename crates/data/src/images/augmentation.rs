//! Augmentation of training images. The result depends only on the image, the settings, the seed
//! and the epoch.

use crate::ImagesConfig;
use crate::draws::{Draws, Epoch};

/// Purpose number of the random draws for augmentation (see [`crate::Draws::new`]).
const PURPOSE: u64 = 9;
/// Smallest and largest share of an image that an erased rectangle covers.
const ERASED: (f64, f64) = (0.02, 0.4);
/// Smallest ratio of height to width of an erased rectangle. The largest ratio is 1 / `FLATTEST`.
const FLATTEST: f64 = 0.3;
/// Number of attempts to draw an erased rectangle that fits into the image.
const RECTANGLES: u64 = 100;

/// Crops and flips an image at random (He et al. 2016, section 4.2), and may erase a rectangle of
/// it. The crop is a window of the image's size at a random place in the image with a black margin.
/// The flip is horizontal, with probability 1/2. `settings` determine which of these steps are
/// done.
///
/// `pixels` are the channels of one image, each of `settings.size` x `settings.size` values.
/// `image` is the number of the image, which the random draws depend on.
///
/// # Panics
///
/// If `pixels` has another length. All readers of images check it.
pub(crate) fn augment(
    pixels: &mut Vec<u8>,
    settings: &ImagesConfig,
    (epoch, image): (Epoch, usize),
) {
    assert_eq!(pixels.len(), settings.values(), "the values of an image");
    let draws = epoch.draws(PURPOSE).within(image as u64, 0);
    if settings.crop_padding > 0 || settings.flip {
        cut_out(pixels, settings, draws);
    }
    if draws.unit(3) < settings.erase {
        erase(pixels, settings.size, draws.within(4, 0));
    }
}

/// Crops a window of the image with a margin, and perhaps flips it.
fn cut_out(pixels: &mut Vec<u8>, settings: &ImagesConfig, draws: Draws) {
    let (size, margin) = (settings.size, settings.crop_padding);
    // Offsets to the right and down; negative values mean left and up.
    let shift = |index: u64| {
        let places = 2 * margin + 1;
        (draws.unit(index) * places as f64) as isize - margin as isize
    };
    let (right, down) = (shift(0), shift(1));
    let turned = settings.flip && draws.unit(2) < 0.5;
    let inside = |at: isize| usize::try_from(at).ok().filter(|&at| at < size);
    let mut varied = vec![0; pixels.len()];
    for (from, to) in pixels.chunks_exact(size * size).zip(varied.chunks_exact_mut(size * size)) {
        for row in 0..size {
            let Some(from_row) = inside(row as isize + down) else { continue };
            for column in 0..size {
                let at = if turned { size - 1 - column } else { column };
                if let Some(from_column) = inside(at as isize + right) {
                    to[row * size + column] = from[from_row * size + from_column];
                }
            }
        }
    }
    *pixels = varied;
}

/// Gives each pixel of a rectangle, in each channel, a random value (Zhong et al. 2020, "Random
/// Erasing Data Augmentation", algorithm 1 and its constants).
fn erase(pixels: &mut [u8], size: usize, draws: Draws) {
    let between =
        |index: u64, (least, most): (f64, f64)| least + draws.unit(index) * (most - least);
    let fitting = (0..RECTANGLES).find_map(|attempt| {
        let first = 4 * attempt;
        let area = between(first, ERASED) * (size * size) as f64;
        let ratio = between(first + 1, (FLATTEST, 1.0 / FLATTEST));
        let (height, width) = ((area * ratio).sqrt() as usize, (area / ratio).sqrt() as usize);
        let place = |index, side| (draws.unit(index) * (size - side + 1) as f64) as usize;
        (height <= size && width <= size)
            .then(|| (place(first + 2, height), place(first + 3, width), height, width))
    });
    let Some((top, left, height, width)) = fitting else { return };
    let mut values = (4 * RECTANGLES..).map(|index| draws.bits(index) as u8);
    for channel in pixels.chunks_exact_mut(size * size) {
        for row in channel.chunks_exact_mut(size).skip(top).take(height) {
            row[left..left + width].iter_mut().zip(&mut values).for_each(|(to, value)| *to = value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(settings: &ImagesConfig, seed: u64, number: u64, image: usize) -> Vec<u8> {
        let mut pixels: Vec<u8> = (1..=32).collect();
        augment(&mut pixels, settings, (Epoch::new(seed, number), image));
        pixels
    }

    fn settings(crop_padding: usize, flip: bool) -> ImagesConfig {
        ImagesConfig { size: 4, channels: 2, crop_padding, flip, ..ImagesConfig::default() }
    }

    #[test]
    fn each_image_is_varied_by_seed_and_epoch() {
        let both = settings(1, true);
        let base = varied(&both, 1, 2, 3);
        assert_eq!(base, varied(&both, 1, 2, 3));
        let others = (0..500).map(|image| varied(&both, 1, 2, image));
        let mut all: Vec<_> = others.collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 18, "nine places, turned or not");
        assert!((0..9).any(|seed| varied(&both, seed, 2, 3) != base));
        assert!((0..9).any(|epoch| varied(&both, 1, epoch, 3) != base));
    }

    #[test]
    fn what_is_cut_out_is_a_window_of_each_channel() {
        let whole: Vec<u8> = (1..=32).collect();
        assert_eq!(varied(&settings(0, false), 1, 2, 3), whole);
        for image in 0..30 {
            let window = varied(&settings(1, false), 1, 2, image);
            // Rows of the second channel are rows of the first one plus 16; black stays black.
            for (first, second) in window[..16].iter().zip(&window[16..]) {
                assert_eq!(if *first == 0 { 0 } else { first + 16 }, *second);
            }
            let turned = varied(&settings(0, true), 1, 2, image);
            let round: Vec<u8> =
                whole.chunks(4).flat_map(|row| row.iter().rev().copied()).collect();
            assert!(turned == whole || turned == round);
        }
    }

    #[test]
    fn what_is_erased_is_a_rectangle_of_a_share_of_the_images() {
        let config = ImagesConfig { size: 20, erase: 0.3, ..ImagesConfig::default() };
        let mut erased = Vec::new();
        for image in 0..2000 {
            let mut pixels = vec![0; 400];
            augment(&mut pixels, &config, (Epoch::new(1, 2), image));
            let places: Vec<_> = (0..400).filter(|&at| pixels[at] != 0).collect();
            if places.is_empty() {
                continue;
            }
            let columns: Vec<_> = places.iter().map(|at| at % 20).collect();
            let span = |low: usize, high: usize| high - low + 1;
            let height = span(places[0] / 20, places[places.len() - 1] / 20);
            let width = span(*columns.iter().min().unwrap(), *columns.iter().max().unwrap());
            assert!(height * width <= 160, "{height} x {width}");
            // A random value is 0 in one of 256 cases, so a few erased pixels do not differ.
            assert!(places.len() * 20 >= 17 * height * width, "{height} x {width}: {places:?}");
            erased.push(height * width);
        }
        let share = erased.len() as f64 / 2000.0;
        assert!((0.27..0.33).contains(&share), "{share}");
        let mean = erased.iter().sum::<usize>() as f64 / erased.len() as f64 / 400.0;
        assert!((0.15..0.23).contains(&mean), "{mean}");
        assert!(erased.iter().any(|&area| area < 20) && erased.iter().any(|&area| area > 120));
    }
}
