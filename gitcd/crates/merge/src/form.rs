//! Encoding of values as human-readable blobs, and decoding to the same bytes.
//!
//! JSON without insignificant white space, as kube-apiserver writes it, is formatted with one field per line; everything else is
//! stored unchanged. The formatting is lexical: strings, numbers and the order of keys are copied, so removing the white space
//! yields exactly the value. See `docs/design/git.md`, *Values*.
//!
//! ```
//! use gitcd_merge::form::{self, Form};
//!
//! let (form, blob) = form::encode(b"{\"kind\":\"Pod\"}\n");
//! assert_eq!(form, Form::CompactNewline);
//! assert_eq!(&*blob, b"{\n  \"kind\": \"Pod\"\n}\n");
//! assert_eq!(form::decode(form, &blob)?, b"{\"kind\":\"Pod\"}\n");
//! # Ok::<(), form::DecodeError>(())
//! ```
use std::borrow::Cow;

pub(crate) mod json;
#[cfg(test)]
mod tests;

/// How to get the value from a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The blob is the value.
    Raw,
    /// The value is the blob's JSON without white space.
    Compact,
    /// The same, with a newline at the end: kube-apiserver's form.
    CompactNewline,
}

impl Form {
    /// Returns the letter for this form in the metadata.
    pub const fn code(self) -> char {
        match self {
            Self::Raw => 'r',
            Self::Compact => 'c',
            Self::CompactNewline => 'n',
        }
    }

    /// Returns the form for a letter.
    pub const fn from_code(code: char) -> Option<Self> {
        match code {
            'r' => Some(Self::Raw),
            'c' => Some(Self::Compact),
            'n' => Some(Self::CompactNewline),
            _ => None,
        }
    }
}

/// Returns the blob for `value`, and the form to record with it.
///
/// A raw value is borrowed; formatting JSON takes one pass and at most eight times its size (plus 4 KiB).
pub fn encode(value: &[u8]) -> (Form, Cow<'_, [u8]>) {
    let (form, text) = match value.strip_suffix(b"\n") {
        Some(text) => (Form::CompactNewline, text),
        None => (Form::Compact, value),
    };
    let is_candidate = matches!(text.first(), Some(b'{' | b'[')) && str::from_utf8(text).is_ok();
    if is_candidate {
        let mut layout = json::Layout::of(text.len());
        if json::walk(text, &mut layout).is_ok()
            && let Some(blob) = layout.finish()
        {
            return (form, Cow::Owned(blob));
        }
    }
    (Form::Raw, Cow::Borrowed(value))
}

/// Returns the value of `blob`, the inverse of [`encode`].
///
/// Also reads a blob that a user has formatted differently. Takes one pass.
///
/// # Errors
/// [`DecodeError`] if `form` is not raw and the blob is not a JSON object or array.
pub fn decode(form: Form, blob: &[u8]) -> Result<Vec<u8>, DecodeError> {
    if form == Form::Raw {
        return Ok(blob.to_vec());
    }
    let malformed = |offset, expected| DecodeError { form: form.code(), offset, expected };
    if let Err(error) = str::from_utf8(blob) {
        return Err(malformed(error.valid_up_to(), "UTF-8"));
    }
    let mut value = json::Squeeze(Vec::with_capacity(blob.len()));
    json::walk(blob, &mut value).map_err(|error| malformed(error.offset, error.expected))?;
    let json::Squeeze(mut value) = value;
    if form == Form::CompactNewline {
        value.push(b'\n');
    }
    Ok(value)
}

/// Returns the form of a blob without a recorded form, for example from an external commit.
///
/// A JSON object or array has kube-apiserver's form, any other blob is raw. [`decode`] accepts the blob in this form. Takes one
/// pass and no memory.
pub fn guess(blob: &[u8]) -> Form {
    if str::from_utf8(blob).is_ok() && json::walk(blob, &mut json::Check).is_ok() {
        Form::CompactNewline
    } else {
        Form::Raw
    }
}

/// A blob that does not match its recorded form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("recorded in form {form:?}, but at byte {offset} {expected} was expected")]
pub struct DecodeError {
    /// The letter of the recorded form.
    pub form: char,
    /// Where parsing stopped, in bytes from the start of the blob.
    pub offset: usize,
    /// What a well-formed blob has there.
    pub expected: &'static str,
}
