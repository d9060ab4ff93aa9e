//! A stored value as a tree of fields, with every scalar as it was written.
//!
//! Numbers, escapes and the order of fields are what the writer made them, so that a merge changes nothing that nobody
//! changed.

use std::borrow::Cow;
use std::collections::HashMap;

use super::yaml::{self, Unreadable};
use crate::form::json::{self, Sink};

/// A JSON value. Scalars and the names of fields are JSON text.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string with its quotes, a number, `true`, `false` or `null`.
    Scalar(Box<str>),
    /// A list.
    List(Vec<Value>),
    /// An object.
    Map(Map),
}

/// The fields of an object in their order; no name occurs twice.
#[derive(Clone, Debug, Default)]
pub struct Map(Vec<(Box<str>, Value)>);

/// How a value was written, to write a merged one so again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Syntax {
    /// JSON. A merged value has no white space, as kube-apiserver writes it.
    Json,
    /// YAML.
    Yaml,
}

/// The text of a string, or the JSON text of another scalar.
pub(super) fn text(scalar: &str) -> Cow<'_, str> {
    match scalar.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(inner) => serde_json::from_str::<String>(scalar).map_or(Cow::Borrowed(inner), Cow::Owned),
        None => Cow::Borrowed(scalar),
    }
}

impl Value {
    /// Reads a stored value; `None` if it is not one JSON or YAML object whose fields have different names: such a value is
    /// merged whole.
    pub fn parse(bytes: &[u8]) -> Option<(Self, Syntax)> {
        Self::read(bytes).ok()
    }

    /// Reads a stored value, like [`Value::parse`]. YAML is read as Kubernetes reads it.
    ///
    /// # Errors
    /// Why it is not one JSON or YAML object whose fields have different names.
    pub fn read(bytes: &[u8]) -> Result<(Self, Syntax), Unreadable> {
        let whole = |reason: &str| Unreadable::new(0, reason.into());
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(whole(match bytes {
                [0xfe, 0xff, ..] | [0xff, 0xfe, ..] => "it is UTF-16; only UTF-8 is read",
                _ => "it is not UTF-8",
            }));
        };
        let mut build = Build::default();
        if json::walk(bytes, &mut build).is_ok() {
            if build.repeated {
                return Err(whole("it names a field twice"));
            }
            return match build.done {
                Some(value @ Value::Map(_)) => Ok((value, Syntax::Json)),
                _ => Err(whole("it is no object")),
            };
        }
        if bytes.trim_ascii_start().starts_with(b"{") {
            // It is meant as JSON: what YAML would make of a slip in it, nobody meant.
            return Err(whole("it is not well-formed JSON"));
        }
        // Text like "a: b" alone is rarely meant as an object, but nothing is lost by merging it as one.
        match yaml::read(text)? {
            value @ Value::Map(_) => Ok((value, Syntax::Yaml)),
            _ => Err(whole("it is no object")),
        }
    }

    /// Writes it; JSON without white space and without a newline.
    pub fn write(&self, syntax: Syntax) -> Vec<u8> {
        match syntax {
            Syntax::Json => {
                let mut out = Vec::new();
                self.write_json(&mut out);
                out
            }
            // What YAML cannot have, JSON can, which is read first.
            Syntax::Yaml => yaml::write(self).map_or_else(|| self.write(Syntax::Json), String::into_bytes),
        }
    }

    /// Writes it over a value with that syntax: lines of YAML of which nothing changed stay, as does the newline at the end
    /// of JSON.
    pub fn write_over(&self, syntax: Syntax, original: &[u8]) -> Vec<u8> {
        match syntax {
            Syntax::Json => {
                let mut bytes = self.write(syntax);
                bytes.extend(original.ends_with(b"\n").then_some(b'\n'));
                bytes
            }
            Syntax::Yaml => yaml::rewrite(original, self),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Scalar(text) => out.extend_from_slice(text.as_bytes()),
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write_json(out);
                }
                out.push(b']');
            }
            Self::Map(map) => {
                out.push(b'{');
                for (index, (name, value)) in map.0.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.push(b':');
                    value.write_json(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The fields, if it is an object.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The items, if it is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string, or the JSON text of another scalar.
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Scalar(scalar) => Some(text(scalar)),
            _ => None,
        }
    }

    /// What lies below a path of names of fields.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.as_map()?.get(name))
    }

    /// The text of the scalar at a path, unless the API takes it for absent: `null` or an empty string.
    pub fn given(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let value = self.at(path)?;
        let is_null = matches!(value, Self::Scalar(text) if &**text == "null");
        value.as_text().filter(|text| !is_null && !text.is_empty())
    }

    /// A string.
    pub fn string(text: &str) -> Self {
        Self::Scalar(serde_json::Value::from(text).to_string().into())
    }

    /// A number.
    pub fn number(number: i64) -> Self {
        Self::Scalar(number.to_string().into())
    }

    /// Its JSON text, at most `limit` bytes of it, for a person.
    pub fn excerpt(&self, limit: usize) -> String {
        let mut text = String::from_utf8(self.write(Syntax::Json)).expect("it was made of text");
        if text.len() > limit {
            text.truncate(text.floor_char_boundary(limit));
            text.push('…');
        }
        text
    }
}

