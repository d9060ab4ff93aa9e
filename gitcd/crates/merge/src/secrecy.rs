//! What may be printed about an object.
//!
//! Commit messages, responses to pushes, statuses, diffs and logs have other readers than the objects themselves, so all code
//! that prints the content of objects asks here first. Of a Secret, the names of its fields and its identity are printed, never a
//! value: neither from `data` nor from an annotation, which may have a copy of all of it. Of kinds that the operator lists, not
//! even the names of fields are printed.
//!
//! ```
//! use gitcd_merge::secrecy::{Exposure, SecretKinds};
//!
//! let kinds: SecretKinds = "example.org/Vault".parse()?;
//! assert_eq!(kinds.of_value(br#"{"apiVersion":"v1","kind":"Secret"}"#), Exposure::Names);
//! assert_eq!(kinds.of_value(br#"{"apiVersion":"example.org/v1","kind":"Vault"}"#), Exposure::Identity);
//! assert_eq!(kinds.of_value(br#"{"apiVersion":"v1","kind":"ConfigMap"}"#), Exposure::Open);
//! assert!(!Exposure::Names.shows("data.password") && Exposure::Names.shows("metadata.finalizers"));
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::protobuf;
use crate::value::Value;

/// Replaces a value that is not printed.
pub const HIDDEN: &str = "(secret)";

/// How much of an object may be printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposure {
    /// Everything.
    #[default]
    Open,
    /// The names of its fields, and the values of fields that identify it.
    Names,
    /// Its identity, and which of its top-level fields differ.
    Identity,
}

/// Kinds that are hidden besides Secrets. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretKinds(Arc<[(String, String)]>);

/// Metadata about the identity and lifecycle of an object.
const METADATA: [&str; 11] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
];
/// The kind that is hidden by default.
const SECRET: &str = "Secret";
/// Prefix of a Secret's or `ConfigMap`'s name in which Helm stores a release with all its values.
const HELM: &str = "sh.helm.release.v1.";

impl FromStr for SecretKinds {
    type Err = String;

    /// Parses `example.org/Vault,ConfigMap,corp.example/*`: group and kind, or only the kind in the core group; `*` for all kinds
    /// of a group.
    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let kind = |name: &str| {
            let (group, kind) = name.rsplit_once('/').unwrap_or(("", name));
            let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
            if !is_word(group) || kind != "*" && !is_word(kind) || kind.is_empty() {
                return Err(format!("{name:?} is not a kind: write GROUP/KIND, such as example.org/Vault"));
            }
            Ok((group.to_ascii_lowercase(), kind.to_owned()))
        };
        Ok(Self(names.map(kind).collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for SecretKinds {
    /// Formats the kinds as they are parsed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (group, kind)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            let slash = if group.is_empty() { "" } else { "/" };
            write!(formatter, "{separator}{group}{slash}{kind}")?;
        }
        Ok(())
    }
}

impl SecretKinds {
    /// Returns how much of a kind may be printed. `api_version` is as in objects: `v1`, `apps/v1`.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Exposure {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.of(Some(group), kind)
    }

    /// Does the same; matches any group if it is unknown.
    fn of(&self, group: Option<&str>, kind: &str) -> Exposure {
        let is_listed = |(known, name): &(String, String)| {
            group.is_none_or(|group| group.eq_ignore_ascii_case(known))
                && (name == "*" || name.eq_ignore_ascii_case(kind))
        };
        if self.0.iter().any(is_listed) {
            Exposure::Identity
        } else if kind == SECRET {
            Exposure::Names
        } else {
            Exposure::Open
        }
    }

    /// Returns how much of an object may be printed.
    pub fn of_object(&self, object: &Value) -> Exposure {
        let text = |path: &[&str]| object.at(path).and_then(Value::as_text).unwrap_or_default();
        let kind = text(&["kind"]);
        let of_helm = kind == "ConfigMap" && text(&["metadata", "name"]).starts_with(HELM);
        let of_kind = self.of_kind(&text(&["apiVersion"]), &kind);
        let of_own = if of_helm { of_kind.max(Exposure::Names) } else { of_kind };
        // A list is printed like its most secret item.
        let Some(of_items) = kind.strip_suffix("List") else { return of_own };
        let items = object.at(&["items"]).and_then(Value::as_list).unwrap_or_default();
        let of_items =
            items.iter().map(|item| self.of_object(item)).chain([self.of_kind(&text(&["apiVersion"]), of_items)]);
        of_items.fold(of_own, Exposure::max)
    }

