//! Paths of fields, as blame prints and accepts them: `spec.containers[name=web].image`, `data["a.b"]`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gitcd_merge::secrecy::Exposure;

/// A step of a field's path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A field of an object or a map.
    Name(Arc<str>),
    /// A list item by its key fields: names and texts, sorted by name.
    Keys(Arc<[(String, String)]>),
    /// An item of a set whose items have different texts.
    Element(Arc<str>),
    /// An item without a key, by its index.
    Index(usize),
}

/// The path of a field; empty for a value that is not an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(pub Vec<Step>);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) if is_plain(name) => f.write_str(name),
            Self::Name(name) => write!(f, "[{}]", json(name)),
            Self::Keys(keys) => {
                f.write_str("[")?;
                for (at, (name, text)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{}={}", in_brackets(name), in_brackets(text))?;
                }
                f.write_str("]")
            }
            Self::Element(text) => write!(f, "[{}]", in_brackets(text)),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            let is_after_dot = at > 0 && matches!(step, Step::Name(name) if is_plain(name));
            write!(f, "{}{step}", if is_after_dot { "." } else { "" })?;
        }
        Ok(())
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Quotes a text of a list item if it would not end where it ends.
fn in_brackets(text: &str) -> Cow<'_, str> {
    let ends = |c: char| matches!(c, ']' | ',' | '=' | '"') || c.is_control();
    if text.is_empty() || text.contains(ends) { json(text).into() } else { text.into() }
}

/// Names of labels and annotations may contain dots.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl FieldPath {
    /// Returns whether the value may be printed.
    pub(super) fn is_shown(&self, exposure: Exposure) -> bool {
        // The first steps decide.
        let first = |count: usize| FieldPath(self.0[..count.min(self.0.len())].to_vec()).to_string();
        exposure == Exposure::Open || exposure.shows(&first(3))
    }

    /// Returns whether this is field ownership: long, and rarely of interest.
    pub(super) fn is_managed_fields(&self) -> bool {
        matches!(&self.0[..], [Step::Name(part), Step::Name(name), ..] if **part == *"metadata" && **name == *MANAGED)
    }
}

const MANAGED: &str = "managedFields";

/// A path that a user wrote, which selects a field and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    parts: Vec<Part>,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The name of a field.
    Name(String),
    /// A quoted text in brackets: the name of a field, or the text of an item.
    Quoted(String),
    /// Names and texts of keys in brackets.
    Keys(Vec<(String, String)>, String),
    /// Another text in brackets: that of a key or of an item, an index, or a name.
    Bracket(String),
}

impl Part {
    fn selects(&self, step: &Step) -> bool {
        match (self, step) {
            (Self::Name(wanted) | Self::Quoted(wanted) | Self::Bracket(wanted), Step::Name(found))
            | (Self::Quoted(wanted) | Self::Keys(_, wanted) | Self::Bracket(wanted), Step::Element(found)) => {
                **wanted == **found
            }
            (Self::Keys(wanted, _), Step::Keys(keys)) => wanted.iter().all(|key| keys.contains(key)),
            (Self::Quoted(wanted) | Self::Bracket(wanted), Step::Keys(keys)) => {
                keys.iter().any(|(_, text)| text == wanted)
            }
            (Self::Bracket(wanted), Step::Index(at)) => *wanted == at.to_string(),
            _ => false,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Selector {
    type Err = String;

    /// Parses `spec.containers[name=web].image`, `spec.containers[web]`, `data["a.b"]`, `spec.finalizers[kubernetes]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |problem: &str| {
            format!(
                "{text:?} is not the path of a field: {problem}; write it as spec.containers[name=web].image or data[\"a.b\"]"
            )
        };
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (part, length) = bracket(inner).map_err(wrong)?;
                parts.push(part);
                rest = &inner[length..];
            } else {
                let name = rest.strip_prefix('.').unwrap_or(rest);
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err(wrong("a name is missing"));
                }
                parts.push(Part::Name(name[..end].to_owned()));
                rest = &name[end..];
            }
        }
        if parts.is_empty() {
            return Err(wrong("it is empty"));
        }
        Ok(Self { parts, text: text.to_owned() })
    }
}

