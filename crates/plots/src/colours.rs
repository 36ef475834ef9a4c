//! Colours of figures: one name for each use, with a value for light and one for dark pages.
//!
//! Drawings are made in the light values. Each of these belongs to one name only, so that they can
//! be replaced in a finished drawing, as text, by CSS variables or by the dark values.

use plotters::style::RGBColor;

/// Theme of the page that a picture is for.
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
    /// Name of its CSS variable.
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

    /// Its light value, which drawings are made with.
    pub(crate) const fn drawn(&self) -> RGBColor {
        self.light
    }

    /// Its value in a theme, as `#RRGGBB`.
    pub(crate) fn hex(&self, theme: Theme) -> String {
        let RGBColor(red, green, blue) = match theme {
            Theme::Light => self.light,
            Theme::Dark => self.dark,
        };
        format!("#{red:02X}{green:02X}{blue:02X}")
    }
}

/// Background of a picture; drawings themselves are transparent.
pub(crate) const GROUND: Colour =
    Colour::new("--plot-ground", [0xFF, 0xFF, 0xFE], [0x14, 0x17, 0x1C]);
/// Titles and labels.
pub(crate) const INK: Colour = Colour::new("--plot-ink", [0x1B, 0x1F, 0x24], [0xE6, 0xE9, 0xED]);
/// Axes and their numbers.
pub(crate) const AXIS: Colour = Colour::new("--plot-axis", [0x57, 0x60, 0x6A], [0xA3, 0xAB, 0xB6]);
/// Grid lines.
pub(crate) const GRID: Colour = Colour::new("--plot-grid", [0xDF, 0xE3, 0xE8], [0x2D, 0x33, 0x3B]);

/// Colours of series. Each has a contrast of at least 4.5 with the background.
pub(crate) const SERIES: [Colour; 8] = [
    Colour::new("--plot-series-1", [0x1B, 0x5F, 0xAA], [0x6C, 0xB0, 0xF5]),
    Colour::new("--plot-series-2", [0xB8, 0x4A, 0x0A], [0xF2, 0x9A, 0x5B]),
    Colour::new("--plot-series-3", [0x2A, 0x76, 0x3B], [0x6F, 0xCB, 0x84]),
    Colour::new("--plot-series-4", [0x7A, 0x3E, 0x9E], [0xC6, 0x98, 0xEA]),
    Colour::new("--plot-series-5", [0xB3, 0x25, 0x1D], [0xF5, 0x8A, 0x83]),
    Colour::new("--plot-series-6", [0x0E, 0x73, 0x7D], [0x5F, 0xC8, 0xD2]),
    Colour::new("--plot-series-7", [0x75, 0x58, 0x0F], [0xDD, 0xBC, 0x5E]),
    Colour::new("--plot-series-8", [0xB0, 0x2E, 0x7A], [0xF2, 0x90, 0xC4]),
];

/// Colour of the series with this number.
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

    /// Relative luminance (WCAG 2.2).
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

    #[test]
    fn a_drawn_colour_stands_for_one_name() {
        let mut drawn: Vec<String> = all().map(|colour| colour.hex(Theme::Light)).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), all().count());
    }
}
