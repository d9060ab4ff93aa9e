//! The reversible mapping from keys to paths of a Git tree.
//!
//! Every byte string is a key and has exactly one path; ordinary Kubernetes keys
//! are their own path. The rules, with their reasons, are in `docs/design/git.md`
//! under *Path encoding*.
//!
//! ```
//! use gitcd_core::path;
//!
//! let entries: Vec<_> = path::encode(b"pods/default/.git").collect();
//! assert_eq!(entries, [&b"pods"[..], b"default", b"%2Egit"]);
//!
//! let key = path::decode(entries.iter().map(AsRef::as_ref))?;
//! assert_eq!(key, b"pods/default/.git");
//! # Ok::<(), path::DecodeError>(())
//! ```
use std::borrow::Cow;
use std::iter::FusedIterator;

#[cfg(test)]
mod tests;

/// The entry that holds the value of a key that is also a directory of other keys.
pub const VALUE: &[u8] = b"%value";

/// Maximum number of entry names in a key's path.
///
/// Stock Git refuses trees deeper than 2048 (`core.maxTreeDepth`), so one deeper key would make the whole repository unreadable.
pub const MAX_DEPTH: usize = 1024;

/// The name of an empty component, as in `a//b`.
const EMPTY: &[u8] = b"%";

/// The suffix of a directory that holds the rest of an over-long component.
const CONTINUED: &[u8] = b"%+";

/// Maximum length of a component's piece in one name, in bytes. With [`CONTINUED`] and one more escape it stays below 255, the
/// limit of common file systems.
const CHUNK: usize = 240;

/// Bytes that are always escaped.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, 0..=0x1F | 0x7F..=0xFF | b'%' | b'~')
            || matches!(byte as u8, b'\\' | b'"' | b'<' | b'>' | b'|' | b'?' | b'*');
        byte += 1;
    }
    table
};

/// Returns the entry names of `key`'s path, outermost first.
///
/// The last name is that of the value; if other keys lie below it, the value is the entry [`VALUE`] in a directory of that name.
/// `key` is what follows the key prefix and its slash, or a whole local key. There is always at least one name. Names of ordinary
/// components are borrowed, without allocation.
pub fn encode(key: &[u8]) -> Components<'_> {
    Components { rest: Some(key), long: None }
}

/// Returns whether Git can store `key`: its path has at most [`MAX_DEPTH`] names. Each part between slashes takes one for every
/// 240 bytes of its name, where an escaped byte counts three.
///
/// Every key of at most 1023 bytes fits; without slashes 245,760 bytes do, with some of them at most 246,783.
pub fn fits(key: &[u8]) -> bool {
    key.len() < MAX_DEPTH || encode(key).take(MAX_DEPTH + 1).count() <= MAX_DEPTH
}

/// Returns the key whose path is `path`, a sequence of entry names.
///
/// A last name [`VALUE`] is accepted whether or not other keys lie beside it.
/// Takes two passes over the path and one allocation.
///
/// # Errors
/// [`DecodeError`] if no key has this path, so that two paths never mean one key.
pub fn decode<'p, P>(path: P) -> Result<Vec<u8>, DecodeError>
where
    P: IntoIterator<Item = &'p [u8]>,
    P::IntoIter: Clone,
{
    let path = path.into_iter();
    let mut key = Vec::new();
    let mut names = path.clone().enumerate().peekable();
    let mut depth = 0;
    let mut continued = false;
    while let Some((index, name)) = names.next() {
        if name == VALUE && index > 0 && names.peek().is_none() {
            break;
        }
        if index > 0 && !continued {
            key.push(b'/');
        }
        depth += 1;
        let piece = name.strip_suffix(CONTINUED);
        continued = piece.is_some();
        let piece = piece.unwrap_or(name);
        if piece != EMPTY && unescape(piece, &mut key).is_none() {
            return Err(DecodeError::Escape { name: show([name]), path: show(path) });
        }
    }
    if depth == 0 || continued {
        return Err(DecodeError::Incomplete { path: show(path) });
    }
    // One rule catches everything that the pass above accepted wrongly, without a list of exceptions.
    if encode(&key).eq(path.clone().take(depth)) {
        Ok(key)
    } else {
        Err(DecodeError::NotCanonical { path: show(path), canonical: show(encode(&key)) })
    }
}