/// Parses what follows an opening bracket. Also returns its length, with the closing bracket.
fn bracket(inner: &str) -> Result<(Part, usize), &'static str> {
    let (mut keys, mut at) = (Vec::new(), 0);
    loop {
        let (name, is_quoted) = text(inner, &mut at, &['=', ',', ']'])?;
        if inner[at..].starts_with('=') {
            at += 1;
            let (value, _) = text(inner, &mut at, &[',', ']'])?;
            keys.push((name, value));
        } else if is_quoted && keys.is_empty() && inner[at..].starts_with(']') {
            return Ok((Part::Quoted(name), at + 1));
        } else {
            // No keys: the whole text up to the bracket.
            let end = inner.find(']').ok_or(UNCLOSED)?;
            return Ok((Part::Bracket(inner[..end].to_owned()), end + 1));
        }
        if inner[at..].starts_with(']') {
            return Ok((Part::Keys(keys, inner[..at].to_owned()), at + 1));
        }
        at += 1;
    }
}

const UNCLOSED: &str = "a bracket is not closed";

/// Reads a text in brackets, quoted or up to one of these characters, of which one has to follow. Returns whether it was quoted.
fn text(inner: &str, at: &mut usize, ends: &[char]) -> Result<(String, bool), &'static str> {
    let rest = &inner[*at..];
    let found = if rest.starts_with('"') {
        let length = quoted(rest).ok_or("a quote is not closed")?;
        *at += length;
        (serde_json::from_str(&rest[..length]).map_err(|_| "an escape is invalid")?, true)
    } else {
        let length = rest.find(ends).ok_or(UNCLOSED)?;
        *at += length;
        (rest[..length].to_owned(), false)
    };
    if inner[*at..].starts_with(ends) { Ok(found) } else { Err("a quote is not followed by a bracket, a comma or =") }
}

/// Returns the length of a quoted text, with its quotes.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().skip(1).find_map(|(at, c)| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end.then_some(at + 1)
    })
}

impl Selector {
    /// Returns whether a path is the selected field or lies below it.
    pub fn selects(&self, path: &FieldPath) -> bool {
        self.matched(path) == self.parts.len()
    }

    /// Returns whether field ownership is requested.
    pub(super) fn has_managed_fields(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Name(name) | Part::Quoted(name) | Part::Bracket(name) if name == MANAGED))
    }

    /// Returns the number of steps from the start of `path` that this selects.
    pub(super) fn matched(&self, path: &FieldPath) -> usize {
        self.parts.iter().zip(&path.0).take_while(|(part, step)| part.selects(step)).count()
    }
}

/// Maximum number of names in a message.
const SHOWN: usize = 10;

