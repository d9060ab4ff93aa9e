//! Rejects what the parser accepts, but Kubernetes' reader rejects or reads differently.

use std::ops::Range;

use granit_parser::{ScalarStyle, StructureStyle};

use super::Unreadable;
use super::tree::{Content, Tree};

/// Characters that end a line in YAML 1.1, but not in YAML 1.2.
const SEPARATORS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Rejects characters that Kubernetes' reader rejects.
pub(super) fn check_characters(text: &str) -> Result<(), Unreadable> {
    let mut begins = true;
    for (at, character) in text.char_indices() {
        let problem = match character {
            '\u{feff}' if at == 0 => continue,
            '\u{feff}' if begins => Some("it has a byte order mark that is not at its beginning"),
            '\t'
            | '\n'
            | '\r'
            | ' '..='~'
            | '\u{85}'
            | '\u{a0}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fffd}'
            | '\u{1_0000}'.. => None,
            _ => Some("it has a control character; write it as an escape in double quotes"),
        };
        if let Some(problem) = problem {
            return Err(error(text, at, format!("{problem} (U+{:04X})", u32::from(character))));
        }
        begins = character == '\n';
    }
    Ok(())
}

/// Rejects constructs that Kubernetes' reader rejects or reads differently.
pub(super) fn check(tree: &Tree<'_>) -> Result<(), Unreadable> {
    let text = tree.text;
    let head = tree.root.map_or(text, |root| &text[..tree.nodes[root].start]);
    let mut at = 0;
    for line in head.split_inclusive('\n') {
        if line.starts_with("...") {
            return Err(error(text, at, "a document end marker precedes the document".into()));
        }
        if line.starts_with('%') && !line.starts_with("%YAML ") && !line.starts_with("%TAG ") {
            return Err(error(text, at, "it has an unknown directive".into()));
        }
        at += line.len();
    }
    // Nodes are in the order of the text.
    let mut brackets = 0;
    for node in &tree.nodes {
        match &node.content {
            Content::List(_, StructureStyle::Flow) => brackets = brackets.max(node.span.end),
            Content::Map(children, StructureStyle::Flow) => {
                brackets = brackets.max(node.span.end);
                for name in children.iter().step_by(2).map(|name| &tree.nodes[*name]) {
                    if matches!(name.content, Content::Scalar(..)) && text[name.span.clone()].contains('\n') {
                        return Err(error(text, name.start, "the name of a field must be in one line".into()));
                    }
                    if matches!(name.content, Content::Scalar(_, ScalarStyle::Plain))
                        && text[name.span.end..].starts_with(':')
                        && text[name.span.end + 1..].starts_with([',', '[', ']', '{', '}'])
                    {
                        return Err(error(
                            text,
                            name.start,
                            "a colon before a bracket or comma needs a blank behind it".into(),
                        ));
                    }
                }
            }
            Content::Scalar(value, ScalarStyle::Plain) if node.start < brackets => {
                let raw = &text[node.span.clone()];
                if value.contains('?') {
                    return Err(error(text, node.start, "a question mark within brackets needs quotes".into()));
                }
                if value.starts_with(':') || value.starts_with("---") || value.starts_with("...") {
                    return Err(error(
                        text,
                        node.start,
                        "text that begins with a colon or a document marker needs quotes within brackets".into(),
                    ));
                }
                if raw.contains('\n') && raw.contains('\t') {
                    return Err(error(
                        text,
                        node.start,
                        "text with a tab character within brackets needs quotes".into(),
                    ));
                }
            }
            Content::Scalar(_, ScalarStyle::DoubleQuoted) if has_escaped_slash(&text[node.span.clone()]) => {
                return Err(error(text, node.start, "Kubernetes does not read the escape \"\\/\"".into()));
            }
            Content::Scalar(value, ScalarStyle::Literal | ScalarStyle::Folded)
                if value.trim_start_matches('\n').starts_with('\t') =>
            {
                let header = text[..node.span.start].trim_end().rsplit('\n').next().unwrap_or_default();
                let header = header.split(" #").next().unwrap_or_default().trim_end();
                if !header.trim_end_matches(['-', '+']).ends_with(|digit: char| digit.is_ascii_digit())
                    && !header.ends_with(|digit: char| digit.is_ascii_digit())
                {
                    return Err(error(text, node.start, "a block of text begins with a tab character".into()));
                }
            }
            _ => {}
        }
    }
    check_tabs(tree)?;
    check_separators(tree)
}