/// Why a path belongs to no key. Paths are shown with their names joined by slashes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A `%` that does not start an escape.
    #[error("path {path:?}: no key has the name {name:?}; a percent sign is written %25")]
    Escape {
        /// The whole path.
        path: String,
        /// The name with the bad escape.
        name: String,
    },
    /// The path is empty, or ends in a directory for the rest of a long name.
    #[error("path {path:?}: names no key, its last part is missing")]
    Incomplete {
        /// The whole path.
        path: String,
    },
    /// The path decodes to a key whose own path is another one.
    #[error("path {path:?}: no key has this path; it should be {canonical:?}")]
    NotCanonical {
        /// The whole path.
        path: String,
        /// The path of the key that was probably meant.
        canonical: String,
    },
}

/// The iterator that [`encode`] returns.
#[derive(Clone, Debug)]
pub struct Components<'k> {
    /// What follows the last slash seen; `None` after the last component.
    rest: Option<&'k [u8]>,
    /// An escaped component longer than [`CHUNK`], and how many of its bytes were returned.
    long: Option<(Vec<u8>, usize)>,
}

impl<'k> Iterator for Components<'k> {
    type Item = Cow<'k, [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.long.is_some() {
            return self.next_chunk().map(Cow::Owned);
        }
        let rest = self.rest.take()?;
        let component = match rest.iter().position(|&byte| byte == b'/') {
            Some(slash) => {
                self.rest = Some(&rest[slash + 1..]);
                &rest[..slash]
            }
            None => rest,
        };
        if component.is_empty() {
            return Some(Cow::Borrowed(EMPTY));
        }
        if is_plain(component) {
            return Some(Cow::Borrowed(component));
        }
        let escaped = escape(component);
        if escaped.len() <= CHUNK {
            return Some(Cow::Owned(escaped));
        }
        self.long = Some((escaped, 0));
        self.next_chunk().map(Cow::Owned)
    }
}

impl FusedIterator for Components<'_> {}

impl Components<'_> {
    fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let (text, given) = self.long.as_mut()?;
        let text = &text[*given..];
        let cut = cut(text);
        let chunk = &text[..cut];
        let mut name = Vec::with_capacity(CHUNK + 2 + CONTINUED.len());
        // The first chunk was escaped as part of the component; a later one can start with `.git` too.
        if starts_with_dot_git(chunk) {
            push_escape(chunk[0], &mut name);
            name.extend_from_slice(&chunk[1..]);
        } else {
            name.extend_from_slice(chunk);
        }
        if cut == text.len() {
            self.long = None;
        } else {
            *given += cut;
            name.extend_from_slice(CONTINUED);
        }
        Some(name)
    }
}

/// Returns how many bytes of an escaped `text` go into its first chunk; never cuts an escape.
fn cut(text: &[u8]) -> usize {
    if text.len() <= CHUNK {
        return text.len();
    }
    match text[CHUNK - 2..CHUNK] {
        [b'%', _] => CHUNK - 2,
        [_, b'%'] => CHUNK - 1,
        _ => CHUNK,
    }
}

/// Returns whether the nonempty `component` needs no escape.
fn is_plain(component: &[u8]) -> bool {
    component.len() <= CHUNK
        && !component.iter().any(|&byte| ESCAPED[usize::from(byte)])
        && !starts_with_dot_git(component)
        && !matches!(component.last(), Some(b'.' | b' '))
}

/// Escapes the nonempty `component` as a whole.
fn escape(component: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(component.len() + 16);
    let last = component.len() - 1;
    let escape_first = component == b".." || starts_with_dot_git(component);
    for (index, &byte) in component.iter().enumerate() {
        // File systems drop a trailing dot or space, so `a.` would become `a`.
        let special = index == 0 && escape_first || index == last && matches!(byte, b'.' | b' ');
        if special || ESCAPED[usize::from(byte)] {
            push_escape(byte, &mut escaped);
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

fn starts_with_dot_git(name: &[u8]) -> bool {
    name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b".git"))
}

fn push_escape(byte: u8, to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let high = DIGITS[usize::from(byte >> 4)];
    let low = DIGITS[usize::from(byte & 0xF)];
    to.extend_from_slice(&[b'%', high, low]);
}

/// Appends `piece` unescaped; `None` if a `%` does not start an escape.
fn unescape(piece: &[u8], to: &mut Vec<u8>) -> Option<()> {
    let mut rest = piece;
    while let Some(percent) = rest.iter().position(|&byte| byte == b'%') {
        to.extend_from_slice(&rest[..percent]);
        let digits = rest.get(percent + 1..percent + 3)?;
        to.push(hex_digit(digits[0])? << 4 | hex_digit(digits[1])?);
        rest = &rest[percent + 3..];
    }
    to.extend_from_slice(rest);
    Some(())
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Formats a path of any bytes for display.
fn show(path: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let names: Vec<_> = path.into_iter().map(|name| name.as_ref().escape_ascii().to_string()).collect();
    names.join("/")
}
