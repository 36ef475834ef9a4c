//! Compiled RASP programs: an encoder, its vocabulary, and how to read its answers.

use super::emission::{Basis, Emission, HARD};
use super::graph::Graph;
use super::parser::Program;
use crate::TheoryError;
use crate::blueprint::{Blueprint, Encoder};
use taper_model::{AttentionRecord, Model, Pass, Sequences};
use taper_plots::{Figure, Heatmap};

/// Tokens that every vocabulary begins with.
const SPECIAL: [&str; 7] = ["<pad>", "<unk>", "<s>", "</s>", "<cls>", "<sep>", "<mask>"];
/// Id of `<cls>`, the first token of every text.
const CLASS: usize = 4;
/// Longest input that a program can be compiled for.
const LONGEST: usize = 512;

/// A program as an encoder of texts.
#[derive(Debug, Clone)]
pub struct CompiledProgram {
    program: Program,
    longest: usize,
    vocabulary: Vec<String>,
    encoder: Encoder,
}

impl CompiledProgram {
    /// Compiles a program for inputs of at most `longest` characters.
    ///
    /// # Errors
    /// In the following cases:
    /// - if an expression has arguments of the wrong kinds, too many possible values, or numbers
    ///   that the encoder could not tell apart in f32; the error has the line and column of the
    ///   expression
    /// - if `longest` is 0 or too large
    /// - if the residual stream would need too many columns
    pub fn new(program: &Program, longest: usize) -> Result<Self, TheoryError> {
        if longest == 0 || longest > LONGEST {
            let message = format!("programs are compiled for 1 to {LONGEST} characters");
            return Err(TheoryError::Input(message));
        }
        let graph = Graph::new(program, longest)?;
        let mut vocabulary: Vec<String> = SPECIAL.map(str::to_owned).into();
        vocabulary.extend(program.alphabet().iter().map(char::to_string));
        let domain = &graph.nodes[graph.output].domain;
        let mut answers = Vec::new();
        for value in &domain.values {
            let shown = domain.shown(*value, program);
            let id = vocabulary.iter().position(|one| *one == shown).unwrap_or_else(|| {
                vocabulary.push(shown);
                vocabulary.len() - 1
            });
            answers.push(id);
        }
        // Positions for `<cls>`, the input and `<sep>`.
        let mut blueprint = Blueprint::new(vocabulary.len(), longest + 2);
        let basis = basis(&mut blueprint, program, longest);
        let hot = Emission::new(&mut blueprint, basis, longest).write(&graph)?;
        for (id, form) in answers.into_iter().zip(hot) {
            blueprint.logit(id, form * HARD);
        }
        let encoder = blueprint.encoder()?;
        Ok(Self { program: program.clone(), longest, vocabulary, encoder })
    }

    /// The encoder.
    #[must_use]
    pub const fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Texts of the tokens; the index of a text is the id of its token.
    #[must_use]
    pub fn vocabulary(&self) -> &[String] {
        &self.vocabulary
    }

    /// Number of layers, number of heads in each layer, and width of the residual stream.
    #[must_use]
    pub fn shape(&self) -> (usize, usize, usize) {
        let config = self.encoder.0.config();
        (config.encoder_layers, config.heads, config.d_model)
    }

    /// Token ids of `<cls>` and of an input.
    fn ids(&self, input: &str) -> Result<Vec<u32>, TheoryError> {
        self.program.check(input)?;
        let length = input.chars().count();
        if length > self.longest {
            return Err(TheoryError::Input(format!(
                "the input has {length} characters, and the program was compiled for {}",
                self.longest
            )));
        }
        let alphabet = self.program.alphabet();
        let id = |character| alphabet.iter().position(|one| *one == character).unwrap_or(0);
        let ids = input.chars().map(|character| (SPECIAL.len() + id(character)) as u32);
        Ok([CLASS as u32].into_iter().chain(ids).collect())
    }

    /// Runs the encoder on inputs; returns for each input the answer at each of its characters.
    ///
    /// # Errors
    /// If an input has characters outside of the alphabet, or is too long.
    pub fn run(&self, inputs: &[&str]) -> Result<Vec<Vec<String>>, TheoryError> {
        let rows = inputs.iter().map(|input| self.ids(input)).collect::<Result<Vec<_>, _>>()?;
        let answers = self.encoder.answers(&Sequences::pack(&rows))?;
        let mut rest = answers.as_slice();
        let take = |row: &Vec<u32>| {
            let (own, others) = rest.split_at(row.len());
            rest = others;
            own[1..].iter().map(|id| self.vocabulary[*id as usize].clone()).collect()
        };
        Ok(rows.iter().map(take).collect())
    }

    /// Returns the attention weights of every layer on `<cls>` and the input.
    ///
    /// # Errors
    /// If the input has characters outside of the alphabet, or is too long.
    pub fn attention(&self, input: &str) -> Result<Vec<AttentionRecord>, TheoryError> {
        let pass = Pass::evaluate_with_attention();
        self.encoder.hidden(&Sequences::pack(&[self.ids(input)?]), &pass)?;
        Ok(pass.into_attention())
    }

    /// Plots the attention weights on an input. Returns a name and a figure for each head that has
    /// scores.
    ///
    /// # Errors
    /// See [`CompiledProgram::attention`].
    pub fn figures(&self, input: &str) -> Result<Vec<(String, Figure)>, TheoryError> {
        let names: Vec<String> =
            ["<cls>".to_owned()].into_iter().chain(input.chars().map(String::from)).collect();
        let mut figures = Vec::new();
        for (layer, record) in (1..).zip(self.attention(input)?) {
            let heads: Vec<Vec<Vec<f32>>> = record.weights.squeeze(0)?.to_vec3()?;
            for (head, weights) in (1..).zip(heads) {
                // A head that is not used in this layer gives all tokens the same weight.
                if weights.iter().flatten().all(|weight| *weight == weights[0][0]) {
                    continue;
                }
                let wide = |row: Vec<f32>| row.into_iter().map(f64::from).collect();
                let heatmap = Heatmap {
                    row_label: "query".to_owned(),
                    column_label: "key".to_owned(),
                    rows: names.clone(),
                    columns: names.clone(),
                    values: weights.into_iter().map(wide).collect(),
                    strongest: Some(1.0),
                };
                let title = format!("Layer {layer}, head {head}");
                let description = format!("Attention weights on {input:?}.");
                let figure = Figure::new(title, description, heatmap);
                figures.push((format!("layer-{layer}-head-{head}"), figure));
            }
        }
        Ok(figures)
    }
}

/// Adds the columns that all programs have, and sets their values in the embeddings.
fn basis(blueprint: &mut Blueprint, program: &Program, longest: usize) -> Basis {
    let basis = Basis {
        is_class: blueprint.column(),
        is_token: blueprint.column(),
        tokens: blueprint.columns(program.alphabet().len()),
        indices: blueprint.columns(longest),
    };
    blueprint.token(CLASS, basis.is_class, 1.0);
    for (number, column) in basis.tokens.iter().enumerate() {
        blueprint.token(SPECIAL.len() + number, *column, 1.0);
        blueprint.token(SPECIAL.len() + number, basis.is_token, 1.0);
    }
    for (index, column) in basis.indices.iter().enumerate() {
        blueprint.position(index + 1, *column, 1.0);
    }
    basis
}
