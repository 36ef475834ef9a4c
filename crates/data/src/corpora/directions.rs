//! Directions of translation in which a model is trained and measured. They follow from the corpora
//! in a recipe (the TOML file with all settings of a training).

use crate::config::language_mark;
use crate::{Corpora, Corpus, DataConfig, Direction, Error, Result};

/// Returns the items without repetitions, in the order of their first occurrence.
fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}

impl DataConfig {
    /// Direction of a corpus. A language that the corpus does not set is taken from the recipe.
    pub fn direction_of(&self, corpus: &Corpus) -> Direction {
        let or =
            |given: &String, usual: &String| if given.is_empty() { usual } else { given }.clone();
        Direction {
            from: or(&corpus.from, &self.source_language),
            to: or(&corpus.to, &self.target_language),
        }
    }

    /// Directions of the corpora of a split, without repetitions, in the order of their first
    /// occurrence.
    pub fn directions_of(&self, split: &Corpora) -> Vec<Direction> {
        distinct(split.iter().map(|corpus| self.direction_of(corpus)))
    }

    /// Corpora of `split` in the direction of this configuration, from its source language to its
    /// target language. For a model of one direction, these are all corpora of the split.
    ///
    /// # Errors
    ///
    /// [`Error::Direction`] if all corpora of the split have other directions.
    pub fn in_own_direction(&self, split: Corpora) -> Result<Corpora> {
        if !self.is_multilingual() {
            return Ok(split);
        }
        let own = Direction::new(&self.source_language, &self.target_language);
        let chosen: Vec<Corpus> =
            split.iter().filter(|corpus| self.direction_of(corpus) == own).cloned().collect();
        if chosen.is_empty() {
            let others = self.directions_of(&split);
            let others: Vec<String> = others.iter().map(Direction::to_string).collect();
            return Err(Error::Direction {
                message: format!(
                    "is used from {} into {}, but {} has text of {}: choose one of these \
                     directions, or another split",
                    own.from,
                    own.to,
                    split.name(),
                    others.join(", ")
                ),
            });
        }
        Ok(Corpora(chosen))
    }

    /// Directions that the model is trained in, without repetitions, in the order of the corpora.
    pub fn trained_directions(&self) -> Vec<Direction> {
        self.directions_of(&self.train)
    }

    /// Directions that the model is trained or measured in. The directions of training come first;
    /// the others are zero-shot (measured without training).
    pub fn directions(&self) -> Vec<Direction> {
        let splits = [&self.train, &self.validation, &self.test];
        distinct(splits.into_iter().flat_map(|split| self.directions_of(split)))
    }

    /// True if the model is trained in several directions. Its token sequences then contain a token
    /// that names the target language.
    pub fn is_multilingual(&self) -> bool {
        self.trained_directions().len() > 1
    }

    /// Tokens that name the target languages in token sequences, such as `<2de>`; empty for a model
    /// of one direction.
    pub(crate) fn language_marks(&self) -> Vec<String> {
        match self.is_multilingual() {
            true => distinct(self.trained_directions().into_iter().map(|one| one.to))
                .iter()
                .map(|language| language_mark(language))
                .collect(),
            false => Vec::new(),
        }
    }

    /// Copy of the configuration with the languages of `direction` as source and target language.
    /// Each corpus keeps its direction and its name.
    #[must_use]
    pub fn toward(&self, direction: &Direction) -> Self {
        let mut data = self.in_languages(direction);
        for split in [&mut data.train, &mut data.validation, &mut data.test] {
            for corpus in &mut split.0 {
                let Direction { from, to } = self.direction_of(corpus);
                corpus.name = corpus.name();
                (corpus.from, corpus.to) = (from, to);
            }
        }
        data
    }

    /// Copy of the configuration with the languages of `direction` as source and target language,
    /// for reading the files of this direction.
    pub(crate) fn in_languages(&self, direction: &Direction) -> Self {
        Self {
            source_language: direction.from.clone(),
            target_language: direction.to.clone(),
            ..self.clone()
        }
    }

