//! Paths of fields, as blame prints and accepts them: `spec.containers[name=web].image`, `data["a.b"]`.

use std::fmt;
use std::str::FromStr;

/// A step of a field's path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A field of an object or a map.
    Name(String),
    /// A list item by its key fields: names and texts, sorted by name.
    Keys(Vec<(String, String)>),
    /// An item of a set.
    Element(String),
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
            Self::Name(name) => write!(f, "[{name:?}]"),
            Self::Keys(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, text)| format!("{name}={text}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Element(text) => write!(f, "[{text}]"),
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

/// Names of labels and annotations may contain dots.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl FieldPath {
    /// Returns whether this is field ownership: long, and rarely of interest.
    pub(super) fn is_managed_fields(&self) -> bool {
        matches!(&self.0[..], [Step::Name(part), Step::Name(name), ..] if part == "metadata" && name == MANAGED)
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
    /// Text in brackets: a key `name=web`, several keys, the text of a key or of an item, an index, or a name.
    Bracket(String),
}

impl Part {
    fn selects(&self, step: &Step) -> bool {
        match (self, step) {
            (Self::Name(wanted) | Self::Bracket(wanted), Step::Name(name)) => wanted == name,
            (Self::Bracket(wanted), Step::Keys(keys)) => {
                let is_key = |part: &str| {
                    keys.iter().any(|(name, text)| part.strip_prefix(&**name) == Some(&*format!("={text}")))
                };
                wanted.split(',').all(is_key) || keys.iter().any(|(_, text)| text == wanted)
            }
            (Self::Bracket(wanted), Step::Element(text)) => wanted == text,
            (Self::Bracket(wanted), Step::Index(at)) => *wanted == at.to_string(),
            (Self::Name(_), _) => false,
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
            if let Some(quoted) = rest.strip_prefix("[\"") {
                let end = closing_quote(quoted).ok_or_else(|| wrong("a quote is not closed by \"]"))?;
                let name = serde_json::from_str(&rest[1..end + 3]).map_err(|_| wrong("an escape is invalid"))?;
                parts.push(Part::Name(name));
                rest = &quoted[end + 2..];
            } else if let Some(inner) = rest.strip_prefix('[') {
                let end = inner.find(']').ok_or_else(|| wrong("a bracket is not closed"))?;
                parts.push(Part::Bracket(inner[..end].to_owned()));
                rest = &inner[end + 1..];
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

/// Returns the index of the quote that closes a quoted name and is followed by a bracket.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == '"' && !is_escaped && text[at + 1..].starts_with(']');
        is_escaped = c == '\\' && !is_escaped;
        is_end.then_some(at)
    })
}

impl Selector {
    /// Returns whether a path is the selected field or lies below it.
    pub fn selects(&self, path: &FieldPath) -> bool {
        self.matched(path) == self.parts.len()
    }

    /// Returns whether field ownership is requested.
    pub(super) fn has_managed_fields(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Name(name) | Part::Bracket(name) if name == MANAGED))
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
    let mut names: Vec<String> = Vec::new();
    for step in beside.iter().filter_map(|path| path.0.get(deepest)) {
        let name = step.to_string();
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    let above = if above.is_empty() { "the value" } else { &above };
    if names.is_empty() {
        return format!("{above} has no fields");
    }
    let more = names.len().saturating_sub(SHOWN);
    let listed = names.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{above} has {listed} and {more} more") } else { format!("{above} has {listed}") }
}

#[cfg(test)]
mod tests {
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
    fn a_malformed_path_is_refused_with_its_fault() {
        for (text, problem) in [
            ("", "it is empty"),
            ("a..b", "a name is missing"),
            (".", "a name is missing"),
            ("a[b", "a bracket is not closed"),
            ("a[\"b]", "a quote is not closed"),
            ("a[\"\\q\"]", "an escape is invalid"),
        ] {
            let said = text.parse::<Selector>().unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
