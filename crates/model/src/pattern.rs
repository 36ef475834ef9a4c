//! Patterns of names of parameters and layers.

/// True if `name` matches `pattern`, in which `*` stands for any number of characters and `?` for
/// exactly one.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // `at` and `read` are the positions reached in `pattern` and `name`. `star` has the position in
    // `pattern` of the last `*`, and the position in `name` up to which this `*` matches so far.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(&one) if one == '?' || one == name[read] => (at, read) = (at + 1, read + 1),
            _ => match star {
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    (at, read) = (place + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&one| one == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, does) in [
            ("encoder.*", "encoder.layers.0.norm.weight", true),
            ("encoder.*", "encoder", false),
            ("*.weight", "a.b.weight", true),
            ("*.weight", "a.b.weights", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYb", false),
            ("layers.?.norm", "layers.3.norm", true),
            ("layers.?.norm", "layers.13.norm", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("**", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), does, "{pattern} {name}");
        }
    }
}
