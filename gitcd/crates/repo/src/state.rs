//! The state of a branch in the metadata: the files `format`, `state` and `leases`.

use std::io::Write;

use gitcd_core::revision::Revision;

use super::key_record::{LineError, NO_ROOM, escape, hexadecimal, unescape};

/// The content of the file `format`.
pub(super) const FORMAT: &[u8] = b"gitcd metadata 1\n";

/// The state of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The last revision in the commit.
    pub revision: i64,
    /// The compact revision.
    pub compact_revision: i64,
    /// The incarnation of the local state that continues this history; an opaque ID.
    pub incarnation: String,
    /// ID and granted time to live in seconds of every lease.
    pub leases: Vec<(i64, i64)>,
}

impl State {
    /// Formats the file `state`.
    pub(super) fn format_numbers(&self) -> Vec<u8> {
        let State { revision, compact_revision, incarnation, .. } = self;
        let mut text = format!("revision {revision}\ncompact_revision {compact_revision}\nincarnation ").into_bytes();
        escape(incarnation.as_bytes(), &mut text);
        text.push(b'\n');
        text
    }

    /// Formats the file `leases`: one lease on each line, by ID.
    pub(super) fn format_leases(&self) -> Vec<u8> {
        let mut leases = self.leases.clone();
        leases.sort_unstable_by_key(|(id, _)| *id as u64);
        let mut text = Vec::with_capacity(leases.len() * 24);
        for (id, ttl) in leases {
            writeln!(text, "{id:016x} {ttl}").expect("writing to a vector does not fail");
        }
        text
    }

    /// Parses the file `state`, without leases.
    pub(super) fn parse_numbers(text: &[u8]) -> Result<Self, LineError> {
        let mut lines = text.split_inclusive(|b| *b == b'\n');
        let mut value = |number, name: &str| {
            let line = lines.next().and_then(|line| line.strip_suffix(b"\n"));
            line.and_then(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b" ")).ok_or(LineError {
                number,
                problem: "it must be revision, compact_revision, incarnation, in this order",
            })
        };
        let revision = value(1, "revision")?;
        let compact_revision = value(2, "compact_revision")?;
        let incarnation = value(3, "incarnation")?;
        let count = |number, digits| {
            let value =
                std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).filter(|n: &i64| *n >= 0);
            match value {
                Some(revision) if revision > Revision::MAX_STORED.get() => Err(LineError { number, problem: NO_ROOM }),
                value => value.ok_or(LineError { number, problem: "the revision is not a number" }),
            }
        };
        let escaped = LineError { number: 3, problem: "the incarnation is not escaped as it should be" };
        let state = State {
            revision: count(1, revision)?,
            compact_revision: count(2, compact_revision)?,
            incarnation: unescape(incarnation).and_then(|name| String::from_utf8(name).ok()).ok_or(escaped)?,
            leases: Vec::new(),
        };
        match lines.next() {
            Some(_) => Err(LineError { number: 4, problem: "the line is unexpected" }),
            None => Ok(state),
        }
    }

    /// Parses the file `leases`.
    pub(super) fn parse_leases(text: &[u8]) -> Result<Vec<(i64, i64)>, LineError> {
        let lines = text.split_inclusive(|b| *b == b'\n').enumerate();
        let parse = |line: &[u8]| {
            let (id, ttl) = line.strip_suffix(b"\n")?.split_first_chunk::<16>()?;
            let digits = id.iter().position(|b| *b != b'0').map_or(&id[16..], |first| &id[first..]);
            let ttl = std::str::from_utf8(ttl.strip_prefix(b" ")?).ok()?.parse().ok()?;
            Some((hexadecimal(digits)?, ttl))
        };
        lines
            .map(|(index, line)| {
                let problem = "it is not an ID of 16 hexadecimal digits and a number of seconds";
                parse(line).ok_or(LineError { number: index + 1, problem })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_as_it_was() {
        let state = State {
            revision: 4720,
            compact_revision: 0,
            incarnation: "a b\n\u{e9}".into(),
            leases: vec![(1, 60), (0x7fff_ffff_ffff_ffff, 1), (-2, 5)],
        };
        let mut read = State::parse_numbers(&state.format_numbers()).expect("it was written a moment ago");
        read.leases = State::parse_leases(&state.format_leases()).expect("they were written a moment ago");
        assert_eq!(read, state);
    }

    #[test]
    fn a_damaged_state_is_refused_with_the_line() {
        for (text, line) in [
            ("revision 1\ncompact_revision x\nincarnation i\n", 2),
            ("revision 1\ncompact_revision 1\nincarnation i", 3),
            ("compact_revision 1\nrevision 1\nincarnation i\n", 1),
            ("revision 1\ncompact_revision 1\nincarnation i\nmore 1\n", 4),
            ("revision 1\n", 2),
            ("revision 9223372036854775807\ncompact_revision 1\nincarnation i\n", 1),
            ("revision 1\ncompact_revision 9223372036854775807\nincarnation i\n", 2),
            ("revision 9223372036854775808\ncompact_revision 1\nincarnation i\n", 1),
        ] {
            assert_eq!(State::parse_numbers(text.as_bytes()).map_err(|error| error.number), Err(line), "{text:?}");
        }
        assert_eq!(State::parse_leases(b"0000000000000001 60\n1 60\n").map_err(|error| error.number), Err(2));
    }
}
