//! Reads and writes the file of a language identifier. The file contains the name and version of
//! the format, a line of JSON, and then numbers in little-endian order.

use serde::{Deserialize, Serialize};

use super::nibbles::Packed;
use super::{LanguageIdentifier, WIDTH};

/// First bytes of a file.
const MAGIC: &[u8] = b"taper languages ";

/// Version of the format, which follows [`MAGIC`].
const VERSION: &[u8] = b"2\n";

/// Largest number of languages of a model, and also its largest number of features.
const MOST: usize = 1 << 24;

#[derive(Serialize, Deserialize)]
struct Head {
    languages: Vec<String>,
    features: usize,
    width: usize,
}

impl LanguageIdentifier {
    /// Content of the model's file. Each bias and each weight is stored in 32 bits, and each number
    /// of a feature's vector in 4 bits.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let head =
            Head { languages: self.languages.clone(), features: self.vectors.len(), width: WIDTH };
        let mut bytes = [MAGIC, VERSION].concat();
        bytes.extend(serde_json::to_vec(&head).unwrap_or_default());
        bytes.push(b'\n');
        let numbers = self.biases.iter().chain(self.weights.as_flattened());
        bytes.extend(numbers.flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.vectors.iter().flat_map(|vector| vector.0));
        bytes
    }

    /// Reads a model from the content of its file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, &'static str> {
        const OTHER: &str =
            "not a model of languages: expected a file that was made from text in known languages";
        const VERSIONS: &str = "a model of languages of another version of Taper";
        let rest = bytes.strip_prefix(MAGIC).ok_or(OTHER)?.strip_prefix(VERSION).ok_or(VERSIONS)?;
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or(OTHER)?;
        let head: Head = serde_json::from_slice(&rest[..end]).map_err(|_| OTHER)?;
        let count = head.languages.len();
        if head.width != WIDTH
            || !(1..=MOST).contains(&count)
            || !(1..=MOST).contains(&head.features)
        {
            return Err(VERSIONS);
        }
        let (numbers, vectors) = rest[end + 1..]
            .split_at_checked(4 * count * (1 + WIDTH))
            .filter(|(_, vectors)| vectors.len() == head.features * WIDTH / 2)
            .ok_or("a damaged model of languages: its length differs from its first line")?;
        let (numbers, _) = numbers.as_chunks::<4>();
        let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if !numbers.iter().all(|number| number.is_finite()) {
            return Err("a damaged model of languages: a weight is not a finite number");
        }
        let (biases, weights) = numbers.split_at(count);
        Ok(Self {
            languages: head.languages,
            vectors: vectors.as_chunks().0.iter().map(|&bytes| Packed(bytes)).collect(),
            weights: weights.as_chunks::<WIDTH>().0.to_vec(),
            biases: biases.to_vec(),
        })
    }
}
