//! Identification of the language of a text.
//!
//! This is the classifier of Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification".
//! The features of a text are hashed n-grams of characters and words. The mean of the vectors of
//! these features is the input of a linear layer and a softmax over languages. Each number of a
//! vector is stored in 4 bits, so a model of 74 languages takes less than 1 MB.
//!
//! **Decision.** The model is trained by Taper (`taper languages train`) and is part of the
//! program. A table of n-grams for each language was rejected, because in 1 MB it would have too
//! few n-grams.

mod codes;
mod features;
mod file;
mod nibbles;
mod scripts;
mod training;

use std::path::Path;
use std::sync::LazyLock;

use serde::Serialize;

use self::features::Features;
use self::nibbles::Packed;
use crate::{Error, Result, read_regular};

pub(crate) use self::scripts::OwnLetters;
pub use self::scripts::own_letters;
pub use self::training::{IdentifierTraining, train_identifier};

/// Length of a feature's vector.
const WIDTH: usize = 24;

/// Model that is part of the program.
static BUNDLED: &[u8] = include_bytes!("languages.bin");

/// Largest number of bytes of a model's file.
const MOST_BYTES: u64 = 1 << 28;

/// A language with its probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdentifiedLanguage {
    /// Code of the language (ISO 639).
    pub language: String,
    /// Probability among the languages of the model.
    pub probability: f64,
}

/// Identifier of the language of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageIdentifier {
    /// Codes of the languages, sorted.
    languages: Vec<String>,
    /// Vectors of the features. Their numbers are rounded to 4 bits.
    vectors: Vec<Packed>,
    /// Weights of the linear layer for each language. `vectors` contain integers, which are
    /// multiples of a scale for each dimension. The weights are already multiplied by these scales.
    weights: Vec<[f32; WIDTH]>,
    /// Bias of each language.
    biases: Vec<f32>,
}

impl LanguageIdentifier {
    /// The model that is part of the program.
    ///
    /// # Panics
    ///
    /// Never, because a test ensures that the model of the program can be read.
    #[must_use]
    pub fn bundled() -> &'static Self {
        static READ: LazyLock<LanguageIdentifier> =
            LazyLock::new(|| LanguageIdentifier::from_bytes(BUNDLED).expect("the bundled model"));
        &READ
    }

    /// Reads a model that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or does not contain such a model.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_regular(path, MOST_BYTES).map_err(|error| Error::io(path, error))?;
        Self::from_bytes(&bytes).map_err(|message| Error::Malformed {
            path: path.to_owned(),
            message: message.to_owned(),
        })
    }

    /// Codes of the languages.
    #[must_use]
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Index of the language with the code `code`, in any usual spelling, such as `zh-Hans`,
    /// `pt_BR` or `deu_Latn`; `None` if the model does not know the language.
    #[must_use]
    pub fn number_of(&self, code: &str) -> Option<usize> {
        let code = codes::canonical(code);
        self.languages.iter().position(|language| *language == code)
    }

    /// Probability of each language, in the order of [`languages`](Self::languages); `None` for a
    /// text without letters.
    #[must_use]
    pub fn probabilities(&self, text: &str) -> Option<Vec<f32>> {
        let mut sum = [0_i32; WIDTH];
        let mut count = 0;
        Features::extract(text).each(self.vectors.len(), |row| {
            self.vectors[row].add_to(&mut sum);
            count += 1;
        });
        if count == 0 {
            return None;
        }
        let mean = sum.map(|sum| sum as f32 / count as f32);
        let logit = |(weights, bias): (&[f32; WIDTH], &f32)| dot(weights, &mean) + bias;
        let mut probabilities: Vec<f32> =
            self.weights.iter().zip(&self.biases).map(logit).collect();
        softmax(&mut probabilities);
        Some(probabilities)
    }

    /// Likeliest language of a text; `None` for a text without letters.
    #[must_use]
    pub fn identify(&self, text: &str) -> Option<IdentifiedLanguage> {
        let probabilities = self.probabilities(text)?;
        let best = (0..probabilities.len())
            .max_by(|&one, &other| probabilities[one].total_cmp(&probabilities[other]))?;
        let probability = f64::from(probabilities[best]);
        Some(IdentifiedLanguage { language: self.languages[best].clone(), probability })
    }
}

fn dot(one: &[f32; WIDTH], other: &[f32; WIDTH]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn softmax(logits: &mut [f32]) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter_mut().for_each(|logit| *logit = (*logit - most).exp());
    let total: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|logit| *logit /= total);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_model_is_small_and_knows_languages() {
        assert!(BUNDLED.len() <= 1_000_000);
        let model = LanguageIdentifier::bundled();
        assert!(model.languages().len() >= 60, "{:?}", model.languages());
        for (text, language) in [
            ("The quick brown fox jumps over the lazy dog.", "en"),
            ("Der schnelle braune Fuchs springt über den faulen Hund.", "de"),
            ("Le renard brun saute par-dessus le chien paresseux.", "fr"),
            ("Быстрая лиса прыгает через ленивую собаку.", "ru"),
            ("Швидка лисиця стрибає через ледачого пса.", "uk"),
            ("敏捷的棕色狐狸跳过了懒狗。", "zh"),
            ("素早い狐がのろまな犬を飛び越える。", "ja"),
            ("الثعلب البني السريع يقفز فوق الكلب الكسول", "ar"),
        ] {
            let identified = model.identify(text).expect("letters");
            assert_eq!(identified.language, language, "{text}: {identified:?}");
            assert!(identified.probability > 0.5, "{text}: {identified:?}");
            // Case does not matter.
            assert_eq!(model.identify(&text.to_uppercase()).expect("letters").language, language);
        }
        assert_eq!(model.identify("12 + 30 = 42 :-)"), None);
        assert_eq!(model.identify(""), None);
    }

    #[test]
    fn languages_have_their_usual_codes() {
        let model = LanguageIdentifier::bundled();
        let number = |code: &str| model.number_of(code);
        for (code, same) in
            [("zh", "zh-Hans"), ("zh", "cmn"), ("pt", "pt_BR"), ("de", "deu_Latn"), ("nb", "no")]
        {
            assert!(number(code).is_some(), "{code}");
            assert_eq!(number(code), number(same), "{code} {same}");
        }
        assert_eq!(number("aa"), None);
    }
}
