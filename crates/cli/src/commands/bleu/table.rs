//! Formats tables of systems and scores, with frames of characters or for LaTeX.

/// Columns of cells; the first column is right-aligned, the others are centred.
#[derive(Debug, Default)]
pub(super) struct Table {
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    heading: String,
    cells: Vec<String>,
}

/// Alignment of a cell in its column.
#[derive(Debug, Clone, Copy)]
enum Place {
    Right,
    Middle,
}

impl Table {
    /// Adds a column; a cell may have several lines.
    pub(super) fn push(&mut self, heading: &str, cells: Vec<String>) {
        self.columns.push(Column { heading: heading.to_owned(), cells });
    }

    /// Formats the table in a frame of lines.
    pub(super) fn grid(&self) -> String {
        let widths: Vec<usize> = self.columns.iter().map(|column| column.width() + 2).collect();
        let rule = |left: char, line: &str, crossing: &str, right: char| {
            let lines: Vec<String> = widths.iter().map(|&width| line.repeat(width)).collect();
            format!("{left}{}{right}\n", lines.join(crossing))
        };
        let mut text = rule('╒', "═", "╤", '╕');
        for row in 0..=self.rows() {
            match row {
                0 => {}
                1 => text.push_str(&rule('╞', "═", "╪", '╡')),
                _ => text.push_str(&rule('├', "─", "┼", '┤')),
            }
            let cells: Vec<Vec<&str>> =
                self.columns.iter().map(|column| column.row(row).lines().collect()).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                let cells = cells.iter().map(|cell| cell.get(line).copied().unwrap_or(""));
                let cells: Vec<String> =
                    self.placed(cells).map(|cell| format!(" {cell} ")).collect();
                text.push_str(&format!("│{}│\n", cells.join("│")));
            }
        }
        text.push_str(rule('╘', "═", "╧", '╛').trim_end());
        text
    }

    /// Formats the table as LaTeX, with the rules of the package `booktabs`.
    pub(super) fn latex(&self) -> String {
        let places: String =
            (0..self.columns.len()).map(|index| if index == 0 { 'r' } else { 'c' }).collect();
        let mut text = format!("\\begin{{tabular}}{{{places}}}\n\\toprule\n");
        for row in 0..=self.rows() {
            let cells: Vec<String> = self
                .placed(self.columns.iter().map(|column| column.row(row)))
                .map(|cell| escaped(&cell))
                .collect();
            text.push_str(&format!(" {} \\\\\n", cells.join(" & ")));
            if row == 0 {
                text.push_str("\\midrule\n");
            }
        }
        text.push_str("\\bottomrule\n\\end{tabular}");
        text
    }

    fn rows(&self) -> usize {
        self.columns.iter().map(|column| column.cells.len()).max().unwrap_or(0)
    }

    /// Pads one line of text for each column with spaces to the column's width.
    fn placed<'a>(
        &'a self,
        cells: impl Iterator<Item = &'a str> + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        cells.zip(&self.columns).enumerate().map(|(index, (cell, column))| {
            let place = if index == 0 { Place::Right } else { Place::Middle };
            // Spaces are added by hand, because the width in a format string is at most 65,535.
            let room = column.width().saturating_sub(cell.chars().count());
            let before = match place {
                Place::Right => room,
                Place::Middle => room / 2,
            };
            format!("{}{cell}{}", " ".repeat(before), " ".repeat(room - before))
        })
    }
}

impl Column {
    /// Returns the text of a row in this column: the heading for row 0, then the cells.
    fn row(&self, row: usize) -> &str {
        if row == 0 { &self.heading } else { self.cells.get(row - 1).map_or("", String::as_str) }
    }

    /// Returns the width of the column in characters: that of its widest line, or that of the
    /// heading with a space at both ends.
    fn width(&self) -> usize {
        let widest = self
            .cells
            .iter()
            .flat_map(|cell| cell.lines())
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        widest.max(self.heading.chars().count() + 2)
    }
}

/// Escapes LaTeX's special characters in a text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => escaped.extend(['\\', character]),
            '^' => escaped.push_str(r"\^{}"),
            '~' => escaped.push_str(r"\textasciitilde{}"),
            '\\' => escaped.push_str(r"\textbackslash{}"),
            '<' => escaped.push_str(r"\ensuremath{<}"),
            '>' => escaped.push_str(r"\ensuremath{>}"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::Table;

    fn table() -> Table {
        let mut table = Table::default();
        table.push("System", vec!["Baseline: a_1".to_owned(), "b".to_owned()]);
        table.push("BLEU", vec!["38.2".to_owned(), "13.4\n(p = 0.0010)*".to_owned()]);
        table
    }

    #[test]
    fn grids_frame_each_row() {
        let expected = "\
╒═══════════════╤═══════════════╕
│        System │     BLEU      │
╞═══════════════╪═══════════════╡
│ Baseline: a_1 │     38.2      │
├───────────────┼───────────────┤
│             b │     13.4      │
│               │ (p = 0.0010)* │
╘═══════════════╧═══════════════╛";
        assert_eq!(table().grid(), expected);
    }

    #[test]
    fn latex_escapes_names() {
        assert!(table().latex().contains(r"Baseline: a\_1 &"), "{}", table().latex());
    }
}
