//! Reads SQuAD's JSON, versions 1.1 and 2.0 (Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for
//! Machine Comprehension of Text"; 2018, "Know What You Don't Know"), paragraph by paragraph, so
//! that memory never holds a whole file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::tasks::running_text;
use crate::text::lines::open_text;
use crate::{Corpora, DataConfig, Error, Result};

/// Endings that the configured name of a file of questions may omit.
pub(crate) const ENDINGS: [&str; 2] = ["", ".json"];
/// Expected format of a file, for messages.
const EXPECTED: &str = "expected SQuAD's format: {\"data\": [{\"paragraphs\": [{\"context\": …, \
                        \"qas\": [{\"id\": …, \"question\": …, \"answers\": [{\"text\": …, \
                        \"answer_start\": …}]}]}]}]}";

/// The files of a split.
///
/// # Errors
///
/// [`Error::Missing`], with the names that were tried, if there is no such file.
pub(crate) fn files(config: &DataConfig, split: &Corpora) -> Result<Vec<PathBuf>> {
    running_text::reader::files_ending(config, split, &ENDINGS)
}

/// A text with the questions about it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Paragraph {
    /// The text.
    pub context: String,
    /// The questions.
    #[serde(rename = "qas")]
    pub questions: Vec<Question>,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Question {
    /// Identifier of the question.
    pub id: String,
    /// Text of the question.
    #[serde(rename = "question")]
    pub text: String,
    /// Correct answers; empty if the text does not answer the question.
    #[serde(default)]
    pub answers: Vec<Answer>,
    /// True if the file says that the question has no answer.
    #[serde(default)]
    is_impossible: bool,
}

/// An answer, which is a span of the text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// Words of the answer.
    pub text: String,
    /// Index in the context of the first character of the answer.
    #[serde(rename = "answer_start")]
    pub start: usize,
}

impl Answer {
    /// Byte range of the answer in `context`; `None` if `context` has another text at its place.
    pub(crate) fn bytes(&self, context: &str) -> Option<Range<usize>> {
        let start = byte_of_character(context, self.start)?;
        context[start..].starts_with(&self.text).then(|| start..start + self.text.len())
    }
}

/// Byte at which the character with the index `number` begins.
fn byte_of_character(text: &str, number: usize) -> Option<usize> {
    let starts = text.char_indices().map(|(at, _)| at);
    starts.chain([text.len()]).nth(number)
}

impl Paragraph {
    /// Refuses a paragraph with a question that is useless for training; `Err` describes the
    /// reason.
    fn check(&self, unanswerable: bool) -> std::result::Result<(), String> {
        if self.context.trim().is_empty() {
            return Err("has an empty context".to_owned());
        }
        self.questions.iter().try_for_each(|question| {
            let wrong = |message: String| Err(format!("question {:?} {message}", question.id));
            if question.text.trim().is_empty() {
                return wrong("has no text".to_owned());
            }
            if question.is_impossible && !question.answers.is_empty() {
                return wrong("is said to be impossible, but has an answer".to_owned());
            }
            if question.answers.is_empty() && !unanswerable {
                return wrong(
                    "has no answer: set data.questions.unanswerable = true if that is meant"
                        .to_owned(),
                );
            }
            for answer in &question.answers {
                if answer.text.trim().is_empty() {
                    return wrong("has an empty answer".to_owned());
                }
                if answer.bytes(&self.context).is_none() {
                    let count = answer.text.chars().count();
                    let there: String =
                        self.context.chars().skip(answer.start).take(count).collect();
                    return wrong(format!(
                        "has the answer {:?} at character {} of its context, counted from 0, but \
                         there is {there:?}",
                        answer.text, answer.start
                    ));
                }
            }
            Ok(())
        })
    }
}

/// Reads a split, and calls `visit` with each paragraph.
///
/// # Errors
///
/// If a file is missing or not in SQuAD's format, if the split has no question, or if an answer is
/// not at its stated place. Also if a question has no answer, unless
/// [`unanswerable`](crate::QuestionsConfig::unanswerable) is set. Errors about an answer or a
/// question contain the numbers of article and paragraph, counted from 1. Errors of `visit` are
/// returned too.
pub fn read_questions(
    config: &DataConfig,
    split: &Corpora,
    mut visit: impl FnMut(Paragraph) -> Result<()>,
) -> Result<()> {
    let files = files(config, split)?;
    let mut questions = 0;
    for path in &files {
        read_file(path, config.questions.unanswerable, &mut |paragraph| {
            questions += paragraph.questions.len();
            visit(paragraph)
        })?;
    }
    if questions == 0 {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Error::NoQuestions { split: split.name(), files: files.join(", ") });
    }
    Ok(())
}

