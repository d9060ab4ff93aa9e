//! Keys and values as kube-apiserver stores them.

use std::fmt::{self, Display, Write};

use bytes::Bytes;
use serde::Serialize;

/// A Kubernetes resource, as it appears in a stored object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resource {
    /// Directory under `/registry`.
    pub(crate) plural: &'static str,
    /// The object's `kind`.
    pub(crate) kind: &'static str,
    /// The object's `apiVersion`.
    pub(crate) api_version: &'static str,
}

/// Numbered keys `/registry/<resource>/<namespace>/<name>`, spread evenly over namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpace {
    /// The stored resource.
    pub(crate) resource: Resource,
    /// Number of namespaces, and thus of directories; a single one is called `default`.
    pub(crate) namespaces: u64,
    /// Number of keys once filled.
    pub(crate) keys: u64,
}

/// Namespaces of every key space but that of the idle cost.
pub(crate) const NAMESPACES: u64 = 50;

/// Puts, gets and updates: 5,000 keys in 50 directories of 100.
pub(crate) const DEPLOYMENTS: KeySpace = KeySpace {
    resource: Resource { plural: "deployments", kind: "Deployment", api_version: "apps/v1" },
    namespaces: NAMESPACES,
    keys: 5_000,
};

/// Creates: initially empty; every operation adds a key to one of 50 directories.
pub(crate) const PODS: KeySpace =
    KeySpace { resource: Resource { plural: "pods", kind: "Pod", api_version: "v1" }, namespaces: NAMESPACES, keys: 0 };

/// Lists: 10,000 keys in 50 directories of 200.
pub(crate) const SECRETS: KeySpace = KeySpace {
    resource: Resource { plural: "secrets", kind: "Secret", api_version: "v1" },
    namespaces: NAMESPACES,
    keys: 10_000,
};

/// Watches: 1,000 keys in 50 directories of 20.
pub(crate) const SLICES: KeySpace = KeySpace {
    resource: Resource { plural: "endpointslices", kind: "EndpointSlice", api_version: "discovery.k8s.io/v1" },
    namespaces: NAMESPACES,
    keys: 1_000,
};

/// Idle cost: 10,000 keys in one directory.
pub(crate) const CONFIG_MAPS: KeySpace = KeySpace {
    resource: Resource { plural: "configmaps", kind: "ConfigMap", api_version: "v1" },
    namespaces: 1,
    keys: 10_000,
};

/// The end of a value, after the stamp: kube-apiserver ends its JSON with a newline.
const TAIL: &str = "\"}}\n";
const STAMP_DIGITS: usize = 16;
/// Replicas of a value: the stamp modulo this, plus 1.
const REPLICAS: u64 = 9;

/// A name with a number of at least `digits` digits; without digits it has no number.
#[derive(Clone, Copy, Debug, Serialize)]
struct Numbered {
    text: &'static str,
    digits: usize,
}

impl Numbered {
    fn of(self, number: u64) -> String {
        let Self { text, digits } = self;
        if digits == 0 { text.to_owned() } else { format!("{text}{number:0digits$}") }
    }
}

/// A key space for a client that is another program: it can form the same keys and values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Layout {
    prefix: String,
    end: String,
    keys: u64,
    namespaces: u64,
    namespace: Numbered,
    name: Numbered,
    replicas: u64,
    /// A value, with the names of its parts between dollar signs in their places.
    value: String,
}

/// What a value says, as numbers or as the places of a template.
struct Parts<T> {
    name: T,
    namespace: T,
    number: T,
    generation: T,
    replicas: T,
    stamp: T,
}

impl KeySpace {
    /// The key with this number, which may be above [`KeySpace::keys`].
    pub(crate) fn key(&self, number: u64) -> Bytes {
        Bytes::from(format!("{}{}/{}", self.prefix(), self.namespace(number), self.name(number)))
    }

    /// The common prefix of all keys.
    pub(crate) fn prefix(&self) -> String {
        format!("/registry/{}/", self.resource.plural)
    }

    /// The first key after all keys of this space.
    pub(crate) fn end(&self) -> Bytes {
        // '0' follows '/', which ends every prefix.
        Bytes::from(format!("/registry/{}0", self.resource.plural))
    }

    fn namespaces(&self) -> Numbered {
        if self.namespaces == 1 { Numbered { text: "default", digits: 0 } } else { Numbered { text: "ns-", digits: 2 } }
    }

    fn names(&self) -> Numbered {
        if self.namespaces == 1 { Numbered { text: "cm-", digits: 5 } } else { Numbered { text: "app-", digits: 6 } }
    }

    fn namespace(&self, number: u64) -> String {
        self.namespaces().of(number % self.namespaces)
    }

    fn name(&self, number: u64) -> String {
        self.names().of(number)
    }

    /// The same keys and values for another program.
    pub(crate) fn layout(&self) -> Layout {
        let value = self.object(&Parts {
            name: "$name$",
            namespace: "$namespace$",
            number: "$number$",
            generation: "$generation$",
            replicas: "$replicas$",
            stamp: "$stamp$",
        });
        Layout {
            prefix: self.prefix(),
            end: String::from_utf8_lossy(&self.end()).into_owned(),
            keys: self.keys,
            namespaces: self.namespaces,
            namespace: self.namespaces(),
            name: self.names(),
            replicas: REPLICAS,
            value,
        }
    }

