//! The order of words. 我打他 (I hit him) and 他打我 (he hits me) have the same words, so a model whose
//! encoder knows no positions gives both the same translation (Vaswani et al. 2017, section 3.5;
//! Lee et al. 2019, property 1).
//!
//! Models translate sentences of a small grammar (subject, verb, object) from Chinese into English.
//! In Chinese, each word has one form. In English, "I" and "me" show who acts. Most sentences have
//! an adverb, which stands before the verb in Chinese and at the end in English. It is therefore
//! not enough to attend to the word at the same position. Some sentences are held out from
//! training. If a sentence is held out, the sentence with its subject and object exchanged is held
//! out too.

use candle_core::{DType, Device, Tensor};
use taper_model::{Batch, Builder, ModelConfig, Pass, Positions, Sequences, TranslationModel};
use taper_ops::rng::{Counter, mix};
use taper_plots::{Figure, Heatmap};
use taper_theory::TheoryError;
use taper_theory::studies::{Findings, Study, heads};

use crate::lesson::Lesson;

pub(crate) const STUDY: Study = Study {
    name: "word-order",
    claim: "Without positions 我打他 and 他打我 have one translation; with them each has its own, \
            and attention links words with their translations",
    run,
};

/// Persons. Each has its word in Chinese, its English words as subject and as object, and a flag
/// that is true if the verb after it takes an s.
const PEOPLE: [(&str, &str, &str, bool); 10] = [
    ("我", "I", "me", false),
    ("你", "you", "you", false),
    ("他", "he", "him", true),
    ("她", "she", "her", true),
    ("我们", "we", "us", false),
    ("他们", "they", "them", false),
    ("AI", "AI", "AI", true),
    ("猫", "cats", "cats", false),
    ("老师", "teachers", "teachers", false),
    ("妈妈", "Mum", "Mum", true),
];
/// Verbs. Each has its word in Chinese, and its English forms after "I" and after "he".
const VERBS: [(&str, &str, &str); 8] = [
    ("打", "hit", "hits"),
    ("爱", "love", "loves"),
    ("看", "see", "sees"),
    ("帮", "help", "helps"),
    ("教", "teach", "teaches"),
    ("找", "seek", "seeks"),
    ("问", "ask", "asks"),
    ("听", "hear", "hears"),
];
/// Adverbs, in Chinese and in English.
const ADVERBS: [(&str, &str); 3] = [("今天", "today"), ("现在", "now"), ("常常", "often")];
/// Tokens that mark the beginning of a translation and its end.
const MARKS: [&str; 2] = ["<s>", "</s>"];

/// Number of sentences in a batch.
const ROWS: u64 = 64;

/// A sentence of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    subject: usize,
    verb: usize,
    object: usize,
    adverb: Option<usize>,
}

/// Returns the index of the first element of a list for which `is` returns true.
fn place<T>(list: &[T], is: impl Fn(&T) -> bool) -> usize {
    list.iter().position(is).expect("a word of the grammar")
}

impl Clause {
    /// Makes the sentence of a subject, a verb and an object, which are given in Chinese.
    ///
    /// # Panics
    /// If the grammar lacks a word.
    #[must_use]
    pub fn new(subject: &str, verb: &str, object: &str) -> Self {
        let person = |name: &str| place(&PEOPLE, |one| one.0 == name);
        let verb = place(&VERBS, |one| one.0 == verb);
        Self { subject: person(subject), verb, object: person(object), adverb: None }
    }

    /// Returns the sentence with subject and object exchanged.
    #[must_use]
    pub fn exchanged(self) -> Self {
        Self { subject: self.object, object: self.subject, ..self }
    }

