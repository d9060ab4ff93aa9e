//! Reading the text of a key space.

use std::str::FromStr;

use super::{KeySpace, Pattern};

/// A text that does not describe a key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the prefixes of the keys are malformed")]
pub struct MalformedKeySpace;

/// Reads what [`Display`](std::fmt::Display) writes.
impl FromStr for KeySpace {
    type Err = MalformedKeySpace;

    fn from_str(text: &str) -> Result<Self, MalformedKeySpace> {
        let mut lines = text.lines();
        let prefix = lines.next().and_then(|line| line.strip_prefix("prefix ")).and_then(unescaped);
        let pattern = |line: &str| {
            let pattern = line.strip_prefix("ephemeral ")?;
            Some(match pattern.strip_suffix('*') {
                Some(start) => Pattern::Bytes(unescaped(start)?),
                None => Pattern::Components(unescaped(pattern)?),
            })
        };
        let ephemeral = lines.map(pattern).collect::<Option<Vec<_>>>();
        match (prefix, ephemeral) {
            (Some(prefix), Some(ephemeral)) if prefix.ends_with(b"/") => Ok(Self { prefix, ephemeral }),
            _ => Err(MalformedKeySpace),
        }
    }
}

/// Reverts [`escape_ascii`](slice::escape_ascii).
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut found = Vec::new();
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'\\' => match bytes.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                other => other,
            },
            byte => byte,
        });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for (prefix, ephemeral) in [
            ("/registry", &[][..]),
            ("", &["/", "/registry/events", "/registry/leases/kube-system/apiserver-*"]),
            ("/with\\ space\n", &["/ä'\"*", "*"]),
        ] {
            let keys = KeySpace::new(prefix, ephemeral);
            let read: KeySpace = keys.to_string().parse().expect("it was just written");
            assert_eq!(read.to_string(), keys.to_string());
            assert_eq!(read.placement(b"/registry/events/a"), keys.placement(b"/registry/events/a"));
        }
        for text in ["", "prefix", "prefix /a", "prefix /a/\nephemeral \\x4", "prefix /a/\nother"] {
            assert_eq!(text.parse::<KeySpace>(), Err(MalformedKeySpace), "{text}");
        }
    }
}
