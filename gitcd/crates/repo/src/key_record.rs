//! Key records: the metadata of a key, as a line of text.
//!
//! `<key> <create revision> <mod revision> <version> <lease> <form> <flag>`, with one space between fields. The key is the whole
//! key, escaped except for visible ASCII; the lease is in hexadecimal or `-`.

use bytes::Bytes;

use gitcd_core::revision::Revision;
use gitcd_merge::form::Form;

/// The numbers that etcd stores for a key besides its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// Revision that created the key.
    pub create_revision: i64,
    /// Revision that last changed the key.
    pub mod_revision: i64,
    /// Number of writes since its creation, starting with 1.
    pub version: i64,
    /// The attached lease; 0 for none.
    pub lease: i64,
}

/// Location of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// In the data tree.
    Data,
    /// In the metadata, under `local/`.
    Local,
}

/// The metadata of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRecord {
    /// The whole key.
    pub key: Bytes,
    /// Its revisions.
    pub record: Record,
    /// How its value is stored.
    pub form: Form,
    /// Where its value is stored.
    pub home: Location,
}

/// Why a text is not a list of key records.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {number}: {problem}")]
pub struct LineError {
    /// Line number, from 1.
    pub number: usize,
    /// What is wrong.
    pub problem: &'static str,
}

/// The error for a number that is almost the largest one.
pub(super) const NO_ROOM: &str = "a number is so large that it leaves no room for writes to come";

impl KeyRecord {
    /// Appends the line, including its line feed.
    pub(super) fn format(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        escape(&self.key, out);
        let Record { create_revision, mod_revision, version, lease } = self.record;
        write!(out, " {create_revision} {mod_revision} {version} ").expect("writing to a vector does not fail");
        match lease {
            0 => out.push(b'-'),
            lease => write!(out, "{lease:x}").expect("writing to a vector does not fail"),
        }
        let flag = match self.home {
            Location::Data => 'd',
            Location::Local => 'l',
        };
        writeln!(out, " {} {flag}", self.form.code()).expect("writing to a vector does not fail");
    }

    /// Parses a list of lines.
    ///
    /// # Errors
    /// [`LineError`] with the number of the first line that [`Self::format`] does not write.
    pub(super) fn parse_all(text: &[u8]) -> Result<Vec<KeyRecord>, LineError> {
        let mut lines = Vec::with_capacity(text.len() / 64);
        for (index, line) in text.split_inclusive(|b| *b == b'\n').enumerate() {
            let parsed = match line.split_last() {
                Some((b'\n', line)) => KeyRecord::parse(line),
                _ => Err("the end is missing"),
            };
            lines.push(parsed.map_err(|problem| LineError { number: index + 1, problem })?);
        }
        Ok(lines)
    }

    fn parse(line: &[u8]) -> Result<KeyRecord, &'static str> {
        let mut fields = line.split(|b| *b == b' ');
        let mut field = || fields.next().ok_or("it has fewer than seven fields");
        let key = unescape(field()?).ok_or("the key is not escaped as it should be")?;
        let positive = |field: &[u8], problem| match decimal(field) {
            Some(number) if number > Revision::MAX_STORED.get() => Err(NO_ROOM),
            Some(number) if number > 0 => Ok(number),
            _ => Err(problem),
        };
        let create_revision = positive(field()?, "the create revision is not a positive number")?;
        let mod_revision = positive(field()?, "the mod revision is not a positive number")?;
        let version = positive(field()?, "the version is not a positive number")?;
        let lease = match field()? {
            b"-" => 0,
            digits => hexadecimal(digits).ok_or("the lease is neither a hexadecimal number nor -")?,
        };
        let form = match field()? {
            [letter] => Form::from_code(char::from(*letter)),
            _ => None,
        };
        let form = form.ok_or("the form is unknown")?;
        let home = match field()? {
            b"d" => Location::Data,
            b"l" => Location::Local,
            _ => return Err("the flag is neither d nor l"),
        };
        if fields.next().is_some() {
            return Err("it has more than seven fields");
        }
        let record = Record { create_revision, mod_revision, version, lease };
        Ok(KeyRecord { key: key.into(), record, form, home })
    }
}

fn decimal(digits: &[u8]) -> Option<i64> {
    let canonical = digits.iter().all(u8::is_ascii_digit) && !digits.starts_with(b"0");
    std::str::from_utf8(digits).ok().filter(|_| canonical)?.parse().ok()
}

/// Parses a lease ID, exactly as `{:x}` writes it.
pub(super) fn hexadecimal(digits: &[u8]) -> Option<i64> {
    let canonical = digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) && !digits.starts_with(b"0");
    // An empty field is invalid: 0 stands for no lease, and is written as `-`.
    let digits = std::str::from_utf8(digits).ok().filter(|_| canonical)?;
    u64::from_str_radix(digits, 16).ok().map(|id| id as i64)
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) && byte != b'%'
}

pub(super) fn escape(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in key {
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
        }
    }
}

pub(super) fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'%' => {
                let (digits, behind) = rest.split_first_chunk::<2>()?;
                let byte = digit(digits[0])? << 4 | digit(digits[1])?;
                if is_plain(byte) {
                    return None;
                }
                key.push(byte);
                rest = behind;
            }
            plain if is_plain(*plain) => key.push(*plain),
            _ => return None,
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number() -> impl Strategy<Value = i64> {
        1..=Revision::MAX_STORED.get()
    }

    proptest! {
        #[test]
        fn a_line_is_read_back_as_it_was(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            numbers in (number(), number(), number(), any::<i64>()),
            is_local in any::<bool>(),
        ) {
            let (create_revision, mod_revision, version, lease) = numbers;
            let line = KeyRecord {
                key: key.into(),
                record: Record { create_revision, mod_revision, version, lease },
                form: Form::Raw,
                home: if is_local { Location::Local } else { Location::Data },
            };
            let mut text = Vec::new();
            line.format(&mut text);
            prop_assert_eq!(text.iter().position(|b| *b == b'\n'), Some(text.len() - 1));
            prop_assert_eq!(KeyRecord::parse_all(&text), Ok(vec![line]));
        }
    }

    #[test]
    fn a_damaged_line_is_named_by_its_number() {
        let good = "/a 1 2 3 - r d\n";
        for (bad, problem) in [
            ("/a 1 2 3 - r\n", "it has fewer than seven fields"),
            ("/a 9223372036854775807 2 3 - r d\n", NO_ROOM),
            ("/a 1 9223372036854775807 3 - r d\n", NO_ROOM),
            ("/a 1 2 9223372036854775807 - r d\n", NO_ROOM),
            ("/a 1 2 3 - r d \n", "it has more than seven fields"),
            ("/%41 1 2 3 - r d\n", "the key is not escaped as it should be"),
            ("/a 01 2 3 - r d\n", "the create revision is not a positive number"),
            ("/a 1 0 3 - r d\n", "the mod revision is not a positive number"),
            ("/a 1 2 x - r d\n", "the version is not a positive number"),
            ("/a 1 2 3 0x1 r d\n", "the lease is neither a hexadecimal number nor -"),
            ("/a 1 2 3 - z d\n", "the form is unknown"),
            ("/a 1 2 3 - r x\n", "the flag is neither d nor l"),
            ("/a 1 2 3 - r d", "the end is missing"),
        ] {
            let text = format!("{good}{bad}");
            assert_eq!(KeyRecord::parse_all(text.as_bytes()), Err(LineError { number: 2, problem }), "{bad:?}");
        }
    }
}
