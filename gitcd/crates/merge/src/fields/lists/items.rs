//! Identities of the items of two versions of a list, for comparisons outside a merge.

use super::conventional;
use super::key::{Id, Keys};
use super::set::ids as ids_of_set;
use crate::schema::{ListKind, Node};
use crate::value::Value;

/// The identity of a list item. Two versions of a list have the same item if the identities are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ItemId {
    /// Names and JSON texts of the key fields, sorted by name.
    Key(Vec<(String, String)>),
    /// The content of the whole item, and the number of equal items before it: in a set, and for items that share their keys.
    Content(String, usize),
}

/// Returns the identity of each item of two versions of a list, as a merge compares them; `None` if a merge takes the list whole
/// from one side.
///
/// `field_of_metadata` is the name of the list if it is a field of an object's `metadata`. Takes time in proportion to the lists.
pub fn item_ids(
    versions: [&[Value]; 2],
    field_of_metadata: Option<&str>,
    node: Option<Node<'_>>,
) -> Option<[Vec<ItemId>; 2]> {
    let keys = match (field_of_metadata, node.and_then(|node| node.list())) {
        (Some("ownerReferences"), _) => Keys::named("uid"),
        (Some("managedFields"), _) => Keys::all(&["manager", "operation", "apiVersion", "subresource"]),
        (Some("finalizers"), _) | (_, Some(ListKind::Set)) => {
            let [one, other] = versions.map(ids_of_set);
            return Some([one?, other?].map(|ids| ids.into_iter().map(|id| item(&Keys::all(&[]), id)).collect()));
        }
        (_, Some(ListKind::Atomic)) => return None,
        (_, Some(ListKind::Map(_))) => Keys::of(node?)?,
        (_, None) => conventional([versions[0], versions[1], &[]])?,
    };
    let [one, other, _] = keys.ids([versions[0], versions[1], &[]]);
    Some([one, other].map(|ids| ids.into_iter().map(|id| item(&keys, id)).collect()))
}

fn item(keys: &Keys<'_>, id: Id) -> ItemId {
    match id {
        Id::Key(texts) => ItemId::Key(keys.named_texts(&texts)),
        Id::Content(content, number) => ItemId::Content(content, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schemas;

    fn list(text: &str) -> Vec<Value> {
        let object = Value::parse(format!("{{\"l\":{text}}}").as_bytes()).expect("it is an object").0;
        object.at(&["l"]).and_then(Value::as_list).expect("it is a list").to_vec()
    }

    fn places(one: &str, other: &str, field: Option<&str>, node: Option<Node<'_>>) -> Option<Vec<Option<usize>>> {
        let (one, other) = (list(one), list(other));
        let [one, other] = item_ids([&one, &other], field, node)?;
        Some(one.iter().map(|id| other.iter().position(|found| found == id)).collect())
    }

    #[test]
    fn items_are_matched_as_a_merge_matches_them() {
        let schemas = Schemas::builtin();
        let spec = schemas.of("v1", "Pod").and_then(|pod| pod.field("spec")).expect("pods have a spec");
        let containers = spec.field("containers").expect("pods have containers");
        let names = (r#"[{"name":"a","image":"1"},{"name":"b"}]"#, r#"[{"name":"b"},{"name":"a","image":"2"}]"#);
        assert_eq!(places(names.0, names.1, None, Some(containers)), Some(vec![Some(1), Some(0)]));
        // Without a schema, by the first conventional key.
        assert_eq!(places(names.0, names.1, None, None), Some(vec![Some(1), Some(0)]));
        assert_eq!(places("[1,2]", "[2]", None, None), None);
        let command = containers.items().and_then(|container| container.field("command"));
        assert_eq!(places(r#"["a"]"#, r#"["a","b"]"#, None, command), None, "a command is atomic");
        let repeated = r#"[{"name":"a","v":"1"},{"name":"a","v":"2"}]"#;
        assert_eq!(places(repeated, r#"[{"name":"a","v":"2"}]"#, None, Some(containers)), Some(vec![None, Some(0)]));
        assert_eq!(places(r#"["x","y"]"#, r#"["y"]"#, Some("finalizers"), None), Some(vec![None, Some(0)]));
        let managers = |time: u8| format!(r#"[{{"manager":"a","operation":"Update","time":"{time}"}}]"#);
        assert_eq!(places(&managers(1), &managers(2), Some("managedFields"), None), Some(vec![Some(0)]));
    }
}
