//! Division of RASP programs into words.

use crate::{Place, TheoryError};

/// A word of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lexeme {
    Name(String),
    Number(i64),
    Character(char),
    Text(String),
    /// An operator or another mark, such as `==` or `(`.
    Mark(&'static str),
    /// End of a line outside of parentheses, or of the program.
    End,
}

impl Lexeme {
    /// Description for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Number(number) => number.to_string(),
            Self::Character(character) => format!("'{character}'"),
            Self::Text(text) => format!("\"{text}\""),
            Self::Mark(mark) => (*mark).to_owned(),
            Self::End => "the end of the line".to_owned(),
        }
    }
}

/// All marks; a mark comes after the longer marks that begin with it.
const MARKS: [&str; 13] = ["==", "!=", "<=", ">=", "<", ">", "=", "(", ")", ",", "+", "-", "*"];

/// Largest number of words of a program. It also bounds the depth of expressions.
const MOST_WORDS: usize = 2000;

/// Divides a program into words, each with its line and column. `#` begins a comment.
pub(super) fn lexemes(text: &str) -> Result<Vec<(Place, Lexeme)>, TheoryError> {
    let mut lexemes = Vec::new();
    let mut depth = 0_usize;
    for (number, line) in (1..).zip(text.lines()) {
        let mut column = 1;
        let mut rest = line;
        loop {
            let blank = rest.len() - rest.trim_start().len();
            column += rest[..blank].chars().count();
            rest = &rest[blank..];
            let place = Place { line: number, column };
            if rest.is_empty() || rest.starts_with('#') {
                if depth == 0 {
                    lexemes.push((place, Lexeme::End));
                }
                break;
            }
            let (lexeme, length) = first(rest, place)?;
            match lexeme {
                Lexeme::Mark("(") => depth += 1,
                Lexeme::Mark(")") => depth = depth.saturating_sub(1),
                _ => {}
            }
            column += rest[..length].chars().count();
            rest = &rest[length..];
            lexemes.push((place, lexeme));
            if lexemes.len() > MOST_WORDS {
                let message = format!("a program has at most {MOST_WORDS} words");
                return Err(TheoryError::program(place, message));
            }
        }
    }
    let last = text.lines().last().map_or(0, |line| line.chars().count());
    let place = Place { line: text.lines().count().max(1), column: last + 1 };
    lexemes.push((place, Lexeme::End));
    Ok(lexemes)
}

/// Returns the first word of a text that does not begin with a blank, and the length of the word in
/// bytes.
fn first(text: &str, place: Place) -> Result<(Lexeme, usize), TheoryError> {
    let refuse = |message: String| Err(TheoryError::program(place, message));
    let until = |is_part: fn(char) -> bool| {
        text.find(|character| !is_part(character)).unwrap_or(text.len())
    };
    let begins = text.chars().next().unwrap_or(' ');
    if begins.is_ascii_digit() {
        let length = until(|character| character.is_ascii_digit());
        return match text[..length].parse() {
            Ok(number) if number <= 1_000_000 => Ok((Lexeme::Number(number), length)),
            _ => refuse(format!("{} is too large: at most 1000000", &text[..length])),
        };
    }
    if begins.is_alphabetic() || begins == '_' {
        let length = until(|character| character.is_alphanumeric() || character == '_');
        return Ok((Lexeme::Name(text[..length].to_owned()), length));
    }
    if begins == '\'' {
        let mut characters = text.chars().skip(1);
        return match (characters.next(), characters.next()) {
            (Some(character), Some('\'')) => {
                Ok((Lexeme::Character(character), 2 + character.len_utf8()))
            }
            _ => refuse("a character stands between two ', such as 'a'".to_owned()),
        };
    }
    if begins == '"' {
        return match text[1..].find('"') {
            Some(end) => Ok((Lexeme::Text(text[1..=end].to_owned()), end + 2)),
            None => refuse("a text ends with \" on its own line".to_owned()),
        };
    }
    match MARKS.iter().find(|mark| text.starts_with(**mark)) {
        Some(mark) => Ok((Lexeme::Mark(mark), mark.len())),
        None => refuse(format!("{begins:?} has no meaning here")),
    }
}
