//! Prints the lines of a history.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use gitcd_history::Revisions;
use gitcd_history::fields::Field;
pub(super) use trishanku_stdio::text::plain;
use trishanku_stdio::text::{MAX_CHARS, cut};

pub(super) const ADDED: Style = AnsiColor::Green.on_default();
pub(super) const REMOVED: Style = AnsiColor::Red.on_default();
pub(super) const CHANGED: Style = AnsiColor::Yellow.on_default();
pub(super) const STRONG: Style = Style::new().bold();
pub(super) const FAINT: Style = Style::new().dimmed();

/// Prints fields, each on a line, or on two if they are long.
pub(super) fn fields(out: &mut impl Write, fields: &[Field], indent: &str, whole: bool) -> io::Result<()> {
    for Field { path, from, to } in fields {
        let name = if path.is_empty() { "(value)".to_owned() } else { plain(path) };
        // Line breaks stay; no other control character reaches the terminal.
        let next = format!("\n{indent}  ");
        let lines = |text: &str| text.split('\n').map(plain).collect::<Vec<_>>().join(&next);
        let short = |text: &String| lines(&if whole { text.clone() } else { cut(text) });
        match (from.as_ref().map(short), to.as_ref().map(short)) {
            (Some(from), Some(to))
                if from.len() + to.len() <= MAX_CHARS && !from.contains('\n') && !to.contains('\n') =>
            {
                writeln!(
                    out,
                    "{indent}{CHANGED}~{CHANGED:#} {name}: {REMOVED}{from}{REMOVED:#} → {ADDED}{to}{ADDED:#}"
                )?;
            }
            (from, to) => {
                for (sign, style, text) in [('-', REMOVED, from), ('+', ADDED, to)] {
                    if let Some(text) = text {
                        writeln!(out, "{indent}{style}{sign} {name}: {text}{style:#}")?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns a value as it is printed on one line: truncated, unless whole values are requested.
pub(super) fn short(text: &str, whole: bool) -> String {
    plain(&if whole { text.to_owned() } else { cut(text) })
}

/// Formats the revisions of a commit.
pub(super) fn revisions(revisions: Option<Revisions>) -> String {
    match revisions {
        None => "-".to_owned(),
        Some(own) if own.first == own.last => own.last.to_string(),
        Some(own) => format!("{}-{}", own.first, own.last),
    }
}

/// Prints columns as wide as their widest cell; the last one is not padded.
pub(super) fn table(
    out: &mut impl Write,
    rows: &[Vec<String>],
    mut after: impl FnMut(&mut dyn Write, usize) -> io::Result<()>,
) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (number, row) in rows.iter().enumerate() {
        let style = if number == 0 { STRONG } else { Style::new() };
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(at, (cell, width))| if at + 1 == row.len() { cell.clone() } else { format!("{cell:width$}") })
            .collect();
        writeln!(out, "{style}{}{style:#}", line.join("  "))?;
        if number > 0 {
            after(out, number - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_and_say_so() {
        assert_eq!(cut("short\n"), "short");
        assert_eq!(cut(&"x".repeat(MAX_CHARS + 7)), format!("{}… (7 more)", "x".repeat(MAX_CHARS)));
        assert_eq!(plain("a\u{1b}[31m"), "a\u{fffd}[31m");
    }
}