    /// Returns an object of about 700 bytes in kube-apiserver's compact form.
    ///
    /// Between two generations, about 30 bytes change, as in a status update: generation and replicas (three times each) and
    /// the stamp.
    pub(crate) fn value(&self, number: u64, generation: u64, stamp: u64) -> Bytes {
        let (name, namespace, replicas) = (self.name(number), self.namespace(number), stamp % REPLICAS + 1);
        let text = self.object(&Parts::<fmt::Arguments<'_>> {
            name: format_args!("{name}"),
            namespace: format_args!("{namespace}"),
            number: format_args!("{number:012x}"),
            generation: format_args!("{generation}"),
            replicas: format_args!("{replicas}"),
            stamp: format_args!("{stamp:016x}"),
        });
        Bytes::from(text)
    }

    fn object<T: Display>(&self, parts: &Parts<T>) -> String {
        let Resource { kind, api_version, .. } = self.resource;
        let Parts { name, namespace, number, generation, replicas, stamp } = parts;
        let mut text = String::with_capacity(800);
        write!(
            text,
            concat!(
                r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"name":"{name}","#,
                r#""namespace":"{namespace}","uid":"6f1d3c2a-5b7e-4c11-9d0e-{number}","#,
                r#""generation":{generation},"creationTimestamp":"2026-01-01T00:00:00Z","#,
                r#""labels":{{"app":"{name}","tier":"backend"}},"#,
                r#""annotations":{{"deployment.kubernetes.io/revision":"{generation}"}}}},"#,
                r#""spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"{name}"}}}},"#,
                r#""template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":"#,
                r#"[{{"name":"main","image":"registry.example/backend:1.7","resources":"#,
                r#"{{"limits":{{"cpu":"500m","memory":"128Mi"}}}}}}]}}}}}},"#,
                r#""status":{{"observedGeneration":{generation},"replicas":{replicas},"#,
                r#""readyReplicas":{replicas},"conditions":[{{"type":"Available","status":"True"}}],"#,
                r#""stamp":"{stamp}{tail}"#,
            ),
            kind = kind,
            api_version = api_version,
            name = name,
            namespace = namespace,
            number = number,
            generation = generation,
            replicas = replicas,
            stamp = stamp,
            tail = TAIL,
        )
        .expect("writing to a string cannot fail");
        text
    }
}

/// Returns the stamp that [`KeySpace::value`] put into a value, or `None` for other values.
pub(crate) fn stamp_of(value: &[u8]) -> Option<u64> {
    let head = value.strip_suffix(TAIL.as_bytes())?;
    let digits = head.get(head.len().checked_sub(STAMP_DIGITS)?..)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compact_json_of_about_700_bytes_with_a_newline() {
        for space in [DEPLOYMENTS, PODS, SECRETS, SLICES, CONFIG_MAPS] {
            let value = space.value(4_711, 17, u64::MAX);
            assert!((650..750).contains(&value.len()), "{} bytes", value.len());
            let parsed: serde_json::Value = serde_json::from_slice(&value).unwrap();
            assert_eq!(parsed["metadata"]["generation"], 17);
            let compact = serde_json::to_string(&parsed).unwrap() + "\n";
            assert_eq!(compact.as_bytes(), &value[..]);
        }
    }

    #[test]
    fn the_stamp_can_be_read_back_and_nothing_else_has_one() {
        let value = SLICES.value(1, 2, 0xdead_beef);
        assert_eq!(stamp_of(&value), Some(0xdead_beef));
        assert_eq!(stamp_of(b"\"}}\n"), None);
        assert_eq!(stamp_of(b"something else"), None);
    }

    #[test]
    fn the_layout_has_every_place_of_a_value() {
        let layout = DEPLOYMENTS.layout();
        let mut value = layout.value.clone();
        let places = [
            ("$name$", layout.name.of(107)),
            ("$namespace$", layout.namespace.of(7)),
            ("$number$", "00000000006b".to_owned()),
            ("$generation$", "3".to_owned()),
            ("$replicas$", (255 % layout.replicas + 1).to_string()),
            ("$stamp$", "00000000000000ff".to_owned()),
        ];
        for (place, text) in places {
            assert!(value.contains(place), "{place}");
            value = value.replace(place, &text);
        }
        assert_eq!(value.as_bytes(), &DEPLOYMENTS.value(107, 3, 255)[..]);
        assert_eq!(layout.end.as_bytes(), &DEPLOYMENTS.end()[..]);
    }

    #[test]
    fn keys_are_spread_over_namespaces_and_lie_within_their_range() {
        assert_eq!(DEPLOYMENTS.key(107), "/registry/deployments/ns-07/app-000107");
        assert_eq!(CONFIG_MAPS.key(42), "/registry/configmaps/default/cm-00042");
        for number in [0, 49, 4_999, 1_000_000] {
            let key = PODS.key(number);
            assert!(key > PODS.prefix() && key < PODS.end());
        }
    }
}
