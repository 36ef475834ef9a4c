//! Images as training varies them: each a function of (seed, epoch, image).

use crate::ImagesConfig;
use crate::draws::Draws;

/// The key of these draws.
const PURPOSE: u64 = 9;

/// Cuts a window of the image's own size out of the image with a black margin, and turns it round in
/// half of the cases (He et al. 2016, section 4.2).
///
/// # Panics
///
/// If `pixels` are not those of an image of `settings`.
pub(crate) fn augment(
    pixels: &mut Vec<u8>,
    settings: &ImagesConfig,
    (seed, epoch, image): (u64, u64, usize),
) {
    let (size, margin) = (settings.size, settings.crop_padding);
    if margin == 0 && !settings.flip {
        return;
    }
    let draws = Draws::new(seed, epoch, PURPOSE).within(image as u64, 0);
    // To the right and down; below 0 to the left and up.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn varied(settings: &ImagesConfig, seed: u64, epoch: u64, image: usize) -> Vec<u8> {
        let mut pixels: Vec<u8> = (1..=32).collect();
        augment(&mut pixels, settings, (seed, epoch, image));
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
            // A row of the second channel is that of the first with 16 added, black kept.
            for (first, second) in window[..16].iter().zip(&window[16..]) {
                assert_eq!(if *first == 0 { 0 } else { first + 16 }, *second);
            }
            let turned = varied(&settings(0, true), 1, 2, image);
            let round: Vec<u8> =
                whole.chunks(4).flat_map(|row| row.iter().rev().copied()).collect();
            assert!(turned == whole || turned == round);
        }
    }
}