    /// Returns how much of a stored value may be printed. A value that cannot be parsed is hidden if it contains the name of a
    /// hidden kind, or is encrypted.
    pub fn of_value(&self, value: &[u8]) -> Exposure {
        if let Some((object, _)) = Value::parse(value) {
            return self.of_object(&object);
        }
        if value.starts_with(protobuf::ENCRYPTED) {
            return Exposure::Identity;
        }
        if value.starts_with(protobuf::PREFIX) {
            return match protobuf::type_meta(value) {
                Some((api_version, kind)) => self.of_kind(api_version, kind),
                None => Exposure::Identity,
            };
        }
        let text = String::from_utf8_lossy(value);
        kinds_in(&text).map(|kind| self.of(None, kind)).max().unwrap_or_default()
    }

    /// Returns how much may be printed about a key, given the key without its prefix.
    pub fn of_key(&self, relative: &[u8]) -> Exposure {
        let relative = relative.strip_prefix(b"registry/").unwrap_or(relative);
        if relative.starts_with(b"secrets/") { Exposure::Names } else { Exposure::Open }
    }

    /// Returns how much may be printed about a key and its old or new value.
    pub fn of_change(&self, relative: &[u8], values: [Option<&[u8]>; 2]) -> Exposure {
        let values = values.into_iter().flatten().map(|value| self.of_value(value));
        values.fold(self.of_key(relative), Exposure::max)
    }
}

impl Exposure {
    /// Returns whether the value of a field may be printed, given its path, such as `metadata.finalizers` or `data[a.b]`.
    pub fn shows(self, path: &str) -> bool {
        if self == Self::Open {
            return true;
        }
        let (first, rest) = split(path);
        match first {
            "apiVersion" | "kind" => rest.is_empty(),
            "type" | "immutable" => rest.is_empty() && self == Self::Names,
            "metadata" => METADATA.contains(&split(rest.strip_prefix('.').unwrap_or_default()).0),
            _ => false,
        }
    }

    /// Returns what may be printed of a field's path.
    pub fn path(self, path: &str) -> &str {
        if self == Self::Identity && !path.starts_with("metadata.") { split(path).0 } else { path }
    }

    /// Returns what may be printed of a field's value.
    pub fn value(self, path: &str, value: Option<String>) -> Option<String> {
        value.map(|value| if self.shows(path) { value } else { HIDDEN.to_owned() })
    }
}

/// Splits a path into its top-level field and the rest.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.find(['.', '[']).unwrap_or(path.len()))
}

