//! Computes plural forms in PO files (message catalogs of gettext). The field `Plural-Forms` in the
//! header of a file has an expression in C, which gives the index of the plural form for a number.

/// Largest depth of parentheses and conditions.
const DEEPEST: usize = 64;

/// Index of the plural form for the number `number`. `field` is the value of `Plural-Forms`, such
/// as `nplurals=2; plural=(n != 1);`. `None` if the field has no such expression, or if a
/// computation in it is not possible, such as a division by zero.
pub(crate) fn form_of(field: &str, number: u64) -> Option<usize> {
    let (_, expression) = field.split_once("plural=").filter(|(before, _)| !before.is_empty())?;
    let expression = expression.split(';').next()?;
    let mut parser = Parser { rest: expression.trim(), number, depth: 0, is_needed: true };
    let value = parser.condition()?;
    if !parser.rest.is_empty() {
        return None;
    }
    usize::try_from(value).ok()
}

/// Operators with two operands, by ascending precedence.
const OPERATORS: [&[&str]; 6] =
    [&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"], &["+", "-"], &["*", "/", "%"]];

/// Parser of an expression, which also computes its value while it reads.
struct Parser<'a> {
    rest: &'a str,
    number: u64,
    depth: usize,
    /// False in a part whose value is not used, as in C: the branch of a condition that is not
    /// chosen, or the second operand of `&&` or `||` if the first one decides. Such a part is read,
    /// but an impossible computation in it is not an error.
    is_needed: bool,
}

impl Parser<'_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }

    /// Reads a part of the expression with `read`. If `is_needed` is false, its value is not used.
    fn part(
        &mut self,
        is_needed: bool,
        read: impl FnOnce(&mut Self) -> Option<u64>,
    ) -> Option<u64> {
        let before = self.is_needed;
        self.is_needed = before && is_needed;
        let value = read(self);
        self.is_needed = before;
        value
    }

    /// Reads `a ? b : c`, or an expression without a condition, and returns its value.
    fn condition(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let mut value = self.operation(0)?;
        if self.take("?") {
            let yes = self.part(value != 0, Self::condition)?;
            if !self.take(":") {
                return None;
            }
            let no = self.part(value == 0, Self::condition)?;
            value = if value == 0 { no } else { yes };
        }
        self.depth -= 1;
        Some(value)
    }

    /// Reads a part of the expression whose operators outside parentheses have the index `level` or
    /// a larger index in [`OPERATORS`]. Returns the value of this part.
    fn operation(&mut self, level: usize) -> Option<u64> {
        let Some(operators) = OPERATORS.get(level) else { return self.operand() };
        let mut value = self.operation(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.take(operator)) {
            let is_needed = match *operator {
                "||" => value == 0,
                "&&" => value != 0,
                _ => true,
            };
            let other = self.part(is_needed, |parser| parser.operation(level + 1))?;
            let result = match *operator {
                "||" => Some(u64::from(value != 0 || other != 0)),
                "&&" => Some(u64::from(value != 0 && other != 0)),
                "==" => Some(u64::from(value == other)),
                "!=" => Some(u64::from(value != other)),
                "<=" => Some(u64::from(value <= other)),
                ">=" => Some(u64::from(value >= other)),
                "<" => Some(u64::from(value < other)),
                ">" => Some(u64::from(value > other)),
                "+" => value.checked_add(other),
                "-" => value.checked_sub(other),
                "*" => value.checked_mul(other),
                "/" => value.checked_div(other),
                _ => value.checked_rem(other),
            };
            value = result.or_else(|| (!self.is_needed).then_some(0))?;
        }
        Some(value)
    }

    fn operand(&mut self) -> Option<u64> {
        let mut is_negated = None;
        while self.take("!") {
            is_negated = Some(!is_negated.unwrap_or(false));
        }
        let value = if self.take("(") {
            let value = self.condition()?;
            self.take(")").then_some(value)?
        } else if self.take("n") {
            self.number
        } else {
            let end = self.rest.find(|one: char| !one.is_ascii_digit());
            let digits = &self.rest[..end.unwrap_or(self.rest.len())];
            let value = digits.parse().ok()?;
            self.rest = self.rest[digits.len()..].trim_start();
            value
        };
        Some(match is_negated {
            None => value,
            Some(true) => u64::from(value == 0),
            Some(false) => u64::from(value != 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected forms are those of GNU gettext (`ngettext`), computed by Python's `gettext`.
    #[test]
    fn forms_are_those_of_gettext() {
        const ARABIC: &str = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && \
            n%100<=10 ? 3 : n%100>=11 ? 4 : 5;";
        const SLOVENIAN: &str =
            "nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);";
        const IMPOSSIBLE: &str = "nplurals=2; plural=(n > 1 ? 1 : n-2)";
        for (field, numbers, expected) in [
            ("nplurals=1; plural=0;", &[0, 1, 5][..], &[0, 0, 0][..]),
            ("nplurals=2; plural=(n != 1);", &[0, 1, 2], &[1, 0, 1]),
            ("nplurals=2; plural=n>1", &[0, 1, 2], &[0, 0, 1]),
            (ARABIC, &[0, 1, 2, 7, 11, 100], &[0, 1, 2, 3, 4, 5]),
            (SLOVENIAN, &[1, 2, 3, 5, 101], &[1, 2, 3, 0, 1]),
            ("nplurals=2; plural=n/2*2 == n || n-1 < 1 ? 1 : 0;", &[1, 4, 5], &[1, 1, 0]),
            // A part whose value is not used may have an impossible computation.
            ("nplurals=3; plural=(n > 1 ? n-2 : 1);", &[0, 1, 2, 4], &[1, 1, 0, 2]),
            ("nplurals=2; plural=n == 0 || 9 % n == 0;", &[0, 2, 3], &[1, 0, 1]),
            ("nplurals=2; plural=n != 0 && 9 % n == 0;", &[0, 2, 3], &[0, 0, 1]),
            ("nplurals=3; plural=n ? n > 1 ? 2 : n-1 : n/n;", &[1, 2], &[0, 2]),
        ] {
            let forms: Vec<usize> =
                numbers.iter().filter_map(|&number| form_of(field, number)).collect();
            assert_eq!(forms, expected, "{field}");
        }
        let deep = format!("nplurals=1; plural={}", "(".repeat(1000));
        for field in
            ["", "nplurals=2", "nplurals=2; plural=", "nplurals=2; plural=n/0", IMPOSSIBLE, &deep]
        {
            assert_eq!(form_of(field, 1), None, "{field}");
        }
    }
}
