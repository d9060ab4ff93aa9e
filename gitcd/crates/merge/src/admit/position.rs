//! Finds the line of a value in a JSON or YAML text.
//!
//! This is not a parser: it follows one path through a text that was parsed before, by indentation and brackets. What it does not
//! support, such as aliases and multi-line keys, ends the search, and the last line found is returned.

use super::finding::Step;

/// Returns the line of the value at a path, or of the last existing part of the path; `None` if not even its first step exists.
pub(super) fn line(text: &str, path: &[Step]) -> Option<usize> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('{') {
        let mut flow = Flow { text, at: text.len() - start.len() };
        return flow.find(path).map(|at| number(text, at));
    }
    let lines: Vec<Line<'_>> = lines(text).collect();
    block(text, &lines, path)
}

/// Returns the line number of a byte.
fn number(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[derive(Clone, Copy)]
struct Line<'t> {
    /// Number of columns by which its content is indented.
    indent: usize,
    content: &'t str,
    /// Offset of its content in the text.
    at: usize,
}

/// Returns the lines with content, without comments, directives and document markers.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        })
        .filter_map(|(start, line)| {
            let line = if start == 0 { line.trim_start_matches('\u{feff}') } else { line };
            let content = line.trim_start_matches(' ');
            let indent = line.len() - content.len();
            let is_mark = indent == 0 && (content.starts_with("---") || content.starts_with("..."));
            let content = content.trim_end();
            let says_something =
                !(content.is_empty() || content.starts_with('#') || indent == 0 && content.starts_with('%'));
            (says_something && !is_mark).then_some(Line { indent, content, at: start + indent })
        })
}

/// Follows a path through lines, the first of which starts the value. A nested value ends at a line that is indented less.
fn block(text: &str, lines: &[Line<'_>], path: &[Step]) -> Option<usize> {
    let (step, rest) = path.split_first()?;
    let indent = lines.first()?.indent;
    let end = lines.iter().position(|line| line.indent < indent).unwrap_or(lines.len());
    let lines = &lines[..end];
    let at = match step {
        Step::Field(name) => lines.iter().position(|line| {
            line.indent == indent && key(line.content).is_some_and(|(found, _)| found == name.as_str())
        })?,
        Step::Item(item) => {
            let is_item = |line: &Line<'_>| line.indent == indent && is_item(line.content);
            lines.iter().enumerate().filter(|(_, line)| is_item(line)).nth(*item)?.0
        }
    };
    let line = lines[at];
    let here = number(text, line.at);
    if rest.is_empty() {
        return Some(here);
    }
    let value = match step {
        Step::Field(_) => key(line.content)?.1,
        Step::Item(_) => &line.content[1..],
    };
    let start = value.trim_start();
    let offset = line.content.len() - start.len();
    if start.starts_with(['{', '[']) {
        let mut flow = Flow { text, at: line.at + offset };
        return Some(flow.find(rest).map_or(here, |at| number(text, at)));
    }
    let below = &lines[at + 1..];
    let found = match step {
        // `- name: a`: the value starts on the line of its dash.
        Step::Item(_) if !start.is_empty() && !start.starts_with('#') => {
            let first = Line { indent: indent + offset, content: start, at: line.at + offset };
            let nested = below.iter().take_while(|line| line.indent > indent).copied();
            let nested: Vec<_> = std::iter::once(first).chain(nested).collect();
            block(text, &nested, rest)
        }
        _ => {
            // List items may have the indentation of the list's key.
            let is_below = |line: &&Line<'_>| {
                line.indent > indent || matches!(step, Step::Field(_)) && line.indent == indent && is_item(line.content)
            };
            let nested: Vec<_> = below.iter().take_while(is_below).copied().collect();
            block(text, &nested, rest)
        }
    };
    found.or(Some(here))
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}

/// Returns the key of a line `key: value`, and what follows the colon.
fn key(content: &str) -> Option<(String, &str)> {
    if content.starts_with(['"', '\'']) {
        let end = quoted(content)?;
        let rest = content[end..].trim_start().strip_prefix(':')?;
        return Some((unquoted(&content[..end]), rest));
    }
    if is_item(content) {
        return None;
    }
    let colon = content.match_indices(':').find(|(at, _)| {
        let rest = &content[at + 1..];
        rest.is_empty() || rest.starts_with([' ', '\t'])
    })?;
    Some((content[..colon.0].trim_end().to_owned(), &content[colon.0 + 1..]))
}

/// Returns the end of the quoted scalar at the start of a text, after the last quote.
fn quoted(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' if quote == '"' => {
                chars.next();
            }
            '\'' if quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == '\'') => {
                chars.next();
            }
            char if char == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn unquoted(text: &str) -> String {
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(inner) => inner.replace("''", "'"),
        None => serde_json::from_str(text).unwrap_or_else(|_| text.trim_matches('"').to_owned()),
    }
}