/// Equal if they mean the same: the order of fields and the spelling of strings do not count, those of numbers do.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(one), Self::Scalar(other)) => {
                one == other || (one.starts_with('"') && other.starts_with('"') && text(one) == text(other))
            }
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Map(one), Self::Map(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self.0.len() != other.0.len() {
            return false;
        }
        // Nearly always in the same order.
        let same_order = self.0.iter().zip(&other.0).all(|((one, _), (other, _))| one == other);
        if same_order {
            return self.0.iter().zip(&other.0).all(|((_, one), (_, other))| one == other);
        }
        let names = other.names();
        self.iter().all(|(name, value)| names.get(&*name).is_some_and(|index| other.0[*index].1 == *value))
    }
}

impl Map {
    /// Without fields.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(found, _)| text(found) == name).map(|(_, value)| value)
    }

    /// The fields in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Cow<'_, str>, &Value)> + ExactSizeIterator {
        self.0.iter().map(|(name, value)| (text(name), value))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the field of each name is.
    pub(super) fn names(&self) -> HashMap<Cow<'_, str>, usize> {
        self.0.iter().enumerate().map(|(index, (name, _))| (text(name), index)).collect()
    }

    /// The field at a place.
    pub(super) fn field(&self, index: usize) -> (&str, &Value) {
        let (name, value) = &self.0[index];
        (name, value)
    }

    /// Adds a field by the JSON text of its name, which must be new.
    pub(super) fn push(&mut self, name: &str, value: Value) {
        self.0.push((name.into(), value));
    }

    /// Sets a field; a new one comes last.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(found, _)| text(found) == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((serde_json::Value::from(name).to_string().into(), value)),
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(found, _)| text(found) != name);
    }

    /// Whether both have the same fields with the same values, but for these names. Costs a pass over both, and no copies.
    pub fn equals_except(&self, other: &Self, names: &[&str]) -> bool {
        let is_compared = |(name, _): &(Cow<'_, str>, &Value)| !names.contains(&&**name);
        let count = |map: &Self| map.iter().filter(is_compared).count();
        let places = other.names();
        let has =
            |(name, value): (Cow<'_, str>, &Value)| places.get(&name).is_some_and(|at| other.field(*at).1 == value);
        count(self) == count(other) && self.iter().filter(is_compared).all(has)
    }

    /// Keeps the fields whose names are so.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| is_kept(&text(name)));
    }

    /// The value of a field, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(found, _)| text(found) == name).map(|(_, value)| value)
    }
}

