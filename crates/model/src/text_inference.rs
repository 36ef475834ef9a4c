//! Generation of texts token by token. Past tokens are cached, and weights are packed: arranged in
//! the order in which matrix kernels read them.

use crate::layers::attention::{DecodedRows, LayerPast, PastRows, Texts};
use crate::translation::in_blocks;
use crate::{AttentionKind, LanguageModel, Model, Pass, Result, Sequences};
use candle_core::Tensor;
use std::ops::Range;
use std::sync::Arc;
use taper_ops::{ABSENT, Cache, CacheType, PackedWeights};

/// A language model prepared for generation.
///
/// It shares the weights of the model, and packs each of them on first use; after further training,
/// the model must be prepared again.
///
/// A text can grow beyond the context, which is the largest number of tokens that the model sees.
/// Then only its last tokens are kept, half as many as the context, and these are read again. When
/// this happens depends only on the length of the text itself, not on the other texts.
#[derive(Debug)]
pub struct TextInference {
    model: LanguageModel,
    context: usize,
    cache_type: CacheType,
    packs: Arc<PackedWeights>,
}

/// State of the texts that are being generated, one per row.
#[derive(Debug, Clone)]
pub struct TextState {
    /// Cached past of each row, which is one text. The range of a row covers the tokens that were
    /// read as a whole. When a row is read again as a whole, its entries in
    /// [`DecodedRows::history`], for all steps before that, become `ABSENT`.
    rows: DecodedRows,
    /// Number of cached tokens that were read as parts of whole texts, not step by step. It is the
    /// sum over all rows.
    read: usize,
    /// For each row, the tokens that it still remembers.
    texts: Vec<Vec<u32>>,
}

impl TextState {
    /// Number of texts.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.texts.len()
    }

    /// Keeps, repeats and drops rows: row `i` becomes a copy of the former row `rows[i]`.
    ///
    /// # Errors
    /// If a row does not exist.
    pub fn select(&mut self, rows: &[usize]) -> Result<()> {
        self.rows.select(rows)?;
        self.texts = rows.iter().map(|&row| self.texts[row].clone()).collect();
        Ok(())
    }
}

impl LanguageModel {
    /// Prepares the model for generation. It remembers at most the last `context` tokens of a text;
    /// learned positions can set a lower limit. A context of 0 counts as 1, because a prediction
    /// sees at least the token that is fed last.
    #[must_use]
    pub fn inference(&self, context: usize) -> TextInference {
        let most = self.config().longest_sequence().unwrap_or(usize::MAX);
        TextInference {
            model: self.clone(),
            context: context.min(most).max(1),
            cache_type: CacheType::Exact,
            packs: self.core.packs(self.is_int8),
        }
    }

    /// Rounds the weights to int8; see
    /// [`Transformer::round_to_int8`](crate::Transformer::round_to_int8).
    ///
    /// # Errors
    /// If a weight is not finite.
    pub fn round_to_int8(&mut self) -> Result<()> {
        self.is_int8 = true;
        Ok(self.parameters().round_to_int8()?)
    }

    /// Prepares a model that is only used for generation; see
    /// [`TranslationModel::only_decode`](crate::TranslationModel::only_decode).
    pub fn only_decode(&mut self, is_int8: bool) {
        self.is_int8 = is_int8;
        self.core.only_decode(is_int8);
    }
}

impl TextInference {
    /// The model itself.
    #[must_use]
    pub fn model(&self) -> &LanguageModel {
        &self.model
    }

    /// Largest number of tokens that a prediction sees, including the token that is fed last.
    #[must_use]
    pub fn context(&self) -> usize {
        self.context
    }

