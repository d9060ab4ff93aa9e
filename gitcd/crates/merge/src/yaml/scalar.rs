//! The meaning of YAML scalars for Kubernetes.
//!
//! kubectl and kube-apiserver read YAML with `sigs.k8s.io/yaml`, which uses version 2 of Go's `yaml` package: mostly YAML 1.1,
//! with octal and binary numbers in Go's notation, and without base-60 numbers. This module follows its `resolve.go`.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::tree::CORE;

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'t> {
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i128),
    /// Another number, with its text if that is valid JSON.
    Float(f64, Option<String>),
    /// A string.
    Text(Cow<'t, str>),
}

/// Resolves a scalar by its tag and its text. `plain` means neither quoted nor a block.
pub(super) fn resolve<'t>(tag: Option<&str>, text: &Cow<'t, str>, plain: bool) -> Result<Scalar<'t>, String> {
    let as_text = || Ok(Scalar::Text(text.clone()));
    let tag = match tag {
        None if plain => return Ok(implicit(text)),
        None => return as_text(),
        Some(tag) => tag,
    };
    let resolved = match tag.strip_prefix(CORE) {
        Some("bool" | "int" | "float" | "null") => implicit(text),
        Some("binary") => return binary(text),
        Some("timestamp") if is_timestamp(text) => return as_text(),
        Some("timestamp") => return Err("it is tagged !!timestamp, but is not a timestamp".to_owned()),
        _ => return as_text(),
    };
    match (tag.strip_prefix(CORE), resolved) {
        (Some("null"), Scalar::Null) => Ok(Scalar::Null),
        (Some("bool"), value @ Scalar::Bool(_))
        | (Some("int"), value @ Scalar::Int(_))
        | (Some("float"), value @ Scalar::Float(..)) => Ok(value),
        // Unsigned integers are rejected.
        (Some("float"), Scalar::Int(value)) if i64::try_from(value).is_ok() => Ok(Scalar::Float(value as f64, None)),
        (name, _) => Err(format!("it is tagged !!{}, but is not one", name.unwrap_or_default())),
    }
}

impl Scalar<'_> {
    /// Returns its JSON text.
    pub(super) fn json(&self) -> Result<String, String> {
        Ok(match self {
            Self::Null => "null".into(),
            Self::Bool(truth) => truth.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value, _) if !value.is_finite() => {
                return Err("JSON has no infinity and no NaN".into());
            }
            Self::Float(_, Some(text)) => text.clone(),
            Self::Float(value, None) => shortest(*value),
            Self::Text(text) => serde_json::Value::from(text.as_ref()).to_string(),
        })
    }

    /// Returns its text as the name of a field.
    pub(super) fn name(&self) -> Result<String, String> {
        Ok(match self {
            Self::Text(text) => text.clone().into_owned(),
            Self::Bool(truth) => truth.to_string(),
            Self::Int(value) if i64::try_from(*value).is_ok() => value.to_string(),
            Self::Float(value, _) => name_of_float(*value as f32),
            Self::Int(value) => return Err(format!("the number {value} cannot be the name of a field; quote it")),
            Self::Null => return Err("null cannot be the name of a field; quote it".into()),
        })
    }
}

/// Resolves an unquoted scalar without a tag.
fn implicit<'t>(text: &Cow<'t, str>) -> Scalar<'t> {
    match text.as_ref() {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN, None),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY, None),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY, None),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' => leading_point(text),
        b'+' | b'-' | b'0'..=b'9' => number(text),
        _ => None,
    };
    number.unwrap_or_else(|| Scalar::Text(text.clone()))
}

fn number<'t>(text: &str) -> Option<Scalar<'t>> {
    let plain = text.replace('_', "");
    if let Some(value) = integer(&plain) {
        return Some(Scalar::Int(value));
    }
    if is_decimal(&plain) {
        return float(&plain);
    }
    // Binary numbers with a sign after the prefix.
    let (negative, digits) = match plain.strip_prefix("-0b") {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix("0b")?),
    };
    if negative && digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i128::from_str_radix(digits, 2).ok().filter(|value| i64::try_from(*value).is_ok())?;
    Some(Scalar::Int(if negative { -value } else { value }))
}

