//! The objects that are created, patched, listed and deleted.

use bytes::Bytes;
use serde_json::json;

/// Number of namespaces that hold the objects.
pub(crate) const NAMESPACES: u64 = 50;

/// The namespace with this number.
pub(crate) fn namespace(number: u64) -> String {
    format!("bench-{number:02}")
}

/// The Namespace object.
pub(crate) fn namespace_object(number: u64) -> Bytes {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(number) } });
    Bytes::from(object.to_string())
}

/// The collection path of an object's namespace.
pub(crate) fn folder(number: u64) -> String {
    format!("/api/v1/namespaces/{}/configmaps", namespace(number % NAMESPACES))
}

/// The path of an object.
pub(crate) fn path(number: u64) -> String {
    format!("{}/{}", folder(number), name(number))
}

/// The path of all objects.
pub(crate) const ALL: &str = "/api/v1/configmaps";

fn name(number: u64) -> String {
    format!("settings-{number:06}")
}

/// An object of about 700 bytes once kube-apiserver has added its fields; a patch changes 16 of them, and a time.
pub(crate) fn object(number: u64) -> Bytes {
    let name = name(number);
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": name } },
        "data": {
            "stamp": stamp(number),
            "log-level": "info",
            "server.yaml": format!("address: 0.0.0.0\nport: 8080\nname: {name}\ntimeout: 30s\nmaxConnections: 512\n"),
        },
    });
    Bytes::from(object.to_string())
}

/// A merge patch that replaces the stamp.
pub(crate) fn patch(stamp_number: u64) -> Bytes {
    Bytes::from(json!({ "data": { "stamp": stamp(stamp_number) } }).to_string())
}

fn stamp(number: u64) -> String {
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_lie_in_different_namespaces_and_come_back_after_all() {
        assert_eq!(path(7), "/api/v1/namespaces/bench-07/configmaps/settings-000007");
        assert_ne!(folder(7), folder(8));
        assert_eq!(folder(7), folder(7 + NAMESPACES));
    }

    #[test]
    fn a_patch_changes_what_an_object_has() {
        let patch: serde_json::Value = serde_json::from_slice(&patch(3)).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&object(2)).unwrap();
        assert!(object["data"]["stamp"].is_string());
        assert_ne!(object["data"]["stamp"], patch["data"]["stamp"]);
    }
}
