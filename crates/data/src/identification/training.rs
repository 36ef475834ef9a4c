//! Trains a language identifier by stochastic gradient descent on short pieces of lines of text.

use std::collections::BTreeMap;

use super::features::Features;
use super::nibbles::{LARGEST, Packed, nearest};
use super::{LanguageIdentifier, WIDTH, dot, softmax};
use crate::{Draws, Error, Result};

/// Purpose number of the random draws of this training (see [`Draws::new`]).
const PURPOSE: u64 = 13;

/// Smallest and largest number of characters of a piece. Lengths are drawn uniformly between them.
const PIECE: (f64, f64) = (12.0, 30.0);

/// A language with n lines gets a share of the pieces that is proportional to n raised to this
/// exponent.
const EVENNESS: f64 = 0.1;

/// In each dimension of the vectors, the scale is chosen so that this share of the values is within
/// the range of the 4-bit integers. Larger values are clipped.
const IN_RANGE: f64 = 0.98;

/// Number of pieces after which `Trainee::scales` are measured again.
const BETWEEN_SCALES: u64 = 500_000;

/// Settings of a training.
#[derive(Debug, Clone, Copy)]
pub struct IdentifierTraining {
    /// Number of vectors. Each vector takes 12 bytes, and several features may share one vector.
    pub features: usize,
    /// Number of pieces of lines to train on.
    pub pieces: u64,
    /// Initial learning rate, which falls linearly to 0.
    pub learning_rate: f32,
    /// Seed of all draws.
    pub seed: u64,
}

impl Default for IdentifierTraining {
    fn default() -> Self {
        Self { features: 81_000, pieces: 5_000_000, learning_rate: 0.3, seed: 1 }
    }
}

/// Model in training.
struct Trainee {
    vectors: Vec<[f32; WIDTH]>,
    weights: Vec<[f32; WIDTH]>,
    biases: Vec<f32>,
    /// Scale of each dimension. When a vector is read, each of its values is rounded to a multiple
    /// of the scale of its dimension. `None` while vectors are not rounded.
    scales: Option<[f32; WIDTH]>,
    rows: Vec<usize>,
    probabilities: Vec<f32>,
}

/// Trains a model on `lines`, each of which is the code of a language and a line of text in this
/// language. `report` is called from time to time with the number of pieces so far, and with the
/// mean loss of the pieces since the previous call.
///
/// # Errors
///
/// If there are fewer than two languages, if a setting is impossible, or if `report` fails.
pub fn train_identifier(
    lines: &[(String, String)],
    settings: IdentifierTraining,
    report: &mut dyn FnMut(u64, f64) -> Result<()>,
) -> Result<LanguageIdentifier> {
    let mut of_language: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (language, line) in lines {
        of_language.entry(language).or_default().push(line);
    }
    let wrong =
        |message: &str| Err(Error::Config { key: "languages", message: message.to_owned() });
    if of_language.len() < 2 {
        return wrong("there are fewer than two languages to distinguish");
    }
    if settings.features == 0 || settings.pieces == 0 {
        return wrong("a model needs a feature and a piece of text at least");
    }
    let shares: Vec<f64> =
        of_language.values().map(|lines| (lines.len() as f64).powf(EVENNESS)).collect();
    let total: f64 = shares.iter().sum();
    let lines: Vec<Vec<&str>> = of_language.values().cloned().collect();
    let mut trainee = Trainee::new(settings, lines.len());
    let (mut loss, mut since) = (0.0, 0);
    let exact = settings.pieces / 2;
    for piece in 0..settings.pieces {
        // In the second half of training, vectors are rounded, so that the model adapts to the
        // rounding. The gradients are computed as if the values were not rounded.
        if piece >= exact && (piece - exact).is_multiple_of(BETWEEN_SCALES) {
            trainee.measure_scales();
        }
        let draws = Draws::new(settings.seed, piece, PURPOSE);
        let mut left = draws.unit(0) * total;
        let language = shares.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        let language = language.unwrap_or(shares.len() - 1);
        let of_this = &lines[language];
        let line = of_this[(draws.unit(1) * of_this.len() as f64) as usize];
        let rate = settings.learning_rate * (1.0 - piece as f32 / settings.pieces as f32);
        if let Some(one) = trainee.update(piece_of(line, draws), language, rate) {
            loss += f64::from(one);
            since += 1;
        }
        if (piece + 1) % 100_000 == 0 || piece + 1 == settings.pieces {
            report(piece + 1, loss / f64::from(since.max(1)))?;
            (loss, since) = (0.0, 0);
        }
    }
    Ok(trainee.rounded(of_language.into_keys().map(str::to_owned).collect()))
}