    /// Returns all sentences whose subject and object differ.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for subject in 0..PEOPLE.len() {
            for object in (0..PEOPLE.len()).filter(|object| *object != subject) {
                for verb in 0..VERBS.len() {
                    let adverbs = [None].into_iter().chain((0..ADVERBS.len()).map(Some));
                    all.extend(adverbs.map(|adverb| Self { subject, verb, object, adverb }));
                }
            }
        }
        all
    }

    /// True if the sentence is held out from training. About a sixth of all sentences are held out.
    /// 我打他 and 我爱AI (I love AI) are always held out, with any adverb. If a sentence is held out,
    /// the sentence with its subject and object exchanged is held out too.
    #[must_use]
    pub fn is_held_out(self) -> bool {
        let plain = Self { adverb: None, ..self };
        let named = [Self::new("我", "打", "他"), Self::new("我", "爱", "AI")];
        let is_named = named.iter().any(|one| plain == *one || plain == one.exchanged());
        let [low, high] = [self.subject.min(self.object), self.subject.max(self.object)];
        is_named || mix(1, &[low as u64, high as u64, self.verb as u64]).is_multiple_of(6)
    }

    /// Words of the sentence in Chinese.
    fn chinese(self) -> Vec<&'static str> {
        let adverb = self.adverb.map(|adverb| ADVERBS[adverb].0);
        let subject = [PEOPLE[self.subject].0].into_iter();
        subject.chain(adverb).chain([VERBS[self.verb].0, PEOPLE[self.object].0]).collect()
    }

    /// Words of the sentence in English, each with the index of the Chinese word that it
    /// translates.
    fn english(self) -> Vec<(&'static str, usize)> {
        let (_, subject, _, takes_s) = PEOPLE[self.subject];
        let (_, plain, with_s) = VERBS[self.verb];
        let shift = usize::from(self.adverb.is_some());
        let verb = if takes_s { with_s } else { plain };
        let clause = [(subject, 0), (verb, 1 + shift), (PEOPLE[self.object].2, 2 + shift)];
        let adverb = self.adverb.map(|adverb| (ADVERBS[adverb].1, 1));
        clause.into_iter().chain(adverb).collect()
    }
}

/// Words of both languages. The index of a word is its id.
#[derive(Debug)]
struct Words {
    chinese: Vec<&'static str>,
    english: Vec<&'static str>,
}

impl Words {
    fn new() -> Self {
        let chinese = PEOPLE.iter().map(|one| one.0).chain(VERBS.iter().map(|one| one.0));
        let chinese = chinese.chain(ADVERBS.iter().map(|one| one.0)).collect();
        let people = PEOPLE.iter().flat_map(|one| [one.1, one.2]);
        let verbs = VERBS.iter().flat_map(|one| [one.1, one.2]);
        let mut english: Vec<_> = MARKS.into_iter().chain(people).chain(verbs).collect();
        english.extend(ADVERBS.iter().map(|one| one.1));
        Self { chinese, english }
    }

    /// Ids of a sentence in Chinese.
    fn source(&self, clause: Clause) -> Vec<u32> {
        let id = |word: &&str| place(&self.chinese, |one| one == word) as u32;
        clause.chinese().iter().map(id).collect()
    }

    /// Ids of a sentence in English, without the tokens for its beginning and its end.
    fn target(&self, clause: Clause) -> Vec<u32> {
        clause
            .english()
            .iter()
            .map(|(word, _)| place(&self.english, |one| one == word) as u32)
            .collect()
    }

    /// Batch of sentences, with Chinese as the source and English as the target.
    fn batch(&self, clauses: &[Clause]) -> Batch {
        let sources: Vec<_> = clauses.iter().map(|one| self.source(*one)).collect();
        let (mut targets, mut answers) = (Vec::new(), Vec::new());
        for clause in clauses {
            let words = self.target(*clause);
            answers.extend(words.iter().copied().chain([1]));
            targets.push([vec![0], words].concat());
        }
        Batch::new(vec![Sequences::pack(&sources), Sequences::pack(&targets)], answers)
    }
}

/// A model that has learned to translate the sentences.
#[derive(Debug)]
pub struct ClauseTranslator {
    model: TranslationModel,
    words: Words,
}

