//! Paths in commands that a reader is told to type.

use std::path::Path;

/// A path as a shell reads it back.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "_-./=+:,@%".contains(character);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_shell_would_divide_is_quoted() {
        assert_eq!(quoted(Path::new("runs/a-b_1.x")), "runs/a-b_1.x");
        assert_eq!(quoted(Path::new("my run")), "'my run'");
        assert_eq!(quoted(Path::new("it's")), "'it'\\''s'");
        assert_eq!(quoted(Path::new("")), "''");
    }
}
