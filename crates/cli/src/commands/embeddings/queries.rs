//! `taper embeddings nearest|analogy|similarities|evaluate|convert`: queries of vectors.

use anyhow::{Context, Result, ensure};
use taper_embeddings::{SimilaritySet, WordVectors};
use taper_plots::{Figure, Heatmap, Language};
use taper_run::folder::files::write_atomically;

use crate::arguments::{
    EmbeddingsAnalogy, EmbeddingsConvert, EmbeddingsEvaluate, EmbeddingsNearest,
    EmbeddingsSimilarities, VectorFile,
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

pub(super) fn similarities(arguments: &EmbeddingsSimilarities) -> Result<()> {
    let words = &arguments.words;
    let cosines = WordVectors::open(&arguments.file.vectors)?.similarities(words)?;
    if let Some(path) = &arguments.svg {
        let figure = figure(words, cosines.clone(), arguments.language.into());
        write_atomically(path, figure.draw()?.standalone().as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        if !arguments.file.json {
            return Ok(());
        }
    }
    if arguments.file.json {
        let found = serde_json::json!({ "words": words, "cosines": cosines });
        return print_line(&found.to_string());
    }
    let width = words.iter().map(|word| word.chars().count()).max().unwrap_or(0).max(5);
    let cell = |word: &String| format!("  {word:>width$}");
    print_line(&format!("{:width$}{}", "", words.iter().map(cell).collect::<String>()))?;
    for (word, row) in words.iter().zip(cosines) {
        let cosines = row.iter().map(|cosine| format!("  {cosine:>width$.2}"));
        print_line(&format!("{word:<width$}{}", cosines.collect::<String>()))?;
    }
    Ok(())
}

/// Makes a heat map of the cosines of all pairs of words.
fn figure(words: &[String], cosines: Vec<Vec<f64>>, language: Language) -> Figure {
    let nearest = words.iter().zip(&cosines).enumerate().filter_map(|(at, (word, row))| {
        let others = (0..words.len()).filter(|&other| other != at);
        let near = others.max_by(|&one, &other| row[one].total_cmp(&row[other]))?;
        Some(format!("{word}: {} {:.2}", words[near], row[near]))
    });
    let nearest = nearest.collect::<Vec<_>>().join("; ");
    let said = language.choose("Each word and the nearest of the others. ", "每个词与其最近的词。");
    let heatmap = Heatmap {
        row_label: String::new(),
        column_label: language.choose("cosine of two words", "两个词的余弦").to_owned(),
        rows: words.to_vec(),
        columns: words.to_vec(),
        values: cosines,
        strongest: Some(1.0),
    };
    let title = language.choose("Similarity of words", "词的相似度");
    Figure::new(title, format!("{said}{nearest}"), heatmap)
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
    ensure!(!output.exists(), "{} exists already and is left as it is", output.display());
    Ok(WordVectors::open(&arguments.vectors)?.write(output, arguments.format.into())?)
}
