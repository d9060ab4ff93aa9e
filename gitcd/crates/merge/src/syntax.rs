//! Values as JSON and YAML text.

use super::value::{LONG_PATH, MAX_BYTES, MAX_PATH_BYTES, Map, Syntax, Value, text};
use super::yaml::{self, Unreadable};
use crate::form::json::{self, Sink};

const TOO_LARGE: &str = "it is larger than 4 MiB, which no object of Kubernetes is";

impl Value {
    /// Parses a stored value; `None` if it is not one JSON or YAML object with unique field names: such a value is merged whole.
    pub fn parse(bytes: &[u8]) -> Option<(Self, Syntax)> {
        Self::read(bytes).ok()
    }

    /// Parses a stored value like [`Value::parse`]. YAML is interpreted as by Kubernetes.
    ///
    /// # Errors
    /// Why the value is not one JSON or YAML object with unique field names.
    pub fn read(bytes: &[u8]) -> Result<(Self, Syntax), Unreadable> {
        let whole = |reason: &str| Unreadable::new(0, reason.into());
        if bytes.len() > MAX_BYTES {
            return Err(whole(TOO_LARGE));
        }
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
            if build.is_too_deep {
                return Err(whole(LONG_PATH));
            }
            return match build.done {
                Some(value @ Value::Map(_)) => Ok((value, Syntax::Json)),
                _ => Err(whole("it is not an object")),
            };
        }
        if bytes.trim_ascii_start().starts_with(b"{") {
            // The text is meant as JSON: do not interpret a mistake in it as YAML.
            return Err(whole("it is not well-formed JSON"));
        }
        // Text like "a: b" alone is rarely meant as an object, but merging it as one does no harm.
        match yaml::read(text)? {
            value @ Value::Map(_) => Ok((value, Syntax::Yaml)),
            _ => Err(whole("it is not an object")),
        }
    }

    /// Writes the value; JSON without white space and without a newline.
    pub fn write(&self, syntax: Syntax) -> Vec<u8> {
        match syntax {
            Syntax::Json => self.to_json(),
            // JSON, which is parsed first, can represent what YAML cannot.
            Syntax::Yaml => yaml::write(self).map_or_else(|| self.write(Syntax::Json), String::into_bytes),
        }
    }

    /// Writes the value over a text of that syntax: unchanged lines of YAML are kept, and so is the newline at the end of JSON.
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
}

/// Builds a value from tokens.
#[derive(Default)]
struct Build {
    open: Vec<(Option<Box<str>>, Value)>,
    name: Option<Box<str>>,
    done: Option<Value>,
    /// Whether a name occurred twice in an object.
    repeated: bool,
    /// Bytes of the names on the path to the open container.
    path: usize,
    /// Whether a path was too long.
    is_too_deep: bool,
}

/// Names of smaller objects are compared linearly.
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
        let name = self.name.take();
        self.path += name.as_ref().map_or(0, |name| name.len());
        self.open.push((name, value));
    }

    fn close(&mut self, _: u8, _: usize) {
        let (name, value) = self.open.pop().expect("the container was opened");
        if let Value::Map(map) = &value {
            self.repeated |= if map.0.len() <= FEW {
                (1..map.0.len()).any(|at| map.0[..at].iter().any(|(name, _)| text(name) == text(&map.0[at].0)))
            } else {
                map.names().len() < map.0.len()
            };
        }
        self.path -= name.as_ref().map_or(0, |name| name.len());
        self.name = name;
        self.add(value);
    }

    fn comma(&mut self, _: usize) {}

    fn key(&mut self, name: &[u8]) {
        self.is_too_deep |= self.path + name.len() > MAX_PATH_BYTES;
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
            let (value, syntax) = Value::parse(text.as_bytes()).expect("the text is an object");
            prop_assert_eq!(syntax, Syntax::Json);
            prop_assert_eq!(String::from_utf8(value.write(Syntax::Json)).unwrap(), text);
            let yaml = value.write(Syntax::Yaml);
            let (again, _) = Value::parse(&yaml).expect("the written YAML is valid");
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
