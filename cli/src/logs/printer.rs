//! Prints lines of components.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::lines::printable;

/// The colours of components, in turn. Red and yellow mean problems elsewhere.
const COLOURS: [AnsiColor; 5] =
    [AnsiColor::Cyan, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::BrightCyan];

/// Prints lines, each with its component if there are several.
#[derive(Debug)]
pub(super) struct Printer<W> {
    out: W,
    is_labelled: bool,
    names: Vec<String>,
    width: usize,
}

impl<W: Write> Printer<W> {
    pub(super) fn new(out: W, is_labelled: bool, names: &[String]) -> Self {
        let mut printer = Self { out, is_labelled, names: Vec::new(), width: 0 };
        names.iter().for_each(|name| printer.add(name));
        printer
    }

    /// Adds a component.
    pub(super) fn add(&mut self, name: &str) {
        self.width = self.width.max(name.chars().count());
        self.names.push(name.to_owned());
    }

    /// Prints a line of a component.
    pub(super) fn line(&mut self, name: &str, line: &[u8]) -> io::Result<()> {
        let line = printable(line);
        if !self.is_labelled {
            return writeln!(self.out, "{line}");
        }
        let at = self.names.iter().position(|known| known == name).unwrap_or_default();
        let (style, width): (Style, usize) = (COLOURS[at % COLOURS.len()].on_default(), self.width);
        writeln!(self.out, "{style}{name:<width$} |{style:#} {line}")
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_components_are_labelled() {
        let mut out = Vec::new();
        let names = ["desk/gitcd", "a"].map(ToOwned::to_owned);
        let mut printer = Printer::new(anstream::StripStream::new(&mut out), true, &names);
        printer.line("a", b"one").unwrap();
        printer.add("a-longer/name");
        printer.line("desk/gitcd", b"two\x1b[2J").unwrap();
        let mut plain = Printer::new(anstream::StripStream::new(&mut out), false, &names[..1]);
        plain.line("desk/gitcd", b"three").unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(shown, "a          | one\ndesk/gitcd    | two\u{fffd}[2J\nthree\n");
    }
}