/// Piece of a line with a random number of characters within [`PIECE`], or the whole line if it is
/// shorter. The piece begins with the first whole word after a random place in the line; if too few
/// characters follow from there, it begins at the random place itself.
fn piece_of(line: &str, draws: Draws) -> &str {
    let length = (PIECE.0 + draws.unit(2) * (PIECE.1 - PIECE.0)) as usize;
    let count = line.chars().count();
    let place = (draws.unit(3) * (count.saturating_sub(length) + 1) as f64) as usize;
    let at = |text: &str, place| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let rest = &line[at(line, place)..];
    let word = if place == 0 { 0 } else { rest.find(' ').map_or(0, |space| space + 1) };
    let has_room = rest[word..].chars().nth(length - 1).is_some();
    let rest = if has_room { &rest[word..] } else { rest };
    &rest[..at(rest, length)]
}

impl Trainee {
    fn new(settings: IdentifierTraining, languages: usize) -> Self {
        let draws = Draws::new(settings.seed, 0, PURPOSE).within(u64::MAX, 0);
        let value = |row: usize, place: usize| {
            (2.0 * draws.unit((row * WIDTH + place) as u64) - 1.0) as f32 / WIDTH as f32
        };
        let vector = |row| std::array::from_fn(|place| value(row, place));
        Self {
            vectors: (0..settings.features).map(vector).collect(),
            weights: vec![[0.0; WIDTH]; languages],
            biases: vec![0.0; languages],
            scales: None,
            rows: Vec::new(),
            probabilities: vec![0.0; languages],
        }
    }

    /// Makes a training step on a piece of text, and returns its loss; `None` if the piece has no
    /// letters.
    fn update(&mut self, piece: &str, language: usize, rate: f32) -> Option<f32> {
        let Self { vectors, weights, biases, scales, rows, probabilities } = self;
        rows.clear();
        Features::extract(piece).each(vectors.len(), |row| rows.push(row));
        if rows.is_empty() {
            return None;
        }
        let mean = mean_of(vectors, rows, scales.as_ref());
        for ((probability, weights), bias) in probabilities.iter_mut().zip(&*weights).zip(&*biases)
        {
            *probability = dot(weights, &mean) + bias;
        }
        softmax(probabilities);
        let mut gradient = [0.0; WIDTH];
        for (place, &probability) in probabilities.iter().enumerate() {
            let step = rate * (f32::from(u8::from(place == language)) - probability);
            add(&mut gradient, &weights[place], step);
            add(&mut weights[place], &mean, step);
            biases[place] += BIAS_RATE * step;
        }
        // The derivative of the mean would give each feature 1/n of the gradient if a piece has n
        // features. Here each feature gets 1/√n of it, which is a larger step.
        let share = 1.0 / (rows.len() as f32).sqrt();
        for &row in rows.iter() {
            add(&mut vectors[row], &gradient, share);
        }
        Some(-probabilities[language].max(f32::MIN_POSITIVE).ln())
    }

    /// Sets the scale of each dimension so that a share of [`IN_RANGE`] of its values can be
    /// rounded without clipping.
    fn measure_scales(&mut self) {
        self.scales = Some(std::array::from_fn(|place| {
            let mut sizes: Vec<f32> = self.vectors.iter().map(|one| one[place].abs()).collect();
            let largest = ((sizes.len() - 1) as f64 * IN_RANGE) as usize;
            let (_, largest, _) = sizes.select_nth_unstable_by(largest, f32::total_cmp);
            largest.max(f32::MIN_POSITIVE) / LARGEST
        }));
    }

