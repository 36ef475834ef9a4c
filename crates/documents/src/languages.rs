//! Languages by their tags (BCP 47).

/// True if the language tag `tag` names the `wanted` language or a variant of it. If `en` is
/// wanted, `en`, `EN-US` and `en_GB` match; but if `pt-BR` is wanted, `pt` does not.
///
/// ```
/// assert!(taper_documents::is_language("EN-us", "en"));
/// assert!(!taper_documents::is_language("eng", "en"));
/// ```
#[must_use]
pub fn is_language(tag: &str, wanted: &str) -> bool {
    let parts = |tag: &str| -> Vec<String> {
        tag.trim().split(['-', '_', '@', '.']).map(str::to_lowercase).collect()
    };
    let (tag, wanted) = (parts(tag), parts(wanted));
    !wanted[0].is_empty() && tag.starts_with(&wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_whole_parts_counts() {
        for (tag, wanted, is) in [
            ("en", "en", true),
            ("EN-US", "en", true),
            ("en_GB", "en-gb", true),
            ("de_DE.UTF-8", "de", true),
            ("sr@latin", "sr", true),
            ("pt", "pt-BR", false),
            ("eng", "en", false),
            ("", "", false),
        ] {
            assert_eq!(is_language(tag, wanted), is, "{tag} {wanted}");
        }
    }
}
