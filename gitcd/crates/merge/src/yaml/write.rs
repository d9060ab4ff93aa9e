//! Writes values so that YAML 1.1 and YAML 1.2 readers agree, in the style of Kubernetes: lists are not indented.

use std::borrow::Cow;
use std::fmt::Write;

use granit_parser::ScalarStyle;

use super::scalar;
use crate::value::{Map, Value, text};

/// Maximum length of a name without an explicit "?": readers search only 1,024 characters for a colon.
const LONGEST_NAME: usize = 1000;

/// Writes the whole document.
pub(super) fn document(value: &Value) -> Option<String> {
    let mut out = String::new();
    match value {
        Value::Map(map) if !map.is_empty() => fields(&mut out, map, 0)?,
        Value::List(list) if !list.is_empty() => items(&mut out, list, 0)?,
        _ => {
            out.push_str(&inline(value, 0, ScalarStyle::Plain)?);
            out.push('\n');
        }
    }
    Some(out)
}

/// Writes what follows the colon of a field at `indent`, with the blank or line break before it, without the last line break.
pub(super) fn behind_colon(value: &Value, indent: usize, style: ScalarStyle) -> Option<String> {
    let mut out = String::new();
    match value {
        Value::Map(map) if !map.is_empty() => {
            out.push('\n');
            pad(&mut out, indent + 2);
            fields(&mut out, map, indent + 2)?;
        }
        Value::List(list) if !list.is_empty() => {
            out.push('\n');
            pad(&mut out, indent);
            items(&mut out, list, indent)?;
        }
        _ => {
            out.push(' ');
            out.push_str(&inline(value, indent, style)?);
            return Some(out);
        }
    }
    out.pop();
    Some(out)
}

/// Writes what follows the dash of an item at `indent`, likewise.
pub(super) fn behind_dash(value: &Value, indent: usize, style: ScalarStyle) -> Option<String> {
    let mut out = String::from(" ");
    match value {
        Value::Map(map) if !map.is_empty() => fields(&mut out, map, indent + 2)?,
        Value::List(list) if !list.is_empty() => items(&mut out, list, indent + 2)?,
        _ => {
            out.push_str(&inline(value, indent, style)?);
            return Some(out);
        }
    }
    out.pop();
    Some(out)
}

/// Writes fields on separate lines, starting at the end of the text.
fn fields(out: &mut String, map: &Map, indent: usize) -> Option<()> {
    for (place, (name, value)) in (0..).map_while(|place| (place < map.len()).then(|| (place, map.field(place)))) {
        if place > 0 {
            pad(out, indent);
        }
        field(out, &decoded(name)?, value, indent)?;
        out.push('\n');
    }
    Some(())
}

/// Writes a field, without the last line break.
pub(super) fn field(out: &mut String, name: &str, value: &Value, indent: usize) -> Option<()> {
    let quoted = quoted(name, ScalarStyle::Plain, false);
    if quoted.len() > LONGEST_NAME {
        out.push_str("? ");
        out.push_str(&quoted);
        out.push('\n');
        pad(out, indent);
    } else {
        out.push_str(&quoted);
    }
    out.push(':');
    out.push_str(&behind_colon(value, indent, ScalarStyle::Plain)?);
    Some(())
}

fn items(out: &mut String, list: &[Value], indent: usize) -> Option<()> {
    for (place, item) in list.iter().enumerate() {
        if place > 0 {
            pad(out, indent);
        }
        out.push('-');
        out.push_str(&behind_dash(item, indent, ScalarStyle::Plain)?);
        out.push('\n');
    }
    Some(())
}

/// Writes a scalar or an empty collection, with further lines indented by more than `indent`.
fn inline(value: &Value, indent: usize, style: ScalarStyle) -> Option<String> {
    match value {
        Value::Map(_) => Some("{}".into()),
        Value::List(_) => Some("[]".into()),
        Value::Scalar(scalar) if scalar.starts_with('"') => {
            let text = decoded(scalar)?;
            Some(block(&text, indent).unwrap_or_else(|| quoted(&text, style, false)))
        }
        Value::Scalar(scalar) => number(scalar),
    }
}

