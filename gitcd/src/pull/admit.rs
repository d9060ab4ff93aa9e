//! What may enter a store from a commit: a file that people wrote must be the object that its key says.

use sha1::{Digest, Sha1};

use crate::merge::value::{Map, Syntax, Value};

/// A commit that brought a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub commit: git2::Oid,
    /// Its time, in seconds since 1970.
    pub time: i64,
}

/// Checks a new value of a key, and completes what only a server would have set: identity and generation. `None`: it may be taken as
/// it is. The same for everyone who looks at the same commits.
///
/// # Errors
/// What is wrong, in words for whoever wrote the file.
pub fn admit(
    relative: &[u8],
    value: &[u8],
    before: Option<&[u8]>,
    origin: impl FnOnce() -> Option<Origin>,
) -> Result<Option<Vec<u8>>, String> {
    let old = before.and_then(Value::parse).and_then(|(old, _)| is_object(&old).then_some(old));
    let Some((new, syntax)) = Value::parse(value) else {
        if old.is_some() {
            return Err("it is neither a JSON nor a YAML object any more".into());
        }
        return match value.trim_ascii_start().first() {
            Some(b'{') => Err("it is not well-formed JSON, or names a field twice".into()),
            _ if begins_like_a_manifest(value) => Err("it is not well-formed YAML, or names a field twice".into()),
            _ => Ok(None),
        };
    };
    if !is_object(&new) {
        return match missing(&new) {
            Some(field) if old.is_some() || is_meant_as_a_manifest(&new) => Err(format!("{field} is missing or empty")),
            _ => Ok(None),
        };
    }
    if let Some(old) = &old {
        for (path, what) in [
            (&["kind"][..], "kind"),
            (&["metadata", "name"], "metadata.name"),
            (&["metadata", "namespace"], "metadata.namespace"),
        ] {
            if text(&new, path) != text(old, path) {
                return Err(format!("{what} is {:?}, not {:?}", text(&new, path), text(old, path)));
            }
        }
    } else {
        let mut components = relative.rsplit(|byte| *byte == b'/').map(String::from_utf8_lossy);
        let (last, above) = (components.next().unwrap_or_default(), components.next().unwrap_or_default());
        let (name, namespace) = (text(&new, &["metadata", "name"]), text(&new, &["metadata", "namespace"]));
        if !name.is_empty() && name != last {
            return Err(format!("metadata.name is {name:?}, but the file's name is {last:?}"));
        }
        if !namespace.is_empty() && namespace != above {
            return Err(format!("metadata.namespace is {namespace:?}, but the folder's name is {above:?}"));
        }
    }
    Ok(complete(new, syntax, old.as_ref(), relative, value.ends_with(b"\n"), origin))
}

fn complete(
    new: Value,
    syntax: Syntax,
    old: Option<&Value>,
    relative: &[u8],
    newline: bool,
    origin: impl FnOnce() -> Option<Origin>,
) -> Option<Vec<u8>> {
    let Value::Map(mut map) = new else { return None };
    let uid = |value: &Value| text(value, &["metadata", "uid"]);
    let (name, own) = {
        let whole = Value::Map(map);
        let found = (text(&whole, &["metadata", "name"]), uid(&whole));
        let Value::Map(back) = whole else { unreachable!("it was a map") };
        map = back;
        found
    };
    let mut changed = false;
    if own.is_empty() && !name.is_empty() {
        let mut set = |field: &str, value: Value| {
            if let Some(Value::Map(metadata)) = map.get_mut("metadata")
                && metadata
                    .get(field)
                    .is_none_or(|value| value.as_text().is_none_or(|text| text.is_empty() || text == "null"))
            {
                metadata.set(field, value);
                changed = true;
            }
        };
        match old.map(uid) {
            Some(uid) if !uid.is_empty() => set("uid", Value::string(&uid)),
            // It never had one.
            Some(_) => {}
            None => {
                let origin = origin()?;
                set("uid", Value::string(&uuid(&format!("{} {}", origin.commit, String::from_utf8_lossy(relative)))));
                set("creationTimestamp", Value::string(&timestamp(origin.time)));
            }
        }
    }
    if let Some(Value::Map(old)) = old {
        let generation = |map: &Map| map.get("metadata")?.as_map()?.get("generation")?.as_text()?.parse::<i64>().ok();
        let content = |map: &Map| {
            let mut content = map.clone();
            ["metadata", "status"].into_iter().for_each(|name| content.remove(name));
            content
        };
        if let Some(last) = generation(old)
            && generation(&map).is_none_or(|own| own == last)
            && content(old) != content(&map)
            && let Some(Value::Map(metadata)) = map.get_mut("metadata")
        {
            metadata.set("generation", Value::number(last.saturating_add(1)));
            changed = true;
        }
    }
    if !changed {
        return None;
    }
    let mut bytes = Value::Map(map).write(syntax);
    if syntax == Syntax::Json && newline {
        bytes.push(b'\n');
    }
    Some(bytes)
}

fn is_object(value: &Value) -> bool {
    missing(value).is_none()
}

/// What an object must have, and this has not.
fn missing(value: &Value) -> Option<&'static str> {
    let has = |name: &str| value.at(&[name]).and_then(Value::as_text).is_some_and(|text| !text.is_empty());
    ["apiVersion", "kind"].into_iter().find(|name| !has(name))
}