impl ClauseTranslator {
    /// Trains a model with the position encoding `positions`.
    ///
    /// # Errors
    /// If the training fails.
    pub fn train(positions: Positions, updates: u64, seed: u64) -> Result<Self, TheoryError> {
        let words = Words::new();
        let config = ModelConfig {
            d_model: 64,
            d_ff: 128,
            heads: 4,
            encoder_layers: 2,
            decoder_layers: 2,
            tied: taper_model::Tied::Decoder,
            positions,
            ..ModelConfig::default().with_dropout(0.0)
        };
        let builder = Builder::seeded(seed, &Device::Cpu, DType::F32);
        let sizes = (words.chinese.len(), words.english.len());
        let model = TranslationModel::new(&config, sizes.0, sizes.1, builder)?;
        let trained: Vec<Clause> =
            Clause::all().into_iter().filter(|one| !one.is_held_out()).collect();
        let lesson = Lesson { updates, learning_rate: 3e-3 };
        let model = lesson.teach(model, seed, |key| {
            let counter = Counter::new(key);
            let drawn = |row| trained[(counter.u64_at(row) % trained.len() as u64) as usize];
            words.batch(&(0..ROWS).map(drawn).collect::<Vec<_>>())
        })?;
        Ok(Self { model, words })
    }

    /// Sentences that were never trained on.
    #[must_use]
    pub fn held_out() -> Vec<Clause> {
        Clause::all().into_iter().filter(|one| one.is_held_out()).collect()
    }

    /// Returns logits, and the batch of the sentences. The logits have a row for each word of the
    /// right translations and for the end of each translation: `(words and ends, V)`, where V is
    /// the size of the English vocabulary.
    fn logits(&self, clauses: &[Clause], pass: &Pass) -> Result<(Tensor, Batch), TheoryError> {
        let batch = self.words.batch(clauses);
        let encoded = self.model.encode(&batch.streams[0], pass)?;
        let hidden = self.model.decode(&batch.streams[1], &encoded, pass)?;
        Ok((self.model.logits(&hidden, pass)?, batch))
    }

    /// For each sentence, true if greedy search translates it right. The translation is right if,
    /// after each beginning of the right translation, the likeliest next word is the right one.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn right(&self, clauses: &[Clause]) -> Result<Vec<bool>, TheoryError> {
        let (logits, batch) = self.logits(clauses, &Pass::evaluate())?;
        let likeliest: Vec<u32> = logits.argmax(1)?.to_vec1()?;
        let mut start = 0;
        let is_right = |length: &usize| {
            let rows = start..start + length;
            start += length;
            likeliest[rows.clone()] == batch.answers[rows]
        };
        Ok(batch.streams[1].lengths.iter().map(is_right).collect())
    }

    /// Translates a sentence by greedy search.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn translate(&self, clause: Clause) -> Result<String, TheoryError> {
        let pass = Pass::evaluate();
        let source = Sequences::pack(&[self.words.source(clause)]);
        let encoded = self.model.encode(&source, &pass)?;
        let mut written = vec![0];
        while written.len() < 8 {
            let target = Sequences::pack(&[&written]);
            let hidden = self.model.decode(&target, &encoded, &pass)?;
            let last = hidden.narrow(0, written.len() - 1, 1)?;
            let next = self.model.logits(&last, &pass)?.argmax(1)?.to_vec1::<u32>()?[0];
            if next == 1 {
                break;
            }
            written.push(next);
        }
        let words = written[1..].iter().map(|id| self.words.english[*id as usize]);
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// Largest absolute difference between the logits for the first words of two translations.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn difference(&self, one: Clause, other: Clause) -> Result<f64, TheoryError> {
        let first = |clause: Clause| -> Result<Vec<f64>, TheoryError> {
            let (logits, _) = self.logits(&[clause], &Pass::evaluate())?;
            Ok(logits.narrow(0, 0, 1)?.squeeze(0)?.to_dtype(DType::F64)?.to_vec1()?)
        };
        let (one, other) = (first(one)?, first(other)?);
        let apart = one.iter().zip(other).map(|(one, other)| (one - other).abs());
        // In the total order, NaN comes after infinity; `f64::max` would ignore NaN.
        Ok(apart.max_by(f64::total_cmp).unwrap_or(0.0))
    }

    /// Attention of each word of the right translation to the words of the source, as
    /// `[word][source]`. The weights are means over the heads of the layer that shows best which
    /// word is translated.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn attention(&self, clause: Clause) -> Result<Vec<Vec<f64>>, TheoryError> {
        let layer = self.model.aligning_layer().unwrap_or_default();
        let pass = Pass::evaluate_with_attention_of(&layer);
        self.logits(&[clause], &pass)?;
        let records = pass.into_records().attention;
        let weights = records[0].weights.squeeze(0)?.mean(0)?; // (words and end, source)
        let mut rows = weights.to_dtype(DType::F64)?.to_vec2()?;
        rows.truncate(clause.english().len());
        Ok(rows)
    }

    /// Share of the words of the right translations that attend most to the word that they
    /// translate.
    ///
    /// # Errors
    /// If the memory is exhausted.
    pub fn aligned(&self, clauses: &[Clause]) -> Result<f64, TheoryError> {
        let (mut right, mut all) = (0, 0);
        for clause in clauses {
            let rows = self.attention(*clause)?;
            for (row, (_, source)) in rows.iter().zip(clause.english()) {
                let largest = (0..row.len()).max_by(|one, other| row[*one].total_cmp(&row[*other]));
                right += usize::from(largest == Some(source));
                all += 1;
            }
        }
        Ok(f64::from(right as u32) / f64::from(all as u32))
    }
}

