//! Nearest known name to a mistyped one, by edit distance.

/// Number of single-character insertions, deletions, substitutions and swaps
/// of neighbours that turn `left` into `right`.
pub(crate) fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let width = right.len() + 1;
    let mut table = vec![0usize; (left.len() + 1) * width];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            table[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let substitution = usize::from(left[i - 1] != right[j - 1]);
                let mut best = (table[(i - 1) * width + j] + 1)
                    .min(table[i * width + j - 1] + 1)
                    .min(table[(i - 1) * width + j - 1] + substitution);
                if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                    best = best.min(table[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    table[left.len() * width + right.len()]
}

/// The candidate closest to `name`; ties go to the first one listed.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates.into_iter().min_by_key(|candidate| edit_distance(name, candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("heads", "heads"), 0);
        assert_eq!(edit_distance("haeds", "heads"), 1);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn nearest_takes_the_smallest_distance() {
        assert_eq!(nearest("hed", ["depth", "heads", "width"]), Some("heads"));
        assert_eq!(nearest("x", []), None);
    }
}
