//! Which field managers made a change, according to `metadata.managedFields`.
//!
//! kube-apiserver is the only client of gitcd in a cluster, so the client of a write says nothing about who requested it. The
//! field manager does (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers>).

use std::borrow::Cow;
use std::collections::BTreeSet;

use gitcd_merge::value::Value;

/// Returns the names of the field managers that changed an object, sorted: those whose entry is new or has another time. Empty
/// for values without `managedFields`, and for a deletion.
///
/// Times have a resolution of one second; for changes of one manager within a second, the entry that differs counts.
pub fn between(from: Option<&[u8]>, to: Option<&[u8]>) -> Vec<String> {
    let parse = |bytes: Option<&[u8]>| bytes.and_then(Value::parse).map(|(value, _)| value);
    let (Some(to), from) = (parse(to), parse(from)) else { return Vec::new() };
    let before: Vec<Entry<'_>> = from.as_ref().map(entries).unwrap_or_default();
    let after = entries(&to);
    let old = |entry: &Entry<'_>| before.iter().find(|old| old.identity == entry.identity);
    let names = |is_changed: &dyn Fn(&Entry<'_>) -> bool| -> BTreeSet<String> {
        after.iter().filter(|entry| is_changed(entry)).map(|entry| entry.identity[0].clone()).collect()
    };
    let by_time = names(&|entry| old(entry).is_none_or(|old| old.time != entry.time));
    let found = if by_time.is_empty() { names(&|entry| old(entry) != Some(entry)) } else { by_time };
    found.into_iter().collect()
}

/// An entry of `managedFields`.
#[derive(PartialEq)]
struct Entry<'v> {
    /// Manager, operation and subresource.
    identity: [String; 3],
    time: Option<String>,
    fields: Option<&'v Value>,
}

fn entries(object: &Value) -> Vec<Entry<'_>> {
    let managed = object.at(&["metadata", "managedFields"]).and_then(Value::as_list).unwrap_or_default();
    let entry = |value| {
        let text = |name: &str| Value::given(value, &[name]).map(Cow::into_owned);
        let (operation, subresource) = (text("operation").unwrap_or_default(), text("subresource").unwrap_or_default());
        let identity = [text("manager")?, operation, subresource];
        Some(Entry { identity, time: text("time"), fields: value.at(&["fieldsV1"]) })
    };
    managed.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::between;

    fn entry(manager: &str, time: &str, field: &str) -> String {
        format!(r#"{{"manager":"{manager}","operation":"Update","time":"{time}","fieldsV1":{{"{field}":{{}}}}}}"#)
    }

    fn object(entries: &[String]) -> Vec<u8> {
        let entries = entries.join(",");
        format!(r#"{{"kind":"ConfigMap","metadata":{{"name":"a","managedFields":[{entries}]}}}}"#).into_bytes()
    }

    #[test]
    fn the_manager_with_a_new_time_made_the_change_and_not_the_one_that_lost_a_field() {
        let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z");
        let created = object(&[entry("kubectl-create", one, "f:data")]);
        assert_eq!(between(None, Some(&created)), ["kubectl-create"]);
        let taken = object(&[entry("kubectl-create", one, "f:metadata"), entry("helm", two, "f:data")]);
        assert_eq!(between(Some(&created), Some(&taken)), ["helm"]);
        let merged = object(&[entry("kubectl-edit", two, "f:metadata"), entry("helm", two, "f:data")]);
        assert_eq!(between(Some(&created), Some(&merged)), ["helm", "kubectl-edit"]);
    }

    #[test]
    fn a_second_change_within_a_second_is_found_by_its_fields() {
        let time = "2026-01-01T00:00:00Z";
        let before = object(&[entry("helm", time, "f:data"), entry("kubectl", time, "f:metadata")]);
        let after = object(&[entry("helm", time, "f:data"), entry("kubectl", time, "f:spec")]);
        assert_eq!(between(Some(&before), Some(&after)), ["kubectl"]);
        assert_eq!(between(Some(&before), Some(&before)), [""; 0]);
    }

    #[test]
    fn values_without_managers_have_none() {
        let plain = br#"{"kind":"ConfigMap","metadata":{"name":"a"}}"#;
        for (from, to) in [(None, Some(&plain[..])), (Some(&plain[..]), None), (None, Some(b"text")), (None, None)] {
            assert_eq!(between(from, to), [""; 0]);
        }
    }
}