    /// Direction from `from` to `to`. A language that is `None` is taken from the first trained
    /// direction that agrees with the other argument.
    ///
    /// # Errors
    ///
    /// [`Error::Direction`] if the model was not trained to read `from` or to write `to`. Also if
    /// `to` is `None` and several target languages are possible. Also if `from` and `to` are the
    /// same language, unless the model was trained in this direction.
    pub fn choose_direction(&self, from: Option<&str>, to: Option<&str>) -> Result<Direction> {
        let trained = self.trained_directions();
        let listed = |languages: Vec<&String>| {
            languages.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let read = distinct(trained.iter().map(|one| &one.from));
        let written = distinct(trained.iter().map(|one| &one.to));
        let is_open_or = |asked: Option<&str>, own: &str| asked.is_none_or(|asked| asked == own);
        if let Some(from) = from
            && !read.iter().any(|language| *language == from)
        {
            let message = format!("does not read {from:?}: it reads {}", listed(read));
            return Err(Error::Direction { message });
        }
        if let Some(to) = to
            && !written.iter().any(|language| *language == to)
        {
            let message =
                format!("does not translate into {to:?}: it translates into {}", listed(written));
            return Err(Error::Direction { message });
        }
        let fitting: Vec<&Direction> = trained
            .iter()
            .filter(|one| is_open_or(from, &one.from) && is_open_or(to, &one.to))
            .collect();
        let into = distinct(fitting.iter().map(|one| &one.to));
        match (fitting.first(), from, to) {
            (Some(_), _, None) if into.len() > 1 => {
                let message =
                    format!("translates into several languages, {}: choose one (to)", listed(into));
                Err(Error::Direction { message })
            }
            (Some(&first), ..) => Ok(first.clone()),
            // The model knows both languages, but was not trained in this direction: zero-shot
            // translation.
            (None, Some(from), Some(to)) if from != to => Ok(Direction::new(from, to)),
            _ => Err(Error::Direction {
                message: format!(
                    "does not translate from {} into {}",
                    from.unwrap_or_default(),
                    to.unwrap_or_default()
                ),
            }),
        }
    }

    /// Refuses impossible directions, and directions with languages that are not in the training
    /// data.
    pub(crate) fn validate_directions(&self) -> Result<()> {
        if !(self.languages.temperature >= 1.0 && self.languages.temperature.is_finite()) {
            return wrong("data.languages.temperature", "must be a number from 1".to_owned());
        }
        let trained = self.trained_directions();
        for (key, split) in [
            ("data.train", &self.train),
            ("data.validation", &self.validation),
            ("data.test", &self.test),
        ] {
            let has_direction = |corpus: &&Corpus| !corpus.from.is_empty() || !corpus.to.is_empty();
            for corpus in split.iter().filter(|corpus| trained.len() > 1 || has_direction(corpus)) {
                validate_direction(key, &self.direction_of(corpus), &trained)?;
            }
        }
        if trained.len() > 1 { self.validate_as_multilingual() } else { Ok(()) }
    }

    /// Refuses settings that are possible only for a model of one direction.
    fn validate_as_multilingual(&self) -> Result<()> {
        if self.bidirectional_epochs > 0 {
            return wrong(
                "data.bidirectional_epochs",
                "turns pairs of one direction round: set it to 0, and name the corpus for each \
                 direction, from and to exchanged"
                    .to_owned(),
            );
        }
        if self.hold_out > 0 {
            return wrong(
                "data.hold_out",
                "draws a validation set of one direction: set it to 0, and name one for each \
                 direction in data.validation"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// Refuses the direction of a corpus if a language has no valid name, or if the training data have
/// no such source language or no such target language. `key` is the key of the corpus's split.
fn validate_direction(
    key: &'static str,
    direction: &Direction,
    trained: &[Direction],
) -> Result<()> {
    let Direction { from, to } = direction;
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|one| one.is_alphanumeric() || "-_".contains(one))
    };
    if !is_name(from) || !is_name(to) {
        let message = format!(
            "from = {from:?}, to = {to:?}: the name of a language has letters, digits, - and _"
        );
        return wrong(key, message);
    }
    if !trained.iter().any(|one| one.to == *to) || !trained.iter().any(|one| one.from == *from) {
        let message = format!(
            "has text from {from} to {to}, but data.train has no corpus from {from}, or none to \
             {to}: leave this text out, or add such a corpus to data.train"
        );
        return wrong(key, message);
    }
    Ok(())
}

fn wrong(key: &'static str, message: String) -> Result<()> {
    Err(Error::Config { key, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(train: serde_json::Value, test: serde_json::Value) -> DataConfig {
        DataConfig {
            train: serde_json::from_value(train).expect("corpora"),
            validation: Corpora::default(),
            test: serde_json::from_value(test).expect("corpora"),
            ..DataConfig::default()
        }
    }

    fn european() -> DataConfig {
        config(
            serde_json::json!([
                { "stem": "a", "from": "en", "to": "de" },
                { "stem": "b", "from": "en", "to": "fr" },
                { "stem": "a", "from": "de", "to": "en" },
            ]),
            serde_json::json!({ "stem": "t", "from": "de", "to": "fr" }),
        )
    }

    #[test]
    fn directions_are_those_of_the_corpora() {
        let config = european();
        config.validate_directions().expect("possible");
        let shown = |directions: Vec<Direction>| {
            directions.iter().map(Direction::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(config.trained_directions()), "en-de en-fr de-en");
        assert_eq!(shown(config.directions()), "en-de en-fr de-en de-fr");
        assert_eq!(config.language_marks(), ["<2de>", "<2fr>", "<2en>"]);
        assert_eq!(config.train.name(), "a.en-de+b.en-fr+a.de-en");
        let one = DataConfig::default();
        assert_eq!(shown(one.directions()), "en-de");
        assert!(one.language_marks().is_empty() && one.train.name() == "train");
    }

    #[test]
    fn a_direction_is_chosen_by_what_is_known_of_it() {
        let config = european();
        let chosen = |from, to| config.choose_direction(from, to).map(|one| one.to_string());
        assert_eq!(chosen(None, Some("fr")).expect("one"), "en-fr");
        assert_eq!(chosen(Some("de"), None).expect("one"), "de-en");
        assert_eq!(chosen(Some("de"), Some("fr")).expect("zero-shot"), "de-fr");
        let refused = |from, to| chosen(from, to).expect_err("refused").to_string();
        assert!(refused(None, None).contains("de, fr, en: choose one (to)"));
        assert!(refused(Some("en"), None).contains("de, fr: choose"));
        assert!(refused(None, Some("zh")).contains("does not translate into \"zh\""));
        assert!(refused(Some("fr"), None).contains("does not read \"fr\""));
        assert!(refused(Some("en"), Some("en")).contains("from en into en"));
    }

    #[test]
    fn only_corpora_of_the_own_direction_are_read() {
        let config = european();
        let names = |from: &str, to: &str| {
            let chosen = config.toward(&Direction::new(from, to));
            let own = chosen.in_own_direction(chosen.train.clone());
            own.map(|own| own.name())
        };
        assert_eq!(names("en", "fr").expect("one"), "b.en-fr");
        assert_eq!(names("de", "en").expect("one"), "a.de-en");
        let refused = names("de", "fr").expect_err("none").to_string();
        assert!(refused.contains("from de into fr") && refused.contains("en-de, en-fr, de-en"));
        let one = DataConfig::default();
        assert_eq!(one.in_own_direction(one.test.clone()).expect("all"), one.test);
    }

    #[test]
    fn impossible_directions_are_refused() {
        let refused = |change: &dyn Fn(&mut DataConfig), phrase: &str| {
            let mut config = european();
            change(&mut config);
            let error = config.validate_directions().expect_err("refused").to_string();
            assert!(error.contains(phrase), "{error}");
        };
        refused(&|config| config.languages.temperature = 0.5, "data.languages.temperature");
        refused(&|config| config.languages.temperature = f64::NAN, "data.languages.temperature");
        refused(
            &|config| config.test.0[0].to = "zh".to_owned(),
            "data.test: has text from de to zh",
        );
        refused(&|config| config.train.0[0].to = "a/b".to_owned(), "letters, digits");
        refused(&|config| config.bidirectional_epochs = 1, "data.bidirectional_epochs");
        refused(&|config| config.hold_out = 5, "data.hold_out");
    }
}