    /// Keeps keys and values of earlier tokens in `cache_type`. While a text is read at once, its
    /// tokens see each other's exact keys and values. Tokens that are fed later see the keys and
    /// values as the cache keeps them.
    ///
    /// # Errors
    /// If the type is not exact, and the model is not on the CPU or has layers of the kind
    /// `reformer`. Such layers also keep the hash buckets of their tokens, which must not be
    /// rounded.
    pub fn with_cache(mut self, cache_type: CacheType) -> Result<Self> {
        let refuse = |condition: &str| {
            let fault = format!("keys and values can be kept in {cache_type:?} only {condition}");
            Err(candle_core::Error::Msg(fault).into())
        };
        if cache_type != CacheType::Exact && !self.model.device().is_cpu() {
            return refuse("on the CPU");
        }
        if cache_type != CacheType::Exact
            && self.model.config().decoder_attention.has(AttentionKind::Reformer)
        {
            return refuse("without layers of the kind reformer");
        }
        self.cache_type = cache_type;
        Ok(self)
    }

    /// Reads texts in one pass, and makes a state with one row for each. Of a long text, only the
    /// last tokens that fit into the context are read. A text may be empty.
    ///
    /// # Errors
    /// If a token is not in the vocabulary.
    pub fn start<T: AsRef<[u32]>>(&self, texts: &[T]) -> Result<TextState> {
        let head_width = self.model.config().attention_shape().head_width;
        let layer = LayerPast {
            cache: Cache::in_type(self.cache_type, head_width),
            ..LayerPast::default()
        };
        let layers = self.model.decoder.blocks.len();
        let mut state = TextState {
            rows: DecodedRows {
                layers: vec![layer; layers],
                history: Vec::new(),
                ranges: vec![0..0; texts.len()],
            },
            read: 0,
            // There must be room for the next token.
            texts: texts.iter().map(|text| self.last(text.as_ref(), self.context - 1)).collect(),
        };
        let rows: Vec<usize> = (0..texts.len()).collect();
        taper_ops::threads::in_pool(self.model.device(), || self.read(&mut state, &rows))?;
        Ok(state)
    }

    fn last(&self, text: &[u32], count: usize) -> Vec<u32> {
        text[text.len().saturating_sub(count)..].to_vec()
    }

    /// Feeds the newest token of each row, and returns the logits of the row's next token, in f32.
    /// They come in blocks of rows, each `(rows of the block, V)`, and a block is computed when the
    /// iterator reaches it. V is the size of the vocabulary.
    ///
    /// # Errors
    /// If there is not one token for each row, or a token is not in the vocabulary.
    pub fn step(
        &self,
        state: &mut TextState,
        tokens: &[u32],
    ) -> Result<impl Iterator<Item = Result<Tensor>>> {
        let rows = state.rows();
        state.rows.check(tokens)?;
        let hidden = taper_ops::threads::in_pool(self.model.device(), || {
            self.make_room(state)?;
            self.hidden(state, tokens)
        })?;
        Ok(in_blocks(hidden, rows, self.model.vocabulary(), |hidden| {
            self.model.logits(hidden, &Pass::infer(&self.packs))
        }))
    }

    /// Shortens every row (text) that has as many tokens as the context. Only the last tokens of
    /// the row are kept, half as many as the context, and are read again.
    fn make_room(&self, state: &mut TextState) -> Result<()> {
        let full: Vec<usize> =
            (0..state.rows()).filter(|&row| state.texts[row].len() >= self.context).collect();
        for &row in &full {
            state.texts[row] = self.last(&state.texts[row], self.context / 2);
            for block_rows in &mut state.rows.history {
                block_rows[row] = ABSENT;
            }
        }
        if full.is_empty() { Ok(()) } else { self.read(state, &full) }
    }