/// Formats which fields exist where a selected one does not.
pub(super) fn near<'p>(selector: &Selector, paths: impl Iterator<Item = &'p FieldPath> + Clone) -> String {
    let deepest = paths.clone().map(|path| selector.matched(path)).max().unwrap_or_default();
    let beside: Vec<&FieldPath> = paths.filter(|path| selector.matched(path) == deepest).collect();
    let above = beside.first().map_or_else(String::new, |path| FieldPath(path.0[..deepest].to_vec()).to_string());
    let mut names: Vec<&Step> = beside.iter().filter_map(|path| path.0.get(deepest)).collect();
    names.dedup();
    let above = if above.is_empty() { "the value" } else { &above };
    if names.is_empty() {
        return format!("{above} has no fields");
    }
    let more = names.len().saturating_sub(SHOWN);
    let listed = names.into_iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{above} has {listed} and {more} more") } else { format!("{above} has {listed}") }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom as _;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn name(text: &str) -> Step {
        Step::Name(text.into())
    }

    fn keys(all: &[(&str, &str)]) -> Step {
        Step::Keys(all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn a_printed_path_selects_its_field() {
        let ports = [("containerPort", "80"), ("protocol", "TCP")];
        for (path, text) in [
            (vec![name("spec"), name("replicas")], "spec.replicas"),
            (vec![name("data"), name("a.b")], "data[\"a.b\"]"),
            (vec![name("data"), name("q\"]x\\"), name("y")], "data[\"q\\\"]x\\\\\"].y"),
            (vec![name("c"), keys(&[("name", "web")]), name("image")], "c[name=web].image"),
            (vec![name("ports"), keys(&ports), name("name")], "ports[containerPort=80,protocol=TCP].name"),
            (vec![name("finalizers"), Step::Element("x/y".into())], "finalizers[x/y]"),
            (vec![name("items"), Step::Index(3)], "items[3]"),
            (vec![name("c"), keys(&[("name", "a,b]c")]), name("x")], "c[name=\"a,b]c\"].x"),
            (vec![name("c"), keys(&[("a=b", ""), ("c", "d e")])], "c[\"a=b\"=\"\",c=d e]"),
            (vec![name("finalizers"), Step::Element("a=\"b\"".into())], "finalizers[\"a=\\\"b\\\"\"]"),
            (vec![name("data"), name("tab\tesc\u{1b}é")], "data[\"tab\\tesc\\u001bé\"]"),
        ] {
            let path = FieldPath(path);
            assert_eq!(path.to_string(), text);
            assert!(text.parse::<Selector>().unwrap().selects(&path), "{text}");
        }
        let image = FieldPath(vec![name("c"), keys(&[("name", "web")]), name("image")]);
        for (text, matched) in
            [("c[web]", 2), ("c", 1), ("c[web].image", 3), ("c[db].image", 1), ("c.web", 1), ("d", 0)]
        {
            assert_eq!(text.parse::<Selector>().unwrap().matched(&image), matched, "{text}");
        }
    }

    #[test]
    fn every_printed_path_selects_its_field_and_no_other_one() {
        const PIECES: [&str; 14] = ["a", "", "]", "[", ",", "=", "\"", "\\", ".", "é", "\n", "\u{202e}", "0", " "];
        let mut random = StdRng::seed_from_u64(1);
        let text = |random: &mut StdRng| {
            (0..random.random_range(0..4)).map(|_| *PIECES.choose(random).expect("there are some")).collect::<String>()
        };
        let step = |random: &mut StdRng| match random.random_range(0..4) {
            0 | 1 => Step::Name(text(random).into()),
            2 => Step::Element(text(random).into()),
            _ => {
                let keys = (0..random.random_range(1..3)).map(|at| (format!("{at}{}", text(random)), text(random)));
                Step::Keys(keys.collect())
            }
        };
        for _ in 0..20_000 {
            let path = FieldPath((0..random.random_range(1..4)).map(|_| step(&mut random)).collect());
            let selector: Selector = path.to_string().parse().unwrap_or_else(|error| panic!("{path:?}: {error}"));
            assert!(selector.selects(&path), "{path}: {path:?} by {selector:?}");
            let mut other = path.clone();
            let last = other.0.last_mut().expect("there is one");
            *last = match last {
                Step::Name(name) => Step::Name(format!("{name}a").into()),
                Step::Element(text) => Step::Element(format!("{text}]").into()),
                Step::Keys(keys) => {
                    Step::Keys(keys.iter().map(|(name, text)| (name.clone(), format!("{text},"))).collect())
                }
                Step::Index(at) => Step::Index(*at + 1),
            };
            assert!(!selector.selects(&other), "{path} selects {other}");
        }
    }

    #[test]
    fn a_malformed_path_is_refused_with_its_fault() {
        for (text, problem) in [
            ("", "it is empty"),
            ("a..b", "a name is missing"),
            (".", "a name is missing"),
            ("a[b", "a bracket is not closed"),
            ("a[\"b]", "a quote is not closed"),
            ("a[\"b\"c]", "a quote is not followed by"),
            ("a[b=", "a bracket is not closed"),
            ("a[b=c,", "a bracket is not closed"),
            ("a[\"\\q\"]", "an escape is invalid"),
        ] {
            let said = text.parse::<Selector>().unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