/// Writes a value on one line, for use within brackets or before a comment.
pub(super) fn flow(value: &Value, style: ScalarStyle) -> Option<String> {
    let mut out = String::new();
    match value {
        Value::Map(map) => {
            out.push('{');
            for place in 0..map.len() {
                let (name, value) = map.field(place);
                if place > 0 {
                    out.push_str(", ");
                }
                out.push_str(&flow_field(&decoded(name)?, value)?);
            }
            out.push('}');
        }
        Value::List(list) => {
            out.push('[');
            for (place, item) in list.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                out.push_str(&flow(item, ScalarStyle::Plain)?);
            }
            out.push(']');
        }
        Value::Scalar(scalar) if scalar.starts_with('"') => out = quoted(&decoded(scalar)?, style, true),
        Value::Scalar(scalar) => out = number(scalar)?,
    }
    Some(out)
}

/// Writes a field within braces; `None` if its name is too long for that.
pub(super) fn flow_field(name: &str, value: &Value) -> Option<String> {
    let name = quoted(name, ScalarStyle::Plain, true);
    (name.len() <= LONGEST_NAME).then_some(())?;
    Some(format!("{name}: {}", flow(value, ScalarStyle::Plain)?))
}

/// Returns the text of a JSON string; `None` if it has half of a surrogate pair.
fn decoded(json: &str) -> Option<Cow<'_, str>> {
    let plain = text(json);
    match plain {
        Cow::Borrowed(inner) if inner.contains('\\') => None,
        plain => Some(plain),
    }
}

/// Returns a number, `true`, `false` or `null`, unless YAML reads the number as a string.
fn number(json: &str) -> Option<String> {
    let read = scalar::resolve(None, &Cow::Borrowed(json), true).ok()?;
    (!matches!(read, scalar::Scalar::Text(_))).then(|| json.to_owned())
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Writes multi-line text as a block, if every reader reads it the same.
fn block(text: &str, indent: usize) -> Option<String> {
    let lines = text.trim_end_matches('\n');
    let fits = text.contains('\n')
        && !lines.starts_with([' ', '\n', '\t'])
        && !lines.is_empty()
        && text.chars().all(|character| matches!(character, '\n' | '\t') || is_printable(character));
    if !fits {
        return None;
    }
    let mut out = String::from(match text.len() - lines.len() {
        0 => "|-",
        1 => "|",
        // What follows the block would count.
        _ => return None,
    });
    let text = text.strip_suffix('\n').unwrap_or(text);
    for line in text.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(&mut out, indent + 2);
            out.push_str(line);
        }
    }
    Some(out)
}

/// Writes a string on one line: plain if every reader reads it as this string, otherwise in quotes.
pub(super) fn quoted(text: &str, style: ScalarStyle, in_flow: bool) -> String {
    match style {
        ScalarStyle::Plain if is_plain(text, in_flow) => return text.to_owned(),
        ScalarStyle::SingleQuoted if text.chars().all(is_printable) => {
            return format!("'{}'", text.replace('\'', "''"));
        }
        _ => {}
    }
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            character if is_printable(character) => out.push(character),
            character => write!(out, "\\u{:04X}", u32::from(character)).expect("writing to a string does not fail"),
        }
    }
    out.push('"');
    out
}

/// Returns whether readers of both versions accept a character unescaped within a line.
fn is_printable(character: char) -> bool {
    matches!(character, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{1_0000}'..)
}

/// Returns whether a string needs no quotes. Everything that looks like a number, a time or an indicator does.
fn is_plain(text: &str, in_flow: bool) -> bool {
    const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];
    let begins = |character: char| matches!(character, 'a'..='z' | 'A'..='Z' | '/' | '_' | '$' | '(');
    text.starts_with(|character: char| begins(character) || !character.is_ascii() && character.is_alphabetic())
        && text.chars().all(is_printable)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && !(in_flow && text.contains([',', '[', ']', '{', '}', '?', ':', '"', '\'', '#']))
}