    /// Makes the model, in which each number of a vector is rounded to 4 bits.
    fn rounded(mut self, languages: Vec<String>) -> LanguageIdentifier {
        let scales = self.scales.unwrap_or([1.0; WIDTH]);
        for weights in &mut self.weights {
            *weights = std::array::from_fn(|place| weights[place] * scales[place]);
        }
        let scaled = |vector: &[f32; WIDTH]| std::array::from_fn(|at| vector[at] / scales[at]);
        let vectors = self.vectors.iter().map(|vector| Packed::pack(&scaled(vector))).collect();
        LanguageIdentifier { languages, vectors, weights: self.weights, biases: self.biases }
    }
}

/// Mean of the vectors with the indices `rows`, rounded if there are scales.
fn mean_of(
    vectors: &[[f32; WIDTH]],
    rows: &[usize],
    scales: Option<&[f32; WIDTH]>,
) -> [f32; WIDTH] {
    let share = 1.0 / rows.len() as f32;
    let mut mean = [0.0; WIDTH];
    let Some(scales) = scales else {
        rows.iter().for_each(|&row| add(&mut mean, &vectors[row], share));
        return mean;
    };
    for &row in rows {
        for ((sum, value), scale) in mean.iter_mut().zip(&vectors[row]).zip(scales) {
            *sum += nearest(value / scale);
        }
    }
    std::array::from_fn(|place| mean[place] * scales[place] * share)
}

/// Factor of the learning rate for biases. It is small because every piece changes all biases.
const BIAS_RATE: f32 = 0.1;

fn add(to: &mut [f32; WIDTH], from: &[f32; WIDTH], factor: f32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<(String, String)> {
        let words = [
            ("aa", ["kato", "mirun", "salote", "pavi", "rukamo"]),
            ("bb", ["schrenk", "dorft", "wulz", "grimm", "pfostel"]),
        ];
        let line = |(code, words): &(&str, [&str; 5]), number: usize| {
            let words = (0..6).map(|place| words[(number * 7 + place * place * 3) % 5]);
            ((*code).to_owned(), words.collect::<Vec<_>>().join(" "))
        };
        (0..50).flat_map(|number| words.iter().map(move |words| line(words, number))).collect()
    }

    const SETTINGS: IdentifierTraining =
        IdentifierTraining { features: 300, pieces: 3000, learning_rate: 1.0, seed: 3 };

    #[test]
    fn languages_are_learnt_and_survive_their_file() {
        let mut losses = Vec::new();
        let mut report = |_, loss| {
            losses.push(loss);
            Ok(())
        };
        let model = train_identifier(&lines(), SETTINGS, &mut report).expect("trained");
        assert_eq!(losses.len(), 1);
        let identified = |text: &str| model.identify(text).expect("letters");
        assert_eq!(
            (&*identified("salote kato").language, &*identified("wulz grimm").language),
            ("aa", "bb")
        );
        assert!(identified("salote kato").probability > 0.9);
        let again = train_identifier(&lines(), SETTINGS, &mut |_, _| Ok(())).expect("trained");
        assert_eq!(model, again);
        let bytes = model.to_bytes();
        assert_eq!(LanguageIdentifier::from_bytes(&bytes).as_ref(), Ok(&model));
        for length in 0..bytes.len() {
            assert!(LanguageIdentifier::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        assert!(LanguageIdentifier::from_bytes(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn pieces_are_as_long_in_every_script() {
        let words = ["a quick ", "быстрая ", "γρήγορη ", "तेज लोमड़ी "];
        for (word, repeats) in words.iter().flat_map(|word| [1, 3, 9].map(|times| (word, times))) {
            let line = word.repeat(repeats);
            for number in 0..300 {
                let draws = Draws::new(1, number, PURPOSE);
                let length = (PIECE.0 + draws.unit(2) * (PIECE.1 - PIECE.0)) as usize;
                let piece = piece_of(&line, draws);
                assert!(line.contains(piece));
                assert_eq!(piece.chars().count(), length.min(line.chars().count()), "{line}");
            }
        }
    }

    #[test]
    fn one_language_is_no_choice() {
        let lines = &lines()[..1];
        let error = train_identifier(lines, SETTINGS, &mut |_, _| Ok(())).expect_err("refused");
        assert!(error.to_string().contains("fewer than two languages"), "{error}");
    }
}
