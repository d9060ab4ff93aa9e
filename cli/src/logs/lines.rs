//! Lines of logs, as a terminal may show them.

use std::borrow::Cow;
use std::io;

use trishanku_stdio::text::plain;

/// Longer lines are printed in parts, so that a log without line breaks needs no memory of its size.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Receives lines without their line breaks.
pub(super) type Print<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Divides bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Prints the lines that end in these bytes.
    pub(super) fn add(&mut self, bytes: &[u8], print: &mut Print<'_>) -> io::Result<()> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                print(&rest[..end])?;
            } else {
                self.partial.extend_from_slice(&rest[..end]);
                self.print(print)?;
            }
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() >= MAX_LINE_BYTES { self.print(print) } else { Ok(()) }
    }

    /// Prints the last line, if it has no line break.
    pub(super) fn finish(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        if self.partial.is_empty() { Ok(()) } else { self.print(print) }
    }

    fn print(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        let printed = print(&self.partial);
        self.partial.clear();
        printed
    }
}

/// Returns a line as a terminal may show it: without colours; other control characters and invalid bytes are replaced.
pub(super) fn printable(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    // Most lines need no change.
    if text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        return text;
    }
    let text = without_colours(text.trim_end_matches('\r'));
    Cow::Owned(text.split('\t').map(plain).collect::<Vec<_>>().join("\t"))
}

/// Removes colours, but no other escape sequence: these could hide text.
fn without_colours(text: &str) -> String {
    const START: &str = "\x1b[";
    let mut parts = text.split(START);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | ':'));
        if let Some(after) = rest.strip_prefix('m') {
            plain.push_str(after);
        } else {
            plain.push_str(START);
            plain.push_str(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut print = |line: &[u8]| {
            found.push(line.to_vec());
            Ok(())
        };
        let mut lines = Lines::default();
        parts.iter().for_each(|part| lines.add(part, &mut print).unwrap());
        lines.finish(&mut print).unwrap();
        found
    }

    #[test]
    fn lines_are_put_together_from_parts() {
        assert_eq!(lines(&[b"a", b"b\n\nc", b"\nd"]), [&b"ab"[..], b"", b"c", b"d"]);
        assert_eq!(lines(&[b"a\n"]), [b"a"]);
        assert_eq!(lines(&[]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_line_without_end_is_printed_in_parts() {
        let part = vec![b'x'; MAX_LINE_BYTES - 1];
        let found = lines(&[&part, &part, b"y", &part]);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2 * MAX_LINE_BYTES - 2, MAX_LINE_BYTES]);
    }

    #[test]
    fn a_log_does_not_control_the_terminal_or_hide_text() {
        for (line, shown) in [
            (&b"I1128 03:16:00.5  7 a.go:1] \"ok\"\tx"[..], "I1128 03:16:00.5  7 a.go:1] \"ok\"\tx"),
            (b"\x1b[1;32mINFO\x1b[0m ok\r", "INFO ok"),
            (b"a\xffb", "a\u{fffd}b"),
            (b"\x1b]0;title\x07rest\x1b[2Jx\x1b[", "\u{fffd}]0;title\u{fffd}rest\u{fffd}[2Jx\u{fffd}["),
            ("one\rtwo \u{202e}x \u{9b}31m é".as_bytes(), "one\u{fffd}two \u{fffd}x \u{fffd}31m é"),
        ] {
            assert_eq!(printable(line), shown);
        }
    }
}
