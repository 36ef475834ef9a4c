//! Vectors of texts: the mean of the outputs of the last layer over the tokens of a text.
//!
//! This mean is the simplest way of pooling, and a good one (Reimers and Gurevych 2019,
//! "Sentence-BERT", section 6). Special tokens around a text (`</s>`, `[CLS]`, `[SEP]`) are
//! included in the mean.

use anyhow::{Context, Result, bail};
use candle_core::{DType, Tensor};
use taper_data::{LabelledConfig, rows_of};
use taper_model::{LanguageModel, MaskedLanguageModel, Model, ModelError, Pass, Sequences};
use taper_ops::threads::in_pool;

use crate::LoadedRun;
use crate::finite::require_finite;
use crate::generation::TextScorer;
use crate::translation::encode_sources;

/// Approximate number of tokens in one batch.
const TOKENS: usize = 4096;

/// Vectors of texts from the last layer of the encoder of a translation model.
///
/// # Shapes
/// N texts → N rows of the encoder's width.
///
/// # Errors
/// If a text is empty or has more tokens than the model has positions, or the model fails.
pub fn of_sources(run: &LoadedRun, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    require_text(texts)?;
    let rows = encode_sources(&run.tokenizers, texts)?;
    means(&run.model, &rows, |batch| {
        Ok(run.model.encode(batch, &Pass::evaluate())?.hidden().clone())
    })
}

/// Vectors of texts from the last layer of a language model.
///
/// # Shapes
/// N texts → N rows of the model's width.
///
/// # Errors
/// See [`of_sources`].
pub fn of_texts(run: &LoadedRun<LanguageModel>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    require_text(texts)?;
    let scorer = TextScorer::new(run)?;
    let read = |(index, text): (usize, &String)| {
        scorer.read(text).with_context(|| format!("line {}", index + 1))
    };
    let rows = texts.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
    means(&run.model, &rows, |batch| run.model.hidden(batch, &Pass::evaluate()))
}

/// Vectors of texts from the last layer of a masked language model.
///
/// # Shapes
/// N texts → N rows of the model's width.
///
/// # Errors
/// See [`of_sources`].
pub fn of_masked(run: &LoadedRun<MaskedLanguageModel>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    require_text(texts)?;
    let max_tokens = run.config.data.text.block_length;
    let settings = LabelledConfig { max_tokens, ..LabelledConfig::default() };
    let rows = rows_of(run.tokenizers.target(), texts, &settings)?;
    let rows: Vec<Vec<u32>> = rows.into_iter().map(|row| row.ids).collect();
    means(&run.model, &rows, |batch| {
        let segments = vec![0; batch.ids.len()];
        run.model.hidden(batch, &segments, &Pass::evaluate())
    })
}

fn require_text(texts: &[String]) -> Result<()> {
    match texts.iter().position(|text| text.trim().is_empty()) {
        Some(index) => bail!("line {} is empty: it has no vector", index + 1),
        None => Ok(()),
    }
}

/// For each row (token sequence), the mean of the states of its tokens. A state is an output of the
/// last layer. `states` computes the states of a batch, of shape `(M, D)` for the M tokens of all
/// rows in the batch and the width D.
fn means<M: Model>(
    model: &M,
    rows: &[Vec<u32>],
    states: impl Fn(&Sequences) -> Result<Tensor, ModelError> + Sync,
) -> Result<Vec<Vec<f32>>> {
    let mut found = Vec::with_capacity(rows.len());
    while found.len() < rows.len() {
        let mut tokens = 0;
        let fits = |row: &&Vec<u32>| {
            let before = tokens;
            tokens += row.len();
            before == 0 || tokens <= TOKENS
        };
        let batch: Vec<&Vec<u32>> = rows[found.len()..].iter().take_while(fits).collect();
        let packed = Sequences::pack(&batch);
        let hidden = in_pool(model.device(), || states(&packed))
            .with_context(|| format!("lines from {} on cannot be read", found.len() + 1))?;
        let mut start = 0;
        for row in batch {
            let mean = hidden.narrow(0, start, row.len())?.to_dtype(DType::F32)?.mean(0)?; // (D)
            let mean = mean.to_vec1::<f32>()?;
            require_finite("the states", mean.iter().copied())?;
            found.push(mean);
            start += row.len();
        }
    }
    Ok(found)
}