/// Builds a value from tokens.
#[derive(Default)]
struct Build {
    open: Vec<(Option<Box<str>>, Value)>,
    name: Option<Box<str>>,
    done: Option<Value>,
    /// A name occurred twice in an object.
    repeated: bool,
}

/// Names of small objects are compared one by one.
const FEW: usize = 16;

impl Build {
    fn add(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.done = Some(value),
            Some((_, Value::List(items))) => items.push(value),
            Some((_, Value::Map(map))) => {
                let name = self.name.take().expect("a field's name comes before its value");
                map.0.push((name, value));
            }
            Some((_, Value::Scalar(_))) => unreachable!("only containers are opened"),
        }
    }
}

impl Sink for Build {
    const WHITE_SPACE: bool = true;

    fn open(&mut self, bracket: u8, _: usize) {
        let value = if bracket == b'{' { Value::Map(Map::default()) } else { Value::List(Vec::new()) };
        self.open.push((self.name.take(), value));
    }

    fn close(&mut self, _: u8, _: usize) {
        let (name, value) = self.open.pop().expect("what is closed was opened");
        if let Value::Map(map) = &value {
            self.repeated |= if map.0.len() <= FEW {
                (1..map.0.len()).any(|at| map.0[..at].iter().any(|(name, _)| text(name) == text(&map.0[at].0)))
            } else {
                map.names().len() < map.0.len()
            };
        }
        self.name = name;
        self.add(value);
    }

    fn comma(&mut self, _: usize) {}

    fn key(&mut self, name: &[u8]) {
        self.name = Some(std::str::from_utf8(name).expect("the whole text is UTF-8").into());
    }

    fn value(&mut self, text: &[u8]) {
        let value = match text {
            b"{}" => Value::Map(Map::default()),
            b"[]" => Value::List(Vec::new()),
            text => Value::Scalar(std::str::from_utf8(text).expect("the whole text is UTF-8").into()),
        };
        self.add(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                proptest::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_object_is_written_as_it_was_read(fields in proptest::collection::btree_map(".{0,4}", any_json(), 0..5)) {
            let json = serde_json::Value::Object(fields.into_iter().collect());
            let text = json.to_string();
            let (value, syntax) = Value::parse(text.as_bytes()).expect("it is an object");
            prop_assert_eq!(syntax, Syntax::Json);
            prop_assert_eq!(String::from_utf8(value.write(Syntax::Json)).unwrap(), text);
            let yaml = value.write(Syntax::Yaml);
            let (again, _) = Value::parse(&yaml).expect("it was written a moment ago");
            prop_assert!(again == value, "{}", String::from_utf8_lossy(&yaml));
        }
    }

    #[test]
    fn spelling_is_kept_and_does_not_count_as_a_difference() {
        let text = br#"{"a":1.50,"b\u0041":"\u003c","c":[{},[]]}"#;
        let (value, _) = Value::parse(text).unwrap();
        assert_eq!(value.write(Syntax::Json), text);
        let (same, _) = Value::parse(br#"{ "c": [{}, []], "bA": "<", "a": 1.50 }"#).unwrap();
        assert_eq!(value, same);
        let (other, _) = Value::parse(br#"{"a":1.5,"bA":"<","c":[{},[]]}"#).unwrap();
        assert_ne!(value, other);
    }

    #[test]
    fn what_is_no_object_with_distinct_fields_is_not_read() {
        for text in [
            &b"[1]"[..],
            b"1",
            b"",
            b"{\"a\":1,\"\\u0061\":2}",
            b"k8s\0\n\x02v1",
            b"k8s:enc:aescbc:v1:key:\x9f",
            b"word",
            b"{\"a\": , \"b\": 1}",
        ] {
            assert!(Value::parse(text).is_none(), "{}", text.escape_ascii());
        }
        assert_eq!(Value::parse(b"a: 1\nb: [x]\n").map(|(_, syntax)| syntax), Some(Syntax::Yaml));
    }
}
