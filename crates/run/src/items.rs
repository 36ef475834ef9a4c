//! Items that are processed together, although some of them can be invalid.

use anyhow::{Context, Result};

/// Error that concerns one of several items. Its text names the item and the reason. The other
/// items are still processed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadItem(String);

impl BadItem {
    /// Converts `error` to a `BadItem` with the same text.
    #[must_use]
    pub fn from_error(error: &anyhow::Error) -> anyhow::Error {
        Self(crate::one_line(error)).into()
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
    use anyhow::bail;

    #[test]
    fn answers_keep_the_places_of_their_items() {
        let items = || [Ok(1), Err(BadItem("item 2".to_owned()).into()), Ok(3)];
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
        let none = [Err(BadItem("item 1".to_owned()).into())];
        assert_eq!(
            answer_each(none, |_: Vec<i32>| -> Result<Vec<i32>> { bail!("nothing") })
                .unwrap()
                .len(),
            1
        );
    }
}