fn read_file(
    path: &Path,
    unanswerable: bool,
    visit: &mut dyn FnMut(Paragraph) -> Result<()>,
) -> Result<()> {
    let stream = open_text(path)?;
    let mut file = File { path, unanswerable, visit, article: 0, paragraph: 0, failed: None };
    let mut json = serde_json::Deserializer::from_reader(stream);
    let read = Whole(&mut file).deserialize(&mut json).and_then(|()| json.end());
    let Err(error) = read else { return Ok(()) };
    if let Some(failed) = file.failed {
        return Err(failed);
    }
    if error.is_io() {
        return Err(Error::io(path, error.into()));
    }
    let place = match (file.article, file.paragraph) {
        (0, _) => String::new(),
        (article, 0) => format!("article {article}: "),
        (article, paragraph) => format!("article {article}, paragraph {paragraph}: "),
    };
    Err(Error::Malformed { path: path.to_owned(), message: format!("{place}{error}; {EXPECTED}") })
}

/// Position of the reader in a file.
struct File<'a> {
    path: &'a Path,
    unanswerable: bool,
    visit: &'a mut dyn FnMut(Paragraph) -> Result<()>,
    /// Number of the article, from 1; 0 before the first article and after the last.
    article: usize,
    /// Number of the paragraph in its article, from 1; 0 before the first paragraph and after the
    /// last.
    paragraph: usize,
    /// Error that ended the reading, if it is not an error of the JSON parser.
    failed: Option<Error>,
}

impl File<'_> {
    fn take(&mut self, paragraph: Paragraph) -> Result<()> {
        paragraph.check(self.unanswerable).map_err(|message| Error::Malformed {
            path: self.path.to_owned(),
            message: format!("article {}, paragraph {}: {message}", self.article, self.paragraph),
        })?;
        (self.visit)(paragraph)
    }
}

/// The file as a whole, an object. Only its key `data` is read.
struct Whole<'a, 'f>(&'a mut File<'f>);
/// The list of articles.
struct Articles<'a, 'f>(&'a mut File<'f>);
/// An article, an object. Only its key `paragraphs` is read.
struct Article<'a, 'f>(&'a mut File<'f>);
/// The list of the paragraphs of an article.
struct Paragraphs<'a, 'f>(&'a mut File<'f>);

/// Reads an object. `seed` reads the value of the key `wanted`; other keys are ignored.
fn object<'de, A: MapAccess<'de>, S: DeserializeSeed<'de, Value = ()>>(
    mut map: A,
    wanted: &'static str,
    seed: S,
) -> std::result::Result<(), A::Error> {
    let mut seed = Some(seed);
    while let Some(key) = map.next_key::<String>()? {
        if key != wanted {
            map.next_value::<IgnoredAny>()?;
            continue;
        }
        let seed = seed.take().ok_or_else(|| A::Error::duplicate_field(wanted))?;
        map.next_value_seed(seed)?;
    }
    match seed {
        Some(_) => Err(A::Error::missing_field(wanted)),
        None => Ok(()),
    }
}

/// Implements serde's traits for one of the four types above. `$ask` is the method of serde's
/// deserializer that reads such a value: an object or a list.
macro_rules! level {
    ($name:ident, $ask:ident, $expected:literal) => {
        impl<'de> DeserializeSeed<'de> for $name<'_, '_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(
                self,
                from: D,
            ) -> std::result::Result<(), D::Error> {
                from.$ask(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_, '_> {
            type Value = ();

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str($expected)
            }

            level!($ask);
        }
    };
    (deserialize_map) => {
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
            self.read(map)
        }
    };
    (deserialize_seq) => {
        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> std::result::Result<(), A::Error> {
            self.read(list)
        }
    };
}

level!(Whole, deserialize_map, "an object with the key \"data\"");
level!(Articles, deserialize_seq, "a list of articles");
level!(Article, deserialize_map, "an article, an object with the key \"paragraphs\"");
level!(Paragraphs, deserialize_seq, "a list of paragraphs");

impl Whole<'_, '_> {
    fn read<'de, A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        object(map, "data", Articles(self.0))
    }
}

impl Articles<'_, '_> {
    fn read<'de, A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        loop {
            self.0.article += 1;
            self.0.paragraph = 0;
            if list.next_element_seed(Article(self.0))?.is_none() {
                self.0.article = 0;
                return Ok(());
            }
        }
    }
}

impl Article<'_, '_> {
    fn read<'de, A: MapAccess<'de>>(self, map: A) -> std::result::Result<(), A::Error> {
        object(map, "paragraphs", Paragraphs(self.0))
    }
}

impl Paragraphs<'_, '_> {
    fn read<'de, A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        loop {
            self.0.paragraph += 1;
            let Some(paragraph) = list.next_element::<Paragraph>()? else {
                self.0.paragraph = 0;
                return Ok(());
            };
            if let Err(error) = self.0.take(paragraph) {
                self.0.failed = Some(error);
                return Err(A::Error::custom("a paragraph was refused"));
            }
        }
    }
}