/// Go's `ParseInt` and `ParseUint` with base 0.
fn integer(text: &str) -> Option<i128> {
    let (negative, signed, digits) = match text.as_bytes().first()? {
        b'-' => (true, true, &text[1..]),
        b'+' => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match prefix.as_deref() {
        Some("0b") if digits.len() > 2 => (2, &digits[2..]),
        Some("0o") if digits.len() > 2 => (8, &digits[2..]),
        Some("0x") if digits.len() > 2 => (16, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if !digits.bytes().all(|byte| char::from(byte).is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok().map(i128::from)?;
    let value = if negative { -value } else { value };
    (i64::try_from(value).is_ok() || !signed).then_some(value)
}

/// Matches `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`.
fn is_decimal(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = digits(rest);
    let mut rest = &rest[whole..];
    if let Some(behind) = rest.strip_prefix('.') {
        let fraction = digits(behind);
        if whole + fraction == 0 {
            return false;
        }
        rest = &behind[fraction..];
    } else if whole == 0 {
        return false;
    }
    match rest.strip_prefix(['e', 'E']) {
        None => rest.is_empty(),
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent) == exponent.len()
        }
    }
}

/// Go's `ParseFloat` for a number with a leading point: underscores may separate digits.
fn leading_point<'t>(text: &str) -> Option<Scalar<'t>> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separated =
        (0..bytes.len()).filter(|at| bytes[*at] == b'_').all(|at| at > 0 && is_digit(at - 1) && is_digit(at + 1));
    let plain = text.replace('_', "");
    (separated && is_decimal(&plain)).then(|| float(&plain)).flatten()
}

fn float<'t>(text: &str) -> Option<Scalar<'t>> {
    let value: f64 = text.parse().ok()?;
    if value.is_infinite() {
        return None;
    }
    // Where Kubernetes sees an integer, JSON must too; the text of other numbers is kept.
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let kept = (is_integer || value.fract() != 0.0) && serde_json::from_str::<serde_json::Number>(text).is_ok();
    Some(Scalar::Float(value, kept.then(|| text.to_owned())))
}

/// Formats a number like Go's JSON encoder.
fn shortest(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

/// Formats a number with a point as the name of a field, like Go: the shortest digits for 32 bits, `%g`.
fn name_of_float(value: f32) -> String {
    if value.is_nan() {
        return ".nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go decides as if the precision were six digits.
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn binary<'t>(text: &str) -> Result<Scalar<'t>, String> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let digits: String = text.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    let bytes = ENGINE.decode(digits).map_err(|_| "it is tagged !!binary, but is not base64".to_owned())?;
    // JSON only has text; Go replaces every invalid byte.
    let mut decoded = String::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let valid = std::str::from_utf8(rest).map_or_else(|error| error.valid_up_to(), str::len);
        decoded.push_str(&String::from_utf8_lossy(&rest[..valid]));
        if valid < rest.len() {
            decoded.push('\u{fffd}');
        }
        rest = rest.get(valid + 1..).unwrap_or_default();
    }
    Ok(Scalar::Text(decoded.into()))
}

/// Matches the formats that Go's reader accepts, with their fields in range.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some((text.as_bytes()[at], &text[at + 1..]))),
        None => (text, None),
    };
    let field = |text: &str, range: std::ops::RangeInclusive<u32>, longest: usize| {
        (1..=longest).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && text.parse().is_ok_and(|number| range.contains(&number))
    };
    let date: Vec<&str> = date.split('-').collect();
    let [year, month, day] = date[..] else { return false };
    let leap = year.parse::<u32>().is_ok_and(|year| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let days = match month.parse() {
        Ok(2) => 28 + u32::from(leap),
        Ok(4 | 6 | 9 | 11) => 30,
        _ => 31,
    };
    if year.len() != 4 || !field(year, 0..=9999, 4) || !field(month, 1..=12, 2) || !field(day, 1..=days, 2) {
        return false;
    }
    let Some((separator, time)) = time else { return true };
    let zone = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone_fits = match zone.as_bytes() {
        [] => separator == b' ',
        b"Z" => separator != b' ',
        [b'+' | b'-', _, _, b':', _, _] => {
            separator != b' ' && field(&zone[1..3], 0..=24, 2) && field(&zone[4..], 0..=60, 2)
        }
        _ => false,
    };
    let (time, fraction) = time.split_once(['.', ',']).map_or((time, None), |(time, rest)| (time, Some(rest)));
    let time: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = time[..] else { return false };
    zone_fits
        && field(hour, 0..=23, 2)
        && field(minute, 0..=59, 2)
        && field(second, 0..=59, 2)
        && fraction.is_none_or(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