fn has_escaped_slash(raw: &str) -> bool {
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        if character == '\\' && characters.next() == Some('/') {
            return true;
        }
    }
    false
}

/// Rejects tabs in indentation: before the content of a line, and after a dash or question mark there.
fn check_tabs(tree: &Tree<'_>) -> Result<(), Unreadable> {
    let text = tree.text;
    if !text.contains('\t') {
        return Ok(());
    }
    let taken: Vec<Range<usize>> = tree
        .nodes
        .iter()
        .filter_map(|node| match node.content {
            Content::Scalar(_, style) if style != ScalarStyle::Plain => Some(node.span.clone()),
            Content::List(_, StructureStyle::Flow) | Content::Map(_, StructureStyle::Flow) => Some(node.span.clone()),
            _ => None,
        })
        .collect();
    let mut taken = taken.into_iter().peekable();
    let mut within = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bytes = line.as_bytes();
        let mut place = if line.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        loop {
            while bytes.get(place) == Some(&b' ') {
                place += 1;
            }
            match bytes.get(place) {
                Some(b'\t') => {
                    let tab = at + place;
                    while let Some(span) = taken.next_if(|span| span.start <= tab) {
                        within = within.max(span.end);
                    }
                    if tab >= within {
                        return Err(error(text, tab, "a tab character is used for indentation".into()));
                    }
                    break;
                }
                Some(b'-' | b'?') if matches!(bytes.get(place + 1), Some(b' ' | b'\t')) => place += 1,
                _ => break,
            }
        }
        at += line.len();
    }
    Ok(())
}

/// Accepts separators of YAML 1.1 only where they make no difference: between other characters of a quoted value.
fn check_separators(tree: &Tree<'_>) -> Result<(), Unreadable> {
    let text = tree.text;
    if !text.contains(SEPARATORS) {
        return Ok(());
    }
    let mut quoted = vec![];
    for node in &tree.nodes {
        let Content::Map(children, _) = &node.content else {
            continue;
        };
        for value in children.iter().skip(1).step_by(2).map(|value| &tree.nodes[*value]) {
            if matches!(value.content, Content::Scalar(_, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted)) {
                quoted.push(value.span.clone());
            }
        }
    }
    quoted.sort_by_key(|span| span.start);
    for (at, separator) in text.match_indices(SEPARATORS) {
        let span = quoted.partition_point(|span| span.start <= at).checked_sub(1).map(|place| quoted[place].clone());
        let inside = span.is_some_and(|span| {
            let is_blank = |character: char| character.is_whitespace() || matches!(character, '\\' | '"' | '\'');
            at < span.end
                && !text[span.start + 1..at].ends_with(is_blank)
                && !text[at + separator.len()..span.end].starts_with(is_blank)
                && at > span.start + 1
        });
        if !inside || separator == "\u{85}" {
            let reason = format!(
                "it has a line separator that YAML 1.1 and YAML 1.2 read differently; write it as an escape in double quotes (U+{:04X})",
                separator.chars().next().map_or(0, u32::from)
            );
            return Err(error(text, at, reason));
        }
    }
    Ok(())
}

fn error(text: &str, at: usize, reason: String) -> Unreadable {
    Unreadable::new(1 + text[..at].bytes().filter(|byte| *byte == b'\n').count(), reason)
}