/// Two of these fields at the top make a manifest. One alone may be in anybody's own value.
const FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

fn is_meant_as_a_manifest(value: &Value) -> bool {
    FIELDS.iter().filter(|name| value.at(&[name]).is_some()).count() >= 2
        || value.at(&["metadata", "name"]).and_then(Value::as_text).is_some()
}

/// The same of text that cannot be read.
fn begins_like_a_manifest(value: &[u8]) -> bool {
    let has = |name: &str| {
        value
            .split(|byte| *byte == b'\n')
            .any(|line| line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b":")))
    };
    FIELDS.iter().filter(|name| has(name)).count() >= 2
}

fn text(value: &Value, path: &[&str]) -> String {
    value.at(path).and_then(Value::as_text).unwrap_or_default().into_owned()
}

/// The namespace of a stored object.
pub(super) fn namespace(value: &[u8]) -> Option<String> {
    let (value, _) = Value::parse(value)?;
    is_object(&value).then(|| text(&value, &["metadata", "namespace"])).filter(|namespace| !namespace.is_empty())
}

/// A name-based UUID (RFC 9562, version 5) in the namespace of object identifiers.
fn uuid(name: &str) -> String {
    const NAMESPACE: [u8; 16] =
        [0x6b, 0xa7, 0xb8, 0x12, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
    let digest = Sha1::new().chain_update(NAMESPACE).chain_update(name).finalize();
    let mut bytes: [u8; 16] = digest[..16].try_into().expect("a SHA-1 has 20 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [hex[..4].concat(), hex[4..6].concat(), hex[6..8].concat(), hex[8..10].concat(), hex[10..].concat()].join("-")
}

/// RFC 3339 in UTC, to the second, as Kubernetes writes times.
fn timestamp(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": civil_from_days.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"u"},"data":{}}"#;

    fn check(relative: &str, value: &str, before: Option<&str>) -> Result<Option<Vec<u8>>, String> {
        let origin = || Some(Origin { commit: git2::Oid::from_bytes(&[1; 20]).unwrap(), time: 1_793_000_000 });
        admit(relative.as_bytes(), value.as_bytes(), before.map(str::as_bytes), origin)
    }

    #[test]
    fn what_is_not_the_object_of_its_key_is_refused() {
        assert_eq!(check("configmaps/n/a", MAP, None), Ok(None));
        assert_eq!(check("configmaps/n/a", MAP, Some(MAP)), Ok(None));
        for value in ["any text", "kind: of text\n\t- [", "{\"kind\":\"own\"}", "[1]", "metadata: 7", "a: 1\n"] {
            assert_eq!(check("k", value, None), Ok(None), "{value}");
        }
        for (relative, value, before) in [
            ("configmaps/n/b", MAP, None),
            ("configmaps/m/a", MAP, None),
            ("configmaps/n/a", "{\"apiVersion\":", None),
            ("configmaps/n/a", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n data: [\n", None),
            ("configmaps/n/a", "# mine\nkind: ConfigMap\nmetadata: {name: a\n", None),
            ("configmaps/n/a", "apiVersion: v1\n<<<<<<< ours\nkind: ConfigMap\n", None),
            ("configmaps/n/a", "kind: ConfigMap\nmetadata: {name: a}\n", None),
            ("configmaps/n/a", "metadata: {name: a}\ndata: {}\n", None),
            ("configmaps/n/a", "apiVersion: ''\nkind: ConfigMap\n", None),
            ("configmaps/n/a", "<<<<<<< ours", Some(MAP)),
            ("configmaps/n/a", "{}", Some(MAP)),
            ("configmaps/n/a", &MAP.replace("ConfigMap", "Secret"), Some(MAP)),
            ("configmaps/n/a", &MAP.replace("\"name\":\"a\"", "\"name\":\"b\""), Some(MAP)),
        ] {
            assert!(check(relative, value, before).is_err(), "{relative} {value}");
        }
    }

    #[test]
    fn identity_and_generation_are_completed_the_same_way_by_everyone() {
        let new = MAP.replace(",\"uid\":\"u\"", "");
        let text = String::from_utf8(check("configmaps/n/a", &new, None).unwrap().unwrap()).unwrap();
        let uid = uuid(&format!("{} configmaps/n/a", "01".repeat(20)));
        assert_eq!(
            text,
            MAP.replace("\"uid\":\"u\"", &format!("\"uid\":\"{uid}\",\"creationTimestamp\":\"2026-10-26T07:33:20Z\""))
        );
        assert_eq!(
            check("configmaps/n/a", &new, Some(MAP)),
            Ok(Some(MAP.as_bytes().to_vec())),
            "it stays the same object"
        );
        let before = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","uid":"u","generation":3},"spec":{"replicas":1}}"#;
        let after = before.replace("\"replicas\":1", "\"replicas\":2");
        let completed = String::from_utf8(check("deployments/n/d", &after, Some(before)).unwrap().unwrap()).unwrap();
        assert_eq!(completed, after.replace("\"generation\":3", "\"generation\":4"));
    }

    #[test]
    fn uuids_and_times_are_the_known_ones() {
        // Python: uuid.uuid5(uuid.NAMESPACE_OID, "x").
        assert_eq!(uuid("x"), "8558d34a-d3c6-5881-a6e3-bf8f3e6110ea");
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_826_332), "2000-02-29T12:12:12Z");
    }
}
