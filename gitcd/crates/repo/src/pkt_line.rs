//! Git's pkt-line framing: four hexadecimal digits with the length of the line, including themselves, and the line.

/// Maximum length of a line with its four digits; Git's own limit.
pub const MAX_BYTES: usize = 65_520;
/// The delimiter between the parts of a request in protocol version 2.
pub const DELIMITER: &[u8] = b"0001";
/// The end of a list of lines.
pub const FLUSH: &[u8] = b"0000";

/// Appends a line.
///
/// # Panics
/// If the line is longer than Git allows; callers must truncate it.
pub fn put(out: &mut Vec<u8>, line: &[u8]) {
    let length = line.len() + 4;
    assert!(length <= MAX_BYTES, "a line of {length} bytes");
    out.extend_from_slice(format!("{length:04x}").as_bytes());
    out.extend_from_slice(line);
}

/// The meaning of the four digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The end of a message.
    Flush,
    /// The delimiter of two parts in protocol version 2.
    Delimiter,
    /// The end of a response in protocol version 2.
    End,
    /// A line with this many bytes after the digits.
    Line(usize),
}

/// Parses the four digits; `None` if they are invalid.
pub fn head(digits: [u8; 4]) -> Option<Head> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let length = usize::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?;
    match length {
        0 => Some(Head::Flush),
        1 => Some(Head::Delimiter),
        2 => Some(Head::End),
        4..=MAX_BYTES => Some(Head::Line(length - 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_framed_with_their_length() {
        let mut out = Vec::new();
        put(&mut out, b"hi\n");
        assert_eq!(out, b"0007hi\n");
        assert_eq!(head(*b"0007"), Some(Head::Line(3)));
        assert_eq!(head(*b"0000"), Some(Head::Flush));
        assert_eq!(head(*b"fFf0"), Some(Head::Line(65_516)));
        assert_eq!((head(*b"0001"), head(*b"0002")), (Some(Head::Delimiter), Some(Head::End)));
        for wrong in [b"0003", b"fff1", b"ffff", b"+004", b"GET ", b"\0\0\0\0"] {
            assert_eq!(head(*wrong), None, "{wrong:?}");
        }
    }
}