/// Returns what text that cannot be parsed may mean as an object's kind.
fn kinds_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("kind").filter_map(|(at, name)| {
        let rest = text[at + name.len()..].trim_start_matches(['"', '\'', ' ', '\t']).strip_prefix(':')?;
        let rest = rest.trim_start_matches(['"', '\'', ' ', '\t', '\r', '\n']);
        Some(&rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_parsed() {
        for text in ["", "ConfigMap", "example.org/Vault,ConfigMap,corp.example/*"] {
            let kinds: SecretKinds = text.parse().unwrap();
            assert_eq!(kinds.to_string(), text);
        }
    }

    #[test]
    fn values_of_secrets_are_hidden_wherever_they_are_and_names_are_not() {
        let exposure = SecretKinds::default().of_value(b"kind: Secret\napiVersion: v1\n");
        for path in [
            "",
            "data",
            "data.password",
            "data[a.b]",
            "stringData.x",
            "metadata",
            "metadata.annotations",
            "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]",
            "metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]",
            "metadata.labels.x",
            "metadata[name]",
            "[metadata.name]",
            "kind.x",
        ] {
            assert_eq!(exposure.value(path, Some("x".into())).unwrap(), HIDDEN, "{path}");
            assert_eq!(exposure.path(path), path);
        }
        for path in ["type", "metadata.finalizers", "metadata.ownerReferences[uid=u].name", "metadata.uid", "kind"] {
            assert_eq!(exposure.value(path, Some("x".into())).unwrap(), "x", "{path}");
        }
        assert_eq!(exposure.value("data", None), None);
        assert!(Exposure::Open.shows("data.password"));
    }

    #[test]
    fn a_list_is_as_secret_as_its_items() {
        let kinds: SecretKinds = "example.org/Vault".parse().unwrap();
        for (text, expected) in [
            ("kind: List\napiVersion: v1\nitems: [{kind: ConfigMap, apiVersion: v1}]\n", Exposure::Open),
            (
                "kind: List\napiVersion: v1\nitems: [{kind: ConfigMap}, {kind: Secret, apiVersion: v1}]\n",
                Exposure::Names,
            ),
            ("kind: SecretList\napiVersion: v1\nitems: [{data: {a: b}}]\n", Exposure::Names),
            ("kind: VaultList\napiVersion: example.org/v1\nitems: []\n", Exposure::Identity),
        ] {
            assert_eq!(kinds.of_value(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn kinds_that_are_listed_do_not_even_show_their_fields() {
        let kinds: SecretKinds = "example.org/Vault, ConfigMap,corp.example/*".parse().unwrap();
        let of = |api_version: &str, kind: &str| kinds.of_kind(api_version, kind);
        for (api_version, kind) in [("example.org/v1", "Vault"), ("v1", "ConfigMap"), ("corp.example/v1beta1", "Any")] {
            assert_eq!(of(api_version, kind), Exposure::Identity, "{kind}");
        }
        assert_eq!([of("other.org/v1", "Vault"), of("apps/v1", "ConfigMap")], [Exposure::Open; 2]);
        assert_eq!(of("v1", "Secret"), Exposure::Names);
        assert_eq!(Exposure::Identity.path("spec.users[name=ann].password"), "spec");
        assert_eq!(Exposure::Identity.path("metadata.labels.x"), "metadata.labels.x");
        assert!(!Exposure::Identity.shows("spec") && !Exposure::Identity.shows("type"));
        for wrong in ["a b", "example.org/", "x/y/z"] {
            assert!(wrong.parse::<SecretKinds>().is_err(), "{wrong}");
        }
        assert_eq!("".parse(), Ok(SecretKinds::default()));
    }

    #[test]
    fn what_cannot_be_read_is_hidden_if_it_says_that_it_is_secret() {
        let kinds: SecretKinds = "example.org/Vault".parse().unwrap();
        let protobuf = |api_version: &str, kind: &str| {
            let string = |tag: u8, text: &str| [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            let meta = [string(0x0a, api_version), string(0x12, kind)].concat();
            [b"k8s\0\x0a", &[meta.len() as u8][..], &meta, b"\x12\x03abc"].concat()
        };
        for (value, exposure) in [
            (protobuf("v1", "Secret"), Exposure::Names),
            (protobuf("example.org/v1", "Vault"), Exposure::Identity),
            (protobuf("v1", "ConfigMap"), Exposure::Open),
            (b"k8s\0\xff".to_vec(), Exposure::Identity),
            (b"k8s:enc:aescbc:v1:key1:\xfe".to_vec(), Exposure::Identity),
            (b"{\"kind\" : \"Secret\", \"data\": {".to_vec(), Exposure::Names),
            (b"data: [\nkind:   'Secret'\n".to_vec(), Exposure::Names),
            (b"kind: Vault\n\t- [".to_vec(), Exposure::Identity),
            (b"some text of any kind: no".to_vec(), Exposure::Open),
        ] {
            assert_eq!(kinds.of_value(&value), exposure, "{}", value.escape_ascii());
        }
        assert_eq!(kinds.of_key(b"secrets/n/s"), Exposure::Names);
        assert_eq!(kinds.of_key(b"configmaps/secrets/s"), Exposure::Open);
        let release = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sh.helm.release.v1.a.v1"}}"#;
        assert_eq!(kinds.of_value(release), Exposure::Names);
    }
}