    /// Reads the texts of these rows as a whole, and makes the result the past of these rows.
    fn read(&self, state: &mut TextState, rows: &[usize]) -> Result<()> {
        let text = Sequences::pack(&rows.iter().map(|&row| &state.texts[row]).collect::<Vec<_>>());
        let before = state.read;
        let mut first = before;
        for (&row, &length) in rows.iter().zip(&text.lengths) {
            state.rows.ranges[row] = first..first + length;
            first += length;
        }
        state.read = first;
        if text.ids.is_empty() {
            for layer in &mut state.rows.layers {
                layer.forget(rows)?;
            }
            return Self::compact(state);
        }
        let pass = Pass::infer(&self.packs);
        let at = text.positions();
        // Token `i` sees the tokens of its text up to itself.
        let visible: Vec<Range<usize>> =
            at.iter().enumerate().map(|(i, &position)| i - position as usize..i + 1).collect();
        let decoder = &self.model.decoder;
        let positions = decoder.relative.prepare_cached(&at, &pass)?;
        let mut x = self.model.embedding.step(&text.ids, &at, &pass)?; // (N, D), N tokens
        let count = state.rows();
        let layers = decoder.blocks.iter().zip(&mut state.rows.layers);
        for (layer, (block, past)) in layers.enumerate() {
            let texts = Texts {
                lengths: &text.lengths,
                seen: &visible,
                rows,
                count,
                positions: positions.for_layer(layer),
            };
            if layer + 1 == decoder.blocks.len() {
                block.remember(&x, (past, &texts), &pass)?;
            } else {
                x = block.read(&x, (past, &texts), &pass)?;
            }
        }
        if before > 0 || !state.rows.history.is_empty() {
            Self::compact(state)?;
        }
        Ok(())
    }

    /// Removes from the cache what no row remembers any more: tokens that were read as a whole, and
    /// steps of which no row remembers a token.
    fn compact(state: &mut TextState) -> Result<()> {
        let DecodedRows { layers, history, ranges } = &mut state.rows;
        let rows: Vec<u32> = ranges.iter().flat_map(|r| r.start as u32..r.end as u32).collect();
        // A step is kept if at least one row remembers the token that it added.
        let is_seen = |rows: &Vec<u32>| rows.iter().any(|&row| row != ABSENT);
        let is_kept: Vec<bool> = history.iter().map(is_seen).collect();
        for layer in layers {
            layer.cache.keep(&rows, &is_kept)?;
        }
        let mut first = 0;
        for range in ranges {
            *range = first..first + range.len();
            first = range.end;
        }
        state.read = first;
        history.retain(is_seen);
        Ok(())
    }

    fn hidden(&self, state: &mut TextState, tokens: &[u32]) -> Result<Tensor> {
        let pass = Pass::infer(&self.packs);
        let decoder = &self.model.decoder;
        let at: Arc<[u32]> = state.texts.iter().map(|text| text.len() as u32).collect();
        let mut x = self.model.embedding.step(tokens, &at, &pass)?; // (R, D), R rows
        let positions = decoder.relative.prepare_cached(&at, &pass)?;
        state.rows.advance();
        for (text, &token) in state.texts.iter_mut().zip(tokens) {
            text.push(token);
        }
        let DecodedRows { layers, history, ranges } = &mut state.rows;
        for (layer, (block, past)) in decoder.blocks.iter().zip(layers).enumerate() {
            let rows = PastRows { read: ranges, history, positions: positions.for_layer(layer) };
            x = block.step(&x, (past, &rows), None, &pass)?;
        }
        Ok(decoder.finish(x, &pass)?) // (R, D), R rows of the width D
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, ModelConfig};
    use candle_core::{DType, Device};

    /// Checks that the cache has no more steps than the context has tokens, also in the shortest
    /// context, in which nothing is read again.
    #[test]
    fn the_cache_is_as_short_as_the_context() {
        let config =
            ModelConfig { d_model: 8, d_ff: 8, heads: 2, decoder_layers: 1, ..Default::default() };
        let builder = Builder::seeded(1, &Device::Cpu, DType::F32);
        let model = LanguageModel::new(&config, 9, builder).expect("a model");
        for (context, text) in [(1, &[][..]), (1, &[4, 5]), (2, &[4]), (5, &[]), (5, &[4, 5])] {
            let inference = model.inference(context);
            let mut state = inference.start(&[text, text]).expect("a state");
            for at in 0..40 {
                inference.step(&mut state, &[4, 5]).expect("logits").for_each(drop);
                let steps = state.rows.history.len();
                assert!(steps <= context, "{context} {text:?}: {steps} steps after {at}");
            }
        }
    }
}