/// Returns two shares over the held-out sentences. The first is the share of sentences that are
/// translated right. The second is the share of pairs in which both sentences are translated right.
/// A pair is a sentence and the same sentence with subject and object exchanged.
///
/// # Errors
/// If the memory is exhausted.
pub fn translated(translator: &ClauseTranslator) -> Result<(f64, f64), TheoryError> {
    let clauses = ClauseTranslator::held_out();
    let exchanged: Vec<Clause> = clauses.iter().map(|one| one.exchanged()).collect();
    let (one, other) = (translator.right(&clauses)?, translator.right(&exchanged)?);
    let share = |count: usize| count as f64 / clauses.len() as f64;
    let single = one.iter().filter(|right| **right).count();
    let both = one.iter().zip(other).filter(|(one, other)| **one && *other).count();
    Ok((share(single), share(both)))
}

fn run() -> Result<Findings, TheoryError> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let hits = Clause::new("我", "打", "他");
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for (name, positions) in [("none", Positions::None), ("sinusoidal", Positions::Sinusoidal)] {
        let translator = ClauseTranslator::train(positions, 600, 1)?;
        let (sentences, pairs) = translated(&translator)?;
        rows.push(vec![
            name.to_owned(),
            percent(sentences),
            percent(pairs),
            percent(translator.aligned(&ClauseTranslator::held_out())?),
            translator.translate(hits)?,
            translator.translate(hits.exchanged())?,
        ]);
        if positions == Positions::None {
            continue;
        }
        let loves = Clause::new("我", "爱", "AI");
        let heatmap = Heatmap {
            row_label: "word that is written".to_owned(),
            column_label: "word that is read".to_owned(),
            rows: loves.english().iter().map(|(word, _)| (*word).to_owned()).collect(),
            columns: heads(&loves.chinese()),
            values: translator.attention(loves)?,
            strongest: Some(1.0),
        };
        let title = "I love AI: attention to 我爱AI";
        let description = "Each word of the translation looks at the word that it translates.";
        figures.push(("i-love-ai".to_owned(), Figure::new(title, description, heatmap)));
    }
    Ok(Findings {
        columns: heads(&["positions", "sentences", "pairs", "words linked", "我打他", "他打我"]),
        rows,
        figures,
    })
}
