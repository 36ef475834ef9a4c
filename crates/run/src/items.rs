//! Items that are processed together, although some of them can be invalid.

use anyhow::{Context, Result};

use taper_decoding::DecodingError;

use crate::NotFinite;
use crate::advice::{one_line_with, without_causes};

/// Error that concerns one of several items. Its text names the item and the reason. The other
/// items are still processed.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct BadItem {
    text: String,
    /// True if the error is a value of the model that is not finite.
    is_not_finite: bool,
    /// The same text with the advice about it.
    #[source]
    advised: anyhow::Error,
}

impl BadItem {
    /// Converts `error` to a `BadItem` with the same text and the same advice.
    #[must_use]
    pub fn from_error(error: &anyhow::Error) -> anyhow::Error {
        let text = one_line_with(error, |_| None);
        let is_not_finite = error.chain().any(|cause| {
            let of_search = matches!(
                cause.downcast_ref(),
                Some(DecodingError::NotADistribution { .. } | DecodingError::NotFinite { .. })
            );
            of_search || cause.is::<NotFinite>()
        });
        Self { text, is_not_finite, advised: without_causes(error) }.into()
    }

    /// True if the item has no answer because the model gave a value that is not finite, which is
    /// not the fault of the item.
    #[must_use]
    pub fn is_not_finite(&self) -> bool {
        self.is_not_finite
    }
}

/// Returns an answer for each item, in order. If an item is an error, its answer is this error.
/// `answer` receives all other items at once, and returns their answers.
///
/// # Errors
/// If `answer` fails.
pub fn answer_each<T, A>(
    items: impl IntoIterator<Item = Result<T>>,
    answer: impl FnOnce(Vec<T>) -> Result<Vec<A>>,
) -> Result<Vec<Result<A>>> {
    let mut fit = Vec::new();
    let keep = |item: Result<T>| item.map(|item| fit.push(item));
    let places: Vec<Result<()>> = items.into_iter().map(keep).collect();
    let mut answers = if fit.is_empty() { Vec::new() } else { answer(fit)? }.into_iter();
    let take = |place: Result<()>| match place {
        Ok(()) => Ok(Ok(answers.next().context("an item without an answer")?)),
        Err(error) => Ok(Err(error)),
    };
    places.into_iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{anyhow, bail};

    use crate::advice::{Action, Advice, Setting};

    fn bad(text: &'static str) -> anyhow::Error {
        BadItem::from_error(&anyhow!(text))
    }

    #[test]
    fn answers_keep_the_places_of_their_items() {
        let items = || [Ok(1), Err(bad("item 2")), Ok(3)];
        let answers =
            answer_each(items(), |fit| Ok(fit.iter().map(|one| 10 * one).collect())).unwrap();
        let shown: Vec<String> = answers
            .iter()
            .map(|one| one.as_ref().map_or_else(ToString::to_string, ToString::to_string))
            .collect();
        assert_eq!(shown, ["10", "item 2", "30"]);
        assert!(
            answer_each(items(), |_: Vec<i32>| -> Result<Vec<i32>> { bail!("no memory") }).is_err()
        );
        let none = [Err(bad("item 1"))];
        assert_eq!(
            answer_each(none, |_: Vec<i32>| -> Result<Vec<i32>> { bail!("nothing") })
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn advice_about_an_item_is_kept_in_the_words_of_the_reader() {
        let advice = Advice::new(Action::Choose(Setting::MostTokens), "allows more");
        let error = advice.about(anyhow!("7 tokens").context("item 2"));
        let error = BadItem::from_error(&error);
        assert!(error.is::<BadItem>());
        let line = |name: Option<&str>| one_line_with(&error, |_| name.map(str::to_owned));
        assert_eq!(line(None), "item 2: 7 tokens");
        assert_eq!(line(Some("--this")), "item 2: 7 tokens; --this allows more");
    }
}
