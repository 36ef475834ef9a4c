//! Journeys of texts through taggers, which label each word, and through masked language models,
//! which predict hidden tokens. A journey has the values that a model computes on its way from a
//! text to its answers.

use anyhow::{Context, Result, ensure};
use candle_core::Tensor;
use taper_data::{LabelledConfig, SpelledSpecial};
use taper_model::{Batch, MaskedLanguageModel, Model, ModelError, Pass, Sequences, TokenTagger};
use taper_ops::threads::in_pool;

use super::reading::{journey_of, pieces, records_of};
use super::{Answer, Choice, Journey};
use crate::LoadedRun;
use crate::attention::map::{layers, shown_tokens};
use crate::attention::reading::marked;
use crate::prediction::EncodedWords;

/// Approximate number of tokens that the model reads in one batch.
const TOKENS: usize = 4096;

impl Journey {
    /// Traces the journey of `text` through a tagger, to the tag of each word.
    ///
    /// # Errors
    /// When the text is empty, or the model cannot be run on it.
    pub fn of_tagged(run: &LoadedRun<TokenTagger>, text: &str) -> Result<Self> {
        let (tokenizer, labels) = (run.tokenizers.target(), &run.config.data.labelled.labels);
        tokenizer.check_spelled(text)?;
        let encoded = EncodedWords::encode(run, &[text.to_owned()])?.remove(0);
        let (words, row) = encoded.parts();
        ensure!(!row.asked.is_empty(), "the text is empty");
        let segments: Vec<u32> = row.segments().collect();
        let streams = [&segments, &row.ids].map(|ids| Sequences::pack(&[ids]));
        let (mut records, logits) = in_pool(run.model.device(), || {
            let logits = run.model.logits(&streams[0], &streams[1], &row.asked)?;
            let answers = vec![0; row.asked.len()];
            let batch =
                Batch { asked: Some(row.asked.clone()), ..Batch::new(streams.to_vec(), answers) };
            Ok::<_, ModelError>((records_of(&run.model, &batch)?, logits))
        })
        .context("the text cannot be read")?;
        let tokens = shown_tokens(tokenizer, &row.ids);
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (tokens.clone(), tokens.clone()))?;
        let answers = row.asked.iter().map(|_| None);
        let mut choices = Choice::from_logits(&logits, answers, |id| labels[id as usize].clone())?;
        for ((choice, &at), &word) in choices.iter_mut().zip(&row.asked).zip(&row.words) {
            choice.place = at as usize;
            choice.word = Some(words[word].clone());
        }
        Ok(Self {
            answer: Answer::Tags,
            normalized: tokenizer.normalize(text)?,
            pieces: pieces(&tokens, &row.ids),
            choices,
            ..journey_of((&run.config, text), &records, attention, &[("encoder", &tokens)])?
        })
    }

    /// Traces the journey of `text` through a masked language model, to the tokens that it predicts
    /// in place of the masks. If the text has no masks, each of its tokens is hidden in turn.
    ///
    /// # Errors
    /// When the text is empty, or the model cannot be run on it.
    pub fn of_masked(run: &LoadedRun<MaskedLanguageModel>, text: &str) -> Result<Self> {
        let tokenizer = run.tokenizers.target();
        let [_, _, mask] = tokenizer.mark_ids();
        let mask = mask.context("the tokenizer has no mask")?;
        let max_tokens = run.config.data.text.block_length;
        let one = LabelledConfig { max_tokens, ..LabelledConfig::default() };
        let ids = marked(&tokenizer.with_spelled(SpelledSpecial::Read), text, &one)?.ids;
        let masks: Vec<usize> = (0..ids.len()).filter(|&at| ids[at] == mask).collect();
        let hidden = match masks.is_empty() {
            true => Hidden::each(&ids, mask),
            false => Hidden { rows: vec![ids.clone()], places: vec![masks] },
        };
        let (mut records, logits) = in_pool(run.model.device(), || {
            let pass = Pass::evaluate_with_states();
            run.model.hidden(&Sequences::pack(&[&ids]), &vec![0; ids.len()], &pass)?;
            Ok::<_, ModelError>((pass.into_records(), hidden.logits(&run.model)?))
        })
        .context("the text cannot be read")?;
        let tokens = shown_tokens(tokenizer, &ids);
        let attention =
            layers(std::mem::take(&mut records.attention), |_| (tokens.clone(), tokens.clone()))?;
        let places: Vec<usize> = hidden.places.concat();
        let answers = places.iter().map(|&at| Some(ids[at]).filter(|&id| id != mask));
        let name = |id| shown_tokens(tokenizer, &[id]).concat();
        let mut choices = Choice::from_logits(&logits, answers, name)?;
        for (choice, place) in choices.iter_mut().zip(&places) {
            choice.place = *place;
        }
        Ok(Self {
            answer: Answer::Hidden,
            normalized: tokenizer.normalize(text)?,
            pieces: pieces(&tokens, &ids),
            choices,
            ..journey_of((&run.config, text), &records, attention, &[("encoder", &tokens)])?
        })
    }
}

/// Copies of one text, each with some tokens hidden.
struct Hidden {
    rows: Vec<Vec<u32>>,
    /// Indices of the hidden tokens in each row.
    places: Vec<Vec<usize>>,
}

impl Hidden {
    /// For each token but the first and the last, a copy of `ids` in which this token is replaced
    /// by `mask`.
    fn each(ids: &[u32], mask: u32) -> Self {
        let places = 1..ids.len().saturating_sub(1);
        let row = |place: usize| {
            let mut row = ids.to_vec();
            row[place] = mask;
            row
        };
        Self {
            rows: places.clone().map(row).collect(),
            places: places.map(|at| vec![at]).collect(),
        }
    }

    /// Logits of shape (A, V) for the A hidden tokens of all rows; V is the size of the vocabulary.
    fn logits(&self, model: &MaskedLanguageModel) -> Result<Tensor, ModelError> {
        let length = self.rows.first().map_or(1, Vec::len);
        let at_once = (TOKENS / length).max(1);
        let chunks = self.rows.chunks(at_once).zip(self.places.chunks(at_once));
        let logits = chunks.map(|(rows, places)| {
            let pass = Pass::evaluate();
            let packed = Sequences::pack(rows);
            let states = model.hidden(&packed, &vec![0; packed.ids.len()], &pass)?; // (N, D)
            let asked: Vec<u32> = places
                .iter()
                .enumerate()
                .flat_map(|(row, row_places)| {
                    row_places.iter().map(move |at| (row * length + at) as u32)
                })
                .collect();
            let asked = Tensor::from_vec(asked.clone(), asked.len(), states.device())?;
            model.logits(&states.index_select(&asked, 0)?, &pass)
        });
        let logits = logits.collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::cat(&logits, 0)?)
    }
}
