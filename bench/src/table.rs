//! Markdown tables that are also readable as text, and number formats.

use std::fmt::Write;

/// A table with one heading; the first column is left-aligned, all others are right-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with this heading and no rows.
    pub fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Self {
        let heading = heading.into_iter().map(Into::into).collect();
        Self { rows: vec![heading] }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Renders Markdown, every column as wide as its widest cell.
    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().map(|row| cell(row, column).chars().count());
                cells.max().unwrap_or(0).max(3)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                let cell = cell(row, column);
                let written =
                    if column == 0 { write!(text, "| {cell:<width$} ") } else { write!(text, "| {cell:>width$} ") };
                written.expect("writing to a string cannot fail");
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let end = if column == 0 { '-' } else { ':' };
                    text.push_str("| ");
                    text.push_str(&"-".repeat(width - 1));
                    text.push(end);
                    text.push(' ');
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// Formats a number with its significant digits and thousands separators.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// Formats a whole number with thousands separators.
pub fn count<T: ToString + Copy>(value: T) -> String {
    grouped(&value.to_string())
}

fn grouped(plain: &str) -> String {
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Formats bytes in MiB.
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", number(bytes as f64 / 1_048_576.0))
}

/// Formats bytes divided by a number of things.
pub fn bytes_each(bytes: u64, things: i64) -> String {
    if things <= 0 {
        return "–".to_owned();
    }
    format!("{} B", number(bytes as f64 / things as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_and_three_digits_at_least() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(123.0), "123");
        assert_eq!(count(1), "1");
        assert_eq!(count(50_000), "50,000");
        assert_eq!(number(12.345), "12.3");
        assert_eq!(number(0.5), "0.50");
        assert_eq!(number(-1_000.0), "-1,000");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["a", "b"]);
        table.row(["long name", "1"]);
        table.row(["x"]);
        assert_eq!(
            table.render(),
            "| a         |   b |\n| --------- | --: |\n| long name |   1 |\n| x         |     |\n"
        );
    }
}
