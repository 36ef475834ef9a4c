//! A table of weights in terminal characters: a row for each query, and two columns for each key.
//! Keys' names stand above the table and read downwards.
//!
//! A user-perceived character may be several code points (a letter with its marks, a family of
//! emoji) and one or two columns wide (Chinese, emoji). Each such character has its own cell above
//! the columns of its key.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Terminal columns of a cell.
const CELL: usize = 2;

/// Shades for weights, the darkest first. Each is preceded by the smallest weight for which it is
/// used.
const SHADES: [(f32, &str); 5] = [(0.75, "█"), (0.5, "▓"), (0.3, "▒"), (0.1, "░"), (0.0, " ")];

/// Formats the table as lines. The first lines have the names of `keys`. Then each query has a line
/// with its row of `weights` and the key of the largest weight. The last line explains the shades.
pub(super) fn grid(queries: &[String], keys: &[String], weights: &[Vec<f32>]) -> Vec<String> {
    let margin = queries.iter().map(|name| name.width()).max().unwrap_or(0);
    let mut lines = head(keys, margin);
    for (query, row) in queries.iter().zip(weights) {
        let shades: String = row.iter().map(|weight| shade(*weight).repeat(CELL)).collect();
        let largest = (0..row.len()).reduce(|best, key| match row[key] > row[best] {
            true => key,
            false => best,
        });
        let most = largest.map(|key| format!("{} {:.2}", keys[key], row[key])).unwrap_or_default();
        lines.push(format!("{} │{shades}│ {most}", padded_before(query, margin)));
    }
    let meanings: Vec<String> = SHADES
        .iter()
        .rev()
        .skip(1)
        .map(|(least, shade)| format!("{} from {least}", shade.repeat(CELL)))
        .collect();
    lines.push(format!("{} {}", " ".repeat(margin), meanings.join("  ")));
    lines
}

/// Formats the names of keys as lines: each name reads downwards and ends just above the first row.
fn head(keys: &[String], margin: usize) -> Vec<String> {
    let signs: Vec<Vec<&str>> = keys.iter().map(|key| key.graphemes(true).collect()).collect();
    let height = signs.iter().map(Vec::len).max().unwrap_or(0);
    let line = |line: usize| {
        let sign = |signs: &Vec<&str>| {
            let first = height - signs.len();
            padded(line.checked_sub(first).and_then(|at| signs.get(at)).copied().unwrap_or(""))
        };
        let signs: String = signs.iter().map(sign).collect();
        format!("{}{}", " ".repeat(margin + 2), signs).trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

/// Pads a character to the width of a cell; replaces a wider character by `…`.
fn padded(sign: &str) -> String {
    match CELL.checked_sub(sign.width()) {
        Some(rest) => format!("{sign}{}", " ".repeat(rest)),
        None => "…".to_owned() + " ",
    }
}

fn padded_before(name: &str, width: usize) -> String {
    format!("{}{name}", " ".repeat(width.saturating_sub(name.width())))
}

fn shade(weight: f32) -> &'static str {
    SHADES.iter().find(|(least, _)| weight >= *least).map_or(" ", |(_, shade)| shade)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stay_below_their_keys_whatever_the_signs_are() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        // The names have a letter with two combining marks, a family joined from three emoji, and
        // Chinese characters.
        let keys = names(&["▁e\u{301}\u{323}x", "👨‍👩‍👧", "我们", "</s>"]);
        let queries = names(&["爱", "▁me"]);
        let weights = [vec![0.1, 0.2, 0.7, 0.0], vec![1.0, 0.0, 0.0, 0.0]];
        let lines = grid(&queries, &keys, &weights);
        assert_eq!(lines.len(), 4 + 2 + 1);
        // Each key's name stands above the rows and reads downwards in the key's two columns.
        assert_eq!(lines[0], "           <");
        assert_eq!(lines[2], "     e\u{301}\u{323}   我s");
        assert_eq!(lines[3], "     x 👨‍👩‍👧们>");
        assert_eq!(lines[4], " 爱 │░░░░▓▓  │ 我们 0.70");
        assert_eq!(lines[5], "▁me │██      │ ▁e\u{301}\u{323}x 1.00");
        let before = |line: &str, sign: &str| line.split(sign).next().unwrap_or("").width();
        assert_eq!(before(&lines[3], "们"), before(&lines[2], "我"));
        assert_eq!(before(&lines[4], "│"), before(&lines[5], "│"));
        assert!(lines[6].contains("░░ from 0.1") && lines[6].ends_with("██ from 0.75"));
    }
}
