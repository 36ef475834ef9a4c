//! Limit of the number of pairs in an epoch.

use crate::{Error, Result};

/// Refuses corpora with too many pairs in an epoch. `corpora` has the number of pairs and the
/// weight of each corpus.
///
/// # Errors
///
/// [`Error::Config`] if an epoch has more than 2^31 - 1 pairs. Pairs are numbered with 32 bits, and
/// an epoch in which both directions are trained has each pair twice.
pub(super) fn require_few_pairs(
    split: &str,
    corpora: impl Iterator<Item = (usize, f64)>,
) -> Result<()> {
    let most: f64 = corpora.map(|(pairs, weight)| pairs as f64 * weight.max(1.0)).sum();
    if most <= f64::from(u32::MAX / 2) {
        return Ok(());
    }
    Err(Error::Config {
        key: "data.train",
        message: format!(
            "split {split:?} has {most:.0} pairs an epoch but at most 2^31 - 1 can be batched; \
             divide the split, or lower the weights of its corpora"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_may_not_make_more_pairs_than_have_numbers() {
        let require = |corpora: &[(usize, f64)]| require_few_pairs("a+b", corpora.iter().copied());
        let most = (u32::MAX / 2) as usize;
        for allowed in [&[(most, 0.5)][..], &[(most - 2_000_000, 1.0), (2000, 1000.0)]] {
            require(allowed).expect("few enough");
        }
        for refused in [&[(most + 1, 0.5)][..], &[(most - 2_000_000, 1.0), (2001, 1000.0)]] {
            let error = require(refused).expect_err("too many").to_string();
            assert!(error.contains("split \"a+b\" has 214748"), "{error}");
        }
    }
}