/// A reader of JSON and of YAML in flow style.
struct Flow<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Flow<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips white space and comments.
    fn space(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn is_at(&mut self, char: char) -> bool {
        self.space();
        self.rest().starts_with(char)
    }

    fn take(&mut self, char: char) -> bool {
        let is_at = self.is_at(char);
        self.at += if is_at { char.len_utf8() } else { 0 };
        is_at
    }

    /// Returns where the value at a path starts, or its key; otherwise where the last existing part of the path starts.
    fn find(&mut self, path: &[Step]) -> Option<usize> {
        let (step, rest) = path.split_first()?;
        let mut number = 0;
        let is_map = self.take('{');
        if !is_map && !self.take('[') {
            return None;
        }
        loop {
            self.space();
            if self.rest().is_empty() || self.rest().starts_with(['}', ']']) {
                return None;
            }
            let start = self.at;
            let is_it = match (step, is_map) {
                (Step::Field(name), true) => {
                    let key = self.scalar();
                    self.take(':') && key == *name
                }
                (Step::Item(item), false) => *item == number,
                _ => return None,
            };
            if is_it {
                return self.find(rest).or(Some(start));
            }
            self.value()?;
            self.take(',');
            number += 1;
        }
    }

    /// Skips a value; `None` if the text ends within it.
    fn value(&mut self) -> Option<()> {
        self.space();
        let mut depth = 0_usize;
        loop {
            self.space();
            match self.rest().chars().next()? {
                '{' | '[' => {
                    depth += 1;
                    self.at += 1;
                }
                '}' | ']' | ',' if depth == 0 => return Some(()),
                '}' | ']' => {
                    depth -= 1;
                    self.at += 1;
                }
                ',' | ':' => self.at += 1,
                _ => {
                    self.scalar();
                }
            }
            if depth == 0 && (self.is_at(',') || self.is_at('}') || self.is_at(']')) {
                return Some(());
            }
        }
    }

    /// Reads a scalar; consumes at least one character.
    fn scalar(&mut self) -> String {
        self.space();
        let rest = self.rest();
        if rest.starts_with(['"', '\'']) {
            let end = quoted(rest).unwrap_or(rest.len());
            let text = unquoted(&rest[..end]);
            self.at += end;
            return text;
        }
        let ends = |(at, char): &(usize, char)| {
            matches!(char, ',' | '{' | '}' | '[' | ']' | '\n')
                || *char == ':' && rest[at + 1..].starts_with([' ', '\n', '\t', ',', '}', ']'])
        };
        let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let end = end.max(rest.chars().next().map_or(0, char::len_utf8));
        let text = rest[..end].trim_end().to_owned();
        self.at += end;
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(path: &str) -> Vec<Step> {
        let step = |name: &str| name.parse().map_or_else(|_| Step::Field(name.to_owned()), Step::Item);
        path.split('/').map(step).collect()
    }

    const YAML: &str = "\
# A comment
apiVersion: v1   # one
kind: Pod
metadata: {name: a, labels: {
  x: 'y, {', z: \"1\"}}
spec:

  containers:
  - name: a # first
    image: b
    args:
    - x
    - |
      spec: no
    - z: 1
  -
    name: b
    env: [{name: X, value: \"1\"},
      {name: 'Y', value: 2}]
  \"quoted: key\": 7
  text: >
    containers: no
   # not a comment
  last: 1
";

    #[test]
    fn the_line_of_a_value_in_yaml_is_found() {
        for (of, line) in [
            ("kind", 3),
            ("metadata/name", 4),
            ("metadata/labels/x", 5),
            ("metadata/labels/z", 5),
            ("metadata/missing", 4),
            ("spec/containers/0/name", 9),
            ("spec/containers/0/image", 10),
            ("spec/containers/0/args/0", 12),
            ("spec/containers/0/args/2/z", 15),
            ("spec/containers/1/name", 17),
            ("spec/containers/1/env/0/value", 18),
            ("spec/containers/1/env/1/value", 19),
            ("spec/quoted: key", 20),
            ("spec/last", 24),
            ("spec/missing/a", 6),
        ] {
            assert_eq!(super::line(YAML, &path(of)), Some(line), "{of}");
        }
        assert_eq!(super::line(YAML, &path("missing")), None);
        assert_eq!(super::line("\u{feff}---\na:\n- b: 1\n- 2\n", &path("a/1")), Some(4));
    }

    #[test]
    fn the_line_of_a_value_in_json_is_found() {
        let text = "\n{\n \"a\": [1,\n  {\"b\": \"x]\", \"\\u0063\":\n true}],\n \"d\": {}\n}";
        for (of, line) in
            [("a", 3), ("a/0", 3), ("a/1", 4), ("a/1/b", 4), ("a/1/c", 4), ("d", 6), ("d/x", 6), ("a/7", 3)]
        {
            assert_eq!(super::line(text, &path(of)), Some(line), "{of}");
        }
        assert_eq!(super::line(text, &path("e")), None);
    }

    proptest! {
        #[test]
        fn any_text_ends_the_search(text in "[-{}\\[\\]:,'\"# a\n|]{0,40}", item in 0..3_usize) {
            for path in [vec![Step::Field("a".into()), Step::Item(item), Step::Field("a".into())], vec![Step::Item(item), Step::Item(0)]] {
                let line = super::line(&text, &path);
                prop_assert!(line.is_none_or(|line| line >= 1 && line <= text.lines().count().max(1)), "{:?}", line);
            }
        }
    }
}
