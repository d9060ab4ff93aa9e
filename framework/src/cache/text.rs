//! Objects as the text that the apiserver sends.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// `apiVersion` and `kind` of an object.
pub(super) type Types<'a> = [(&'static str, Cow<'a, str>); 2];

/// The fields of an object, with values that are not decoded.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::with_capacity(16);
                while let Some(Name(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

/// A field's name, borrowed from the text if it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Removes `managedFields` from an object, and puts `apiVersion` and `kind` in front. So an object has the same text from a
/// list, whose objects may lack these two, and from a watch.
pub(super) fn pared(object: &str, types: &Types<'_>) -> serde_json::Result<String> {
    let Fields(fields) = serde_json::from_str(object)?;
    let mut text = String::with_capacity(object.len() + 64);
    for (name, value) in types {
        begin(&mut text, name)?;
        text.push_str(&serde_json::to_string(value)?);
    }
    for (name, value) in fields {
        if types.iter().any(|(ours, _)| *ours == name) {
            continue;
        }
        begin(&mut text, &name)?;
        if name != "metadata" {
            text.push_str(value.get());
            continue;
        }
        let (Fields(fields), start) = (serde_json::from_str(value.get())?, text.len());
        for (name, value) in fields.into_iter().filter(|(name, _)| name != "managedFields") {
            begin_at(&mut text, start, &name)?;
            text.push_str(value.get());
        }
        end(&mut text, start);
    }
    end(&mut text, 0);
    Ok(text)
}

fn begin(text: &mut String, name: &str) -> serde_json::Result<()> {
    begin_at(text, 0, name)
}

/// Starts a field of the object that starts at `start`.
fn begin_at(text: &mut String, start: usize, name: &str) -> serde_json::Result<()> {
    text.push(if text.len() == start { '{' } else { ',' });
    text.push_str(&serde_json::to_string(name)?);
    text.push(':');
    Ok(())
}

fn end(text: &mut String, start: usize) {
    text.push_str(if text.len() == start { "{}" } else { "}" });
}

/// Describes why a text does not match a type, and where. Omits the value, which may be a secret.
pub(super) fn misfit(text: &str, error: &serde_json::Error) -> String {
    let (message, position) = (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
    let message = message.strip_suffix(&position).unwrap_or(&message);
    let message = match message.rsplit_once(", expected ") {
        Some((found, expected)) => {
            let found = found.split(['"', '`']).next().unwrap_or_default().trim_end();
            format!("{found}, expected {expected}")
        }
        // These name fields of the type. An error of the type's own conversion may contain the value.
        None if ["missing field ", "duplicate field "].iter().any(|known| message.starts_with(known)) => {
            message.to_owned()
        }
        None => "the value is invalid".to_owned(),
    };
    let lines: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    match path(text.as_bytes().get(..lines + error.column()).unwrap_or_default()) {
        path if path.is_empty() => message,
        path => format!("{path}: {message}"),
    }
}

enum Step {
    Field(String),
    Element(usize),
}

/// Returns the path at which the beginning of a JSON text ends: `spec.pumps[2].power`.
fn path(beginning: &[u8]) -> String {
    let (mut steps, mut is_name, mut at) = (Vec::new(), false, 0);
    while let Some(byte) = beginning.get(at) {
        at += 1;
        match byte {
            b'{' => {
                is_name = true;
                steps.push(Step::Field(String::new()));
            }
            b'[' => {
                is_name = false;
                steps.push(Step::Element(0));
            }
            b'}' | b']' => {
                is_name = false;
                steps.pop();
            }
            b',' => match steps.last_mut() {
                Some(Step::Element(index)) => *index += 1,
                _ => is_name = true,
            },
            b'"' => {
                let start = at;
                while beginning.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if beginning[at] == b'\\' { 2 } else { 1 };
                }
                if let Some(Step::Field(name)) = steps.last_mut().filter(|_| is_name) {
                    *name = String::from_utf8_lossy(&beginning[start..at.min(beginning.len())]).into_owned();
                }
                (is_name, at) = (false, at + 1);
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for step in &steps {
        // Writing into a string does not fail.
        let _written = match step {
            Step::Field(name) if name.is_empty() => Ok(()),
            Step::Field(name) if path.is_empty() => write!(path, "{name}"),
            Step::Field(name) => write!(path, ".{name}"),
            Step::Element(index) => write!(path, "[{index}]"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_watches_give_the_same_text_without_managed_fields() {
        let types = [("apiVersion", "v1".into()), ("kind", "Tank".into())];
        let listed = r#"{"metadata":{"name":"a","managedFields":[{"manager":"x","fieldsV1":{"f:spec":{}}}],"uid":"1"},"spec":{"a":[1, 2],"metadata":{"managedFields":"ours"},"text":"}\"{"}}"#;
        let watched = listed.replacen('{', r#"{"kind":"Tank","apiVersion":"v1","#, 1);
        let expected = r#"{"apiVersion":"v1","kind":"Tank","metadata":{"name":"a","uid":"1"},"spec":{"a":[1, 2],"metadata":{"managedFields":"ours"},"text":"}\"{"}}"#;
        assert_eq!(pared(listed, &types).unwrap(), expected);
        assert_eq!(pared(&watched, &types).unwrap(), expected);
        assert_eq!(pared(r#"{"metadata":{}}"#, &types).unwrap(), r#"{"apiVersion":"v1","kind":"Tank","metadata":{}}"#);
        // Names may contain escapes.
        assert_eq!(
            pared(r#"{"met\u0061data":{"a\"b":1}}"#, &types).unwrap(),
            r#"{"apiVersion":"v1","kind":"Tank","metadata":{"a\"b":1}}"#
        );
        assert!(pared("[]", &types).is_err());
    }

    #[test]
    fn where_an_object_does_not_fit_is_said_and_what_is_there_is_not() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Tank {
            spec: Spec,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Spec {
            level: u8,
            pumps: Vec<Pump>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Pump {
            power: u8,
            mode: Mode,
        }
        #[derive(Debug, serde::Deserialize)]
        enum Mode {
            On,
        }
        for (text, expected) in [
            (
                r#"{"a":{"b":[{}]},"spec":{"level":"sec\"ret, expected"}}"#,
                "spec.level: invalid type: string, expected u8",
            ),
            (r#"{"spec":{"level":-70000}}"#, "spec.level: invalid value: integer, expected u8"),
            (r#"{"spec":{"level":{"a":1}}}"#, "spec.level: invalid type: map, expected u8"),
            (r#"{"spec":{"level":1}}"#, "spec: missing field `pumps`"),
            (
                "{\"spec\":{\"level\":1,\n\"pumps\":[{\"power\":1,\"mode\":\"On\"},\n{\"power\":true}]}}",
                "spec.pumps[1].power: invalid type: boolean, expected u8",
            ),
            (
                r#"{"spec":{"level":1,"pumps":[{"power":1,"mode":"secret"}]}}"#,
                "spec.pumps[0].mode: unknown variant, expected `On`",
            ),
            (r#"{"spec":null}"#, "spec: invalid type: null, expected struct Spec"),
            ("{}", "missing field `spec`"),
        ] {
            let error = serde_json::from_str::<Tank>(text).unwrap_err();
            assert_eq!(misfit(text, &error), expected, "{text}: {error}");
        }
    }

    #[test]
    fn what_a_conversion_of_the_type_itself_says_is_not_repeated() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(try_from = "String")]
        struct Word;
        impl TryFrom<String> for Word {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Err(format!("{text} is no word"))
            }
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "it is only read")]
        struct Note {
            word: Word,
        }
        let text = r#"{"word":"secret"}"#;
        let error = serde_json::from_str::<Note>(text).unwrap_err();
        let message = misfit(text, &error);
        assert!(message.ends_with("the value is invalid") && !message.contains("secret"), "{message}");
    }
}
