//! Tables in which columns of numbers are aligned to the right.

use crate::html::escape;

/// Makes a table. The first column has the names of the rows. Of the other columns, those that have
/// only numbers are aligned to the right.
#[must_use]
pub fn table<R: AsRef<[String]>>(head: &[&str], rows: &[R]) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.as_ref().get(column));
    let is_of_numbers = |column: usize| {
        column > 0
            && cells(column).any(|text| !text.is_empty())
            && cells(column).all(|text| text.is_empty() || text == "–" || is_number(text))
    };
    let numbers: Vec<bool> = (0..head.len()).map(is_of_numbers).collect();
    let class = |column: usize| match numbers.get(column) {
        Some(true) => " class=\"number\"",
        _ => "",
    };
    let title = |(column, title): (usize, &&str)| {
        format!("<th scope=\"col\"{}>{}</th>", class(column), escape(title))
    };
    let row = |cells: &R| {
        let cell = |(column, text): (usize, &String)| match column {
            0 => format!("<th scope=\"row\">{}</th>", escape(text)),
            _ => format!("<td{}>{}</td>", class(column), escape(text)),
        };
        let cells: String = cells.as_ref().iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    format!(
        "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody>\
         </table></div>\n",
        head.iter().enumerate().map(title).collect::<String>(),
        rows.iter().map(row).collect::<String>()
    )
}

/// Whether a text is a number. An interval, `%` or `*` may follow the number.
fn is_number(text: &str) -> bool {
    let text = text.trim_end_matches([' ', '%', '*']);
    text.chars().any(|one| one.is_ascii_digit())
        && text.chars().all(|one| one.is_ascii_digit() || "+-−±.,e ".contains(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_stand_to_the_right_with_their_titles() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a", "1,000", "x"]), row(["b", "2.5 ± 0.1", "3"]), row(["c", "", ""])];
        let html = table(&["run", "BLEU", "what"], &rows);
        assert!(html.contains("<th scope=\"col\" class=\"number\">BLEU</th>"), "{html}");
        assert!(html.contains("<td class=\"number\">2.5 ± 0.1</td><td>3</td>"), "{html}");
    }
}
