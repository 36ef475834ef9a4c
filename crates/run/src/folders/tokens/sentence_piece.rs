//! Reading and writing of SentencePiece models (Kudo and Richardson 2018) in files that end in
//! `.spm` or `.model`. Such a file is a Protocol Buffers message `ModelProto`. Of its fields, only
//! the few that determine how text is divided are needed.

use anyhow::{Context, Result, bail};

use crate::protobuf::{Message, Value, each_field};

/// SentencePiece model, which divides text into pieces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SentencePieceModel {
    /// Pieces in the order of their ids.
    pub(super) pieces: Vec<Piece>,
    /// Algorithm that divides text: 1 is Unigram, 2 is BPE.
    pub(super) algorithm: u64,
    /// Whether a character without a piece is represented by pieces for its bytes.
    pub(super) byte_fallback: bool,
    /// Whether the space between two words belongs to the end of the first word instead of the
    /// beginning of the second.
    pub(super) space_ends: bool,
    /// Compiled map from characters to their normal forms; empty if there is none.
    pub(super) characters: Vec<u8>,
    /// True if a space is put before a text.
    pub(super) adds_space: bool,
    /// Whether spaces at both ends of a text are removed, and repeated spaces reduced to one.
    pub(super) joins_spaces: bool,
}

/// Piece of the model's vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) score: f32,
    pub(super) kind: PieceKind,
}

/// Kind of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceKind {
    Normal,
    /// Piece that stands for text for which there is no other piece.
    Unknown,
    /// Special token, which does not occur in texts.
    Control,
    /// Piece defined by a user; its text is never divided.
    UserDefined,
    /// Piece that is not used any more.
    Unused,
    /// Piece for one byte of a character without a piece.
    Byte,
}

impl SentencePieceModel {
    /// Reads a model from `bytes`, the content of a file.
    ///
    /// # Errors
    /// When the content is not a message `ModelProto`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut model =
            Self { algorithm: 1, adds_space: true, joins_spaces: true, ..Self::default() };
        each_field(bytes, |number, value| {
            match (number, value) {
                (1, Value::Bytes(piece)) => model.pieces.push(Piece::read(piece)?),
                (2, Value::Bytes(spec)) => each_field(spec, |number, value| {
                    match (number, value) {
                        (3, Value::Number(kind)) => model.algorithm = kind,
                        (24, Value::Number(flag)) => model.space_ends = flag != 0,
                        (35, Value::Number(flag)) => model.byte_fallback = flag != 0,
                        _ => {}
                    }
                    Ok(())
                })?,
                (3, Value::Bytes(spec)) => each_field(spec, |number, value| {
                    match (number, value) {
                        (2, Value::Bytes(map)) => model.characters = map.to_vec(),
                        (3, Value::Number(flag)) => model.adds_space = flag != 0,
                        (4, Value::Number(flag)) => model.joins_spaces = flag != 0,
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })
        .context("not a model of SentencePiece")?;
        if model.pieces.is_empty() {
            bail!("not a model of SentencePiece: it has no pieces");
        }
        Ok(model)
    }

    /// Content of a file with this model. Roles of special tokens are found by their usual
    /// spellings.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut all = Message::default();
        for piece in &self.pieces {
            let mut one = Message::default();
            one.bytes(1, piece.text.as_bytes());
            one.float(2, piece.score);
            one.number(3, piece.kind.number());
            all.bytes(1, &one.0);
        }
        let mut training = Message::default();
        training.number(3, self.algorithm);
        training.number(4, self.pieces.len() as u64);
        training.number(24, self.space_ends.into());
        training.number(35, self.byte_fallback.into());
        let special = [(40, 45, "<unk>"), (41, 46, "<s>"), (42, 47, "</s>"), (43, 48, "<pad>")];
        for (id, name, spelling) in special {
            let place = self.pieces.iter().position(|piece| piece.text == spelling);
            // -1 in 64 bits means that there is no such token.
            training.number(id, place.map_or(u64::MAX, |place| place as u64));
            training.bytes(name, spelling.as_bytes());
        }
        all.bytes(2, &training.0);
        let mut normal = Message::default();
        normal.bytes(1, b"identity");
        if !self.characters.is_empty() {
            normal.bytes(2, &self.characters);
        }
        normal.number(3, self.adds_space.into());
        normal.number(4, self.joins_spaces.into());
        // Within pieces, the character U+2581 stands for a space.
        normal.number(5, 1);
        all.bytes(3, &normal.0);
        all.0
    }
}

impl PieceKind {
    const fn number(self) -> u64 {
        match self {
            Self::Normal => 1,
            Self::Unknown => 2,
            Self::Control => 3,
            Self::UserDefined => 4,
            Self::Unused => 5,
            Self::Byte => 6,
        }
    }
}

impl Piece {
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut piece = Self { text: String::new(), score: 0.0, kind: PieceKind::Normal };
        each_field(bytes, |number, value| {
            match (number, value) {
                (1, Value::Bytes(text)) => {
                    piece.text = std::str::from_utf8(text).context("a piece")?.to_owned();
                }
                (2, Value::Float(score)) => piece.score = score,
                (3, Value::Number(kind)) => {
                    piece.kind = match kind {
                        1 => PieceKind::Normal,
                        2 => PieceKind::Unknown,
                        3 => PieceKind::Control,
                        4 => PieceKind::UserDefined,
                        5 => PieceKind::Unused,
                        6 => PieceKind::Byte,
                        other => bail!("a piece has the type {other}, which does not exist"),
                    };
                }
                _ => {}
            }
            Ok(())
        })?;
        if piece.text.is_empty() || !piece.score.is_finite() {
            bail!("a piece has no text, or a score that is not a number");
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let piece = |text: &str, score, kind| Piece { text: text.to_owned(), score, kind };
        let model = SentencePieceModel {
            pieces: vec![
                piece("<pad>", 0.0, PieceKind::Control),
                piece("<unk>", 0.0, PieceKind::Unknown),
                piece("<0xE6>", 0.0, PieceKind::Byte),
                piece("\u{2581}日本", -300.5, PieceKind::Normal),
            ],
            algorithm: 2,
            byte_fallback: true,
            space_ends: false,
            characters: vec![1, 2, 3],
            adds_space: false,
            joins_spaces: false,
        };
        assert_eq!(SentencePieceModel::read(&model.write()).expect("a model"), model);
    }
}
