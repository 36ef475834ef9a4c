//! Colours of figures. Each use has a name, with one value for light pages and one for dark pages.
//!
//! Drawings are made with the light values. Each light value belongs to only one name. It can
//! therefore be found in the text of a finished drawing, and replaced by the CSS variable or by the
//! dark value of the same colour.

use plotters::style::RGBColor;

/// Theme of the page on which a picture is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Theme {
    /// Dark on white.
    #[default]
    Light,
    /// Light on black.
    Dark,
}

/// A colour of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Colour {
    /// Name of the CSS variable.
    pub(crate) variable: &'static str,
    light: RGBColor,
    dark: RGBColor,
}

impl Colour {
    const fn new(variable: &'static str, light: [u8; 3], dark: [u8; 3]) -> Self {
        let [light, dark] =
            [RGBColor(light[0], light[1], light[2]), RGBColor(dark[0], dark[1], dark[2])];
        Self { variable, light, dark }
    }

    /// Returns the light value, which drawings use.
    pub(crate) const fn drawn(&self) -> RGBColor {
        self.light
    }

    /// Value in a theme, as `#RRGGBB`.
    pub(crate) fn hex(&self, theme: Theme) -> String {
        let RGBColor(red, green, blue) = match theme {
            Theme::Light => self.light,
            Theme::Dark => self.dark,
        };
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

/// Background of a picture. Drawings themselves have none: they are transparent.
pub(crate) const GROUND: Colour =
    Colour::new("--plot-ground", [0xFF, 0xFF, 0xFE], [0x14, 0x17, 0x1C]);
/// Titles and labels.
pub(crate) const INK: Colour = Colour::new("--plot-ink", [0x1B, 0x1F, 0x24], [0xE6, 0xE9, 0xED]);
/// Axes and their numbers.
pub(crate) const AXIS: Colour = Colour::new("--plot-axis", [0x57, 0x60, 0x6A], [0xA3, 0xAB, 0xB6]);
/// Grid lines.
pub(crate) const GRID: Colour = Colour::new("--plot-grid", [0xDF, 0xE3, 0xE8], [0x2D, 0x33, 0x3B]);

/// Colours of series. Each has a contrast of at least 4.5 with the background. The first four are
/// easy to distinguish even for readers whose eyes lack one of the three kinds of cones. The other
/// colours are closer to each other.
pub(crate) const SERIES: [Colour; 8] = [
    Colour::new("--plot-series-1", [0x0A, 0x66, 0xBF], [0x5C, 0xA2, 0xFF]),
    Colour::new("--plot-series-2", [0xA6, 0x5D, 0x12], [0xEF, 0xAA, 0x45]),
    Colour::new("--plot-series-3", [0x22, 0x59, 0x50], [0x2F, 0xE0, 0xC4]),
    Colour::new("--plot-series-4", [0xC4, 0x00, 0x8E], [0xE3, 0x71, 0x9F]),
    Colour::new("--plot-series-5", [0x46, 0x68, 0x7F], [0xA9, 0xCB, 0xEB]),
    Colour::new("--plot-series-6", [0x88, 0x0B, 0x02], [0xFC, 0x53, 0x52]),
    Colour::new("--plot-series-7", [0x55, 0x65, 0x2F], [0xF7, 0xD4, 0x9B]),
    Colour::new("--plot-series-8", [0x61, 0x2A, 0x9A], [0xA6, 0x7F, 0xD6]),
];

/// Colour of the series with the index `number`.
pub(crate) const fn series_colour(number: usize) -> Colour {
    SERIES[number % SERIES.len()]
}

/// Every colour.
pub(crate) fn all() -> impl Iterator<Item = Colour> {
    [GROUND, INK, AXIS, GRID].into_iter().chain(SERIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of a colour, as WCAG 2.2 defines it.
    fn luminance(hex: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn what_is_read_stands_out_from_its_ground() {
        for theme in [Theme::Light, Theme::Dark] {
            let ground = luminance(&GROUND.hex(theme));
            for colour in SERIES.into_iter().chain([INK, AXIS]) {
                let ours = luminance(&colour.hex(theme));
                let contrast = (ours.max(ground) + 0.05) / (ours.min(ground) + 0.05);
                assert!(contrast >= 4.5, "{} has a contrast of {contrast}", colour.variable);
            }
        }
    }

    /// Returns the position of the colour `hex` in the colour space Oklab (Björn Ottosson, 2020).
    /// Before that, the colour is multiplied, as linear RGB, by the matrix `cones`. This matrix
    /// simulates eyes that lack one kind of cones (Machado et al. 2009).
    fn seen(hex: &str, cones: [[f64; 3]; 3]) -> [f64; 3] {
        let linear = [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        });
        let times = |rows: [[f64; 3]; 3], with: [f64; 3]| {
            rows.map(|row| row.iter().zip(with).map(|(one, other)| one * other).sum::<f64>())
        };
        let rgb = times(cones, linear).map(|one| one.clamp(0.0, 1.0));
        let cones = [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ];
        let lab = [
            [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
        ];
        times(lab, times(cones, rgb).map(f64::cbrt))
    }

    #[test]
    fn series_stay_apart_for_eyes_with_two_kinds_of_cones() {
        let eyes = [
            [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ];
        for theme in [Theme::Light, Theme::Dark] {
            for (cones, eye) in eyes.into_iter().enumerate() {
                let places = SERIES.map(|colour| seen(&colour.hex(theme), eye));
                for right in 0..places.len() {
                    for left in 0..right {
                        let square = |at: usize| (places[left][at] - places[right][at]).powi(2);
                        let apart = (0..3).map(square).sum::<f64>().sqrt();
                        let least = if right < 4 { 0.085 } else { 0.035 };
                        assert!(apart >= least, "{left} and {right}, eye {cones}: {apart}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_drawn_colour_stands_for_one_name() {
        let mut drawn: Vec<String> = all().map(|colour| colour.hex(Theme::Light)).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), all().count());
    }
}
