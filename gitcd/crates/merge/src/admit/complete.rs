//! Completes a file with what a server sets when it creates or updates an object.

use sha1::{Digest, Sha1};

use super::location::Location;
use super::{Origin, text};
use crate::object::hex;
use crate::value::{Map, Syntax, Value};

/// A file to be completed.
pub(super) struct Draft<'a> {
    pub(super) map: Map,
    pub(super) syntax: Syntax,
    /// The file's original content.
    pub(super) original: &'a [u8],
    /// The object that it replaces.
    pub(super) old: Option<&'a Value>,
    pub(super) relative: &'a [u8],
    /// The object's location, if its kind is known to be stored there.
    pub(super) location: Option<&'a Location<'a>>,
    /// Whether [`without_empty_times`] has removed something.
    pub(super) is_cleaned: bool,
}

/// Removes times that are empty strings, which mean the same as absent ones, but which Kubernetes cannot parse. Returns whether
/// there were any.
pub(super) fn without_empty_times(object: &mut Value) -> bool {
    let Value::Map(map) = object else { return false };
    let Some(Value::Map(metadata)) = map.get_mut("metadata") else { return false };
    let is_empty = |name: &&str| metadata.get(name).and_then(Value::as_text).is_some_and(|time| time.is_empty());
    let empty: Vec<&str> = TIMES.into_iter().filter(is_empty).collect();
    empty.iter().for_each(|name| metadata.remove(name));
    !empty.is_empty()
}

/// Timestamps in the metadata.
const TIMES: [&str; 2] = ["creationTimestamp", "deletionTimestamp"];

impl Draft<'_> {
    /// Returns the name and the namespace from the path that the object lacks.
    pub(super) fn said_by_path(&self) -> Vec<(&'static str, String)> {
        let Some(location) = self.location else { return Vec::new() };
        let metadata = self.map.get("metadata").and_then(Value::as_map);
        let lacks = |field: &str| metadata.is_none_or(|metadata| metadata.get(field).is_none_or(is_absent));
        let name = lacks("name").then(|| ("name", location.name.to_owned()));
        let namespace = location.namespace.filter(|_| lacks("namespace"));
        name.into_iter().chain(namespace.map(|namespace| ("namespace", namespace.to_owned()))).collect()
    }

    /// Returns the completed file; `None` if nothing was missing, or if the commit that introduced the file is unknown.
    pub(super) fn complete(mut self, origin: impl FnOnce() -> Option<Origin>) -> Option<Vec<u8>> {
        let from_path = self.said_by_path();
        let whole = |name: &str| self.map.get("metadata").and_then(|metadata| metadata.at(&[name])).cloned();
        let given = |name: &str| whole(name).filter(|value| !is_absent(value));
        let has_name = given("name").is_some() || from_path.iter().any(|(field, _)| *field == "name");
        let lacks_uid = given("uid").is_none() && has_name;
        let is_new = lacks_uid && self.old.is_none();
        let origin = if is_new || !from_path.is_empty() || self.is_cleaned { Some(origin()?) } else { None };
        let mut changed = self.is_cleaned;
        if !from_path.is_empty() && !matches!(self.map.get("metadata"), Some(Value::Map(_))) {
            self.map.set("metadata", Value::Map(Map::default()));
        }
        if let Some(Value::Map(metadata)) = self.map.get_mut("metadata") {
            let mut set = |field: &str, value: Value| {
                if metadata.get(field).is_none_or(is_absent) {
                    metadata.set(field, value);
                    changed = true;
                }
            };
            for (field, value) in from_path {
                set(field, Value::string(&value));
            }
            let of_old =
                |field: &str| self.old.map(|old| text(old, &["metadata", field])).filter(|text| !text.is_empty());
            match (of_old("uid"), origin) {
                (Some(uid), _) if lacks_uid => {
                    set("uid", Value::string(&uid));
                    if let Some(created) = of_old("creationTimestamp") {
                        set("creationTimestamp", Value::string(&created));
                    }
                }
                (None, Some(origin)) if is_new => {
                    let commit = hex(&origin.commit);
                    let name = format!("{commit} {}", String::from_utf8_lossy(self.relative));
                    set("uid", Value::string(&uuid(&name)));
                    set("creationTimestamp", Value::string(&timestamp(origin.time)));
                }
                _ => {}
            }
        }
        changed |= self.new_generation();
        if !changed {
            return None;
        }
        Some(Value::Map(self.map).write_over(self.syntax, self.original))
    }

    /// Raises the generation if the content changed. Returns whether it did.
    fn new_generation(&mut self) -> bool {
        let Some(Value::Map(old)) = self.old else { return false };
        let generation = |map: &Map| map.get("metadata")?.as_map()?.get("generation")?.as_text()?.parse::<i64>().ok();
        if let Some(last) = generation(old)
            && generation(&self.map).is_none_or(|own| own == last)
            && !old.equals_except(&self.map, &["metadata", "status"])
            && let Some(Value::Map(metadata)) = self.map.get_mut("metadata")
        {
            metadata.set("generation", Value::number(last.saturating_add(1)));
            return true;
        }
        false
    }
}

/// Returns whether a scalar is `null` or an empty string.
fn is_absent(value: &Value) -> bool {
    matches!(value, Value::Scalar(text) if matches!(&**text, "null" | "\"\""))
}

/// Returns a name-based UUID (RFC 9562, version 5) in the namespace of object identifiers.
pub(super) fn uuid(name: &str) -> String {
    const NAMESPACE: [u8; 16] =
        [0x6b, 0xa7, 0xb8, 0x12, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
    let digest = Sha1::new().chain_update(NAMESPACE).chain_update(name).finalize();
    let mut bytes: [u8; 16] = digest[..16].try_into().expect("a SHA-1 has 20 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [hex[..4].concat(), hex[4..6].concat(), hex[6..8].concat(), hex[8..10].concat(), hex[10..].concat()].join("-")
}

/// Formats a time as RFC 3339 in UTC, to the second, like Kubernetes.
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

    #[test]
    fn uuids_and_times_are_the_known_ones() {
        // Python: uuid.uuid5(uuid.NAMESPACE_OID, "x").
        assert_eq!(uuid("x"), "8558d34a-d3c6-5881-a6e3-bf8f3e6110ea");
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_826_332), "2000-02-29T12:12:12Z");
    }
}
