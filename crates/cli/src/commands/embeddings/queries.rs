//! `taper embeddings nearest|analogy|evaluate|convert`: queries of vectors.

use anyhow::{Result, bail};
use taper_embeddings::{SimilaritySet, WordVectors};

use crate::arguments::{
    EmbeddingsAnalogy, EmbeddingsConvert, EmbeddingsEvaluate, EmbeddingsNearest, VectorFile,
};
use crate::text::print_line;

pub(super) fn nearest(arguments: &EmbeddingsNearest) -> Result<()> {
    let vectors = WordVectors::open(&arguments.file.vectors)?;
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    print(&arguments.file, vectors.nearest(&words, arguments.count)?)
}

pub(super) fn analogy(arguments: &EmbeddingsAnalogy) -> Result<()> {
    let vectors = WordVectors::open(&arguments.file.vectors)?;
    let words = [&arguments.a, &arguments.b, &arguments.c].map(String::as_str);
    print(&arguments.file, vectors.analogy(words, arguments.count)?)
}

/// Prints a word and its cosine on each line.
fn print(file: &VectorFile, found: Vec<(&str, f64)>) -> Result<()> {
    for (word, cosine) in found {
        print_line(&match file.json {
            true => serde_json::json!({ "word": word, "cosine": cosine }).to_string(),
            false => format!("{cosine:.4}  {word}"),
        })?;
    }
    Ok(())
}

pub(super) fn evaluate(arguments: &EmbeddingsEvaluate) -> Result<()> {
    let vectors = WordVectors::open(&arguments.file.vectors)?;
    for path in &arguments.sets {
        let agreement = SimilaritySet::read(path)?.agreement(&vectors)?;
        print_line(&match arguments.file.json {
            true => serde_json::json!({ "file": path, "agreement": agreement }).to_string(),
            false => format!(
                "{}: Spearman {:.4} over {} pairs; {} more have a word without a vector",
                path.display(),
                agreement.spearman,
                agreement.pairs,
                agreement.out_of_vocabulary
            ),
        })?;
    }
    Ok(())
}

pub(super) fn convert(arguments: &EmbeddingsConvert) -> Result<()> {
    let output = &arguments.output;
    if output.exists() {
        bail!("{} exists already and is left as it is", output.display());
    }
    Ok(WordVectors::open(&arguments.vectors)?.write(output, arguments.format.into())?)
}
