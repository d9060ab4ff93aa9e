//! Values to blobs and back (`gitcd::git::form`).

use std::borrow::Cow;

use gitcd::git::form::{Form, decode, encode, guess};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Maximum nesting that is parsed; deeper values are stored unchanged.
const MAX_NESTING: usize = 512;

/// Takes `data` as a value and as a blob in each form.
pub fn run(data: &[u8]) {
    value(data);
    for form in [Form::Raw, Form::Compact, Form::CompactNewline] {
        blob(form, data);
    }
    let followed = nesting(data) <= MAX_NESTING;
    assert_eq!(guess(data) == Form::CompactNewline, followed && is_document(data), "another parser disagrees");
}

/// Any value decodes to the same bytes, and its layout is the usual one.
fn value(value: &[u8]) {
    let (form, blob) = encode(value);
    assert_eq!(matches!(blob, Cow::Borrowed(_)), form == Form::Raw);
    assert_eq!(decode(form, &blob).as_deref(), Ok(value));
    assert_eq!(Form::from_code(form.code()), Some(form));
    if form == Form::Raw {
        return;
    }
    assert_eq!(guess(&blob), Form::CompactNewline);
    assert_eq!(form == Form::CompactNewline, value.ends_with(b"\n"));
    let text = value.strip_suffix(b"\n").unwrap_or(value);
    // The other layout differs where it normalizes numbers and escapes, or drops repeated names.
    if let Ok(parsed) = serde_json::from_slice::<Value>(text)
        && serde_json::to_vec(&parsed).is_ok_and(|compact| compact == text)
    {
        let mut usual = serde_json::to_vec_pretty(&parsed).expect("a parsed value can be written");
        usual.push(b'\n');
        assert_eq!(blob, usual);
    }
}

/// A decoded blob keeps its meaning, and its value encodes to the same form.
fn blob(form: Form, blob: &[u8]) {
    let value = match decode(form, blob) {
        Ok(value) => value,
        Err(error) => {
            assert!(error.offset <= blob.len() && error.form == form.code());
            return;
        }
    };
    if form == Form::Raw {
        assert_eq!(value, blob);
        return;
    }
    assert!(is_document(blob));
    assert!(value.len() <= blob.len() + 1);
    let (again, laid_out) = encode(&value);
    // Raw if indentation would multiply its size.
    assert!(again == form || again == Form::Raw);
    assert_eq!(decode(again, &laid_out), Ok(value.clone()));
    let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    assert_eq!(parsed(blob), parsed(&value));
}

/// An independent check whether `text` is a JSON object or array.
fn is_document(text: &[u8]) -> bool {
    let start = text.iter().find(|byte| !b" \t\r\n".contains(byte));
    matches!(start, Some(b'{' | b'['))
        && str::from_utf8(text).is_ok()
        && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Returns the maximum number of open containers, except for empty ones, which add no level.
fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped, mut opened) = (0_usize, 0, false, false, false);
    for &byte in text {
        if b" \t\r\n".contains(&byte) && !quoted {
            continue;
        }
        let closes = matches!(byte, b'}' | b']') && !quoted;
        if std::mem::take(&mut opened) && !closes {
            deepest = deepest.max(depth);
        }
        match byte {
            _ if std::mem::take(&mut escaped) => {}
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => (depth, opened) = (depth + 1, true),
            _ if closes => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
