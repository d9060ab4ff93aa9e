//! How a value is written as a blob that a person reads, and read back byte for byte.
//!
//! JSON without insignificant white space, which is what kube-apiserver writes, is
//! laid out with one field a line; everything else stays as it is. The layout is
//! lexical: strings, numbers and the order of keys are copied, so taking the white
//! space out again gives the value exactly. See `docs/design/git.md`, *Values*.
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

/// What has to be done to a blob to get the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The blob is the value.
    Raw,
    /// The value is the blob's JSON without white space.
    Compact,
    /// The same, and a newline at the end: kube-apiserver's form.
    CompactNewline,
}

impl Form {
    /// The letter that stands for this form in the metadata.
    pub const fn code(self) -> char {
        match self {
            Self::Raw => 'r',
            Self::Compact => 'c',
            Self::CompactNewline => 'n',
        }
    }

    /// The form that a letter stands for.
    pub const fn from_code(code: char) -> Option<Self> {
        match code {
            'r' => Some(Self::Raw),
            'c' => Some(Self::Compact),
            'n' => Some(Self::CompactNewline),
            _ => None,
        }
    }
}

/// The blob for `value`, and the form to record with it.
///
/// A raw value is borrowed; laying out JSON takes one pass over it and at most
/// eight times its size (and 4 KiB).
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

/// The value of `blob`, the inverse of [`encode`].
///
/// A blob that a person laid out differently is read, too. Takes one pass.
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

/// The form of a blob for which none is recorded, such as one that a person committed.
///
/// kube-apiserver's form if it is a JSON object or array, otherwise raw. [`decode`]
/// accepts the blob in this form. Takes one pass and no memory.
pub fn guess(blob: &[u8]) -> Form {
    if str::from_utf8(blob).is_ok() && json::walk(blob, &mut json::Check).is_ok() {
        Form::CompactNewline
    } else {
        Form::Raw
    }
}

/// A blob is not in the form that is recorded for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("recorded in form {form:?}, but at byte {offset} {expected} was expected")]
pub struct DecodeError {
    /// The letter of the recorded form.
    pub form: char,
    /// Where reading stopped, in bytes from the start of the blob.
    pub offset: usize,
    /// What a well-formed blob would have there.
    pub expected: &'static str,
}
