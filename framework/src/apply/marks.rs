//! Labels and annotations that are added to objects.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cache::Fingerprint;
use crate::trace::TraceContext;
use crate::{Kind, Object};

/// The label of an `ApplySet`'s members, by its specification.
pub const PART_OF: &str = "applyset.kubernetes.io/part-of";
/// The annotation with the digest of what was applied last.
pub const APPLIED: &str = "framework.trishanku.org/applied";
/// The annotation with the field manager that applied the object. A prune spares the objects of other field managers.
pub const APPLIED_BY: &str = "framework.trishanku.org/applied-by";

/// Returns the id of an owner's `ApplySet`, by its specification.
pub(super) fn id<O: Object>(kind: &Kind<O>, owner: &O) -> String {
    let (metadata, none) = (owner.meta(), String::new());
    let [name, namespace] = [&metadata.name, &metadata.namespace].map(|part| part.as_ref().unwrap_or(&none));
    let digest = Sha256::digest(format!("{name}.{namespace}.{}.{}", kind.name(), kind.group()));
    format!("applyset-{}-v1", BASE64_URL_SAFE_NO_PAD.encode(digest))
}

/// Returns a digest of the desired state, in a microsecond or two. It differs each time if the type has maps without an order.
pub(super) fn fingerprint<K: Object + Serialize>(wanted: &mut K) -> Result<Fingerprint, serde_json::Error> {
    forget_marks(wanted);
    Ok(digest(&serde_json::to_vec(wanted)?))
}

/// Adds the digest of everything else as an annotation. Returns everything else as a value.
pub(super) fn sign<K: Object + Serialize>(wanted: &mut K) -> Result<Value, serde_json::Error> {
    forget_marks(wanted);
    let mut content = serde_json::to_value(&*wanted)?;
    // Maps may have another order each time. If the digest changed each time, the object would always differ.
    content.sort_all_objects();
    let text = BASE64_URL_SAFE_NO_PAD.encode(digest(&serde_json::to_vec(&content)?));
    wanted.meta_mut().annotations.get_or_insert_default().insert(APPLIED.to_owned(), text);
    Ok(content)
}

/// Removes the marks of an object that was copied from a live one.
fn forget_marks<K: Object>(wanted: &mut K) {
    let annotations = wanted.meta_mut().annotations.get_or_insert_default();
    annotations.retain(|name, _| name != APPLIED && name != APPLIED_BY);
}

/// Adds the field manager. It is not in the digest, since it is no part of the desired state.
pub(super) fn mark<K: Object>(wanted: &mut K, manager: &str) {
    wanted.meta_mut().annotations.get_or_insert_default().insert(APPLIED_BY.to_owned(), manager.to_owned());
}

/// Returns whether this field manager may have applied the object. Earlier versions of the framework did not record it.
pub(super) fn is_by<K: Object>(object: &K, manager: &str) -> bool {
    let annotations = object.meta().annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(APPLIED_BY)).is_none_or(|by| by == manager)
}

fn digest(text: &[u8]) -> Fingerprint {
    let (whole, mut digest) = (Sha256::digest(text), Fingerprint::default());
    digest.copy_from_slice(&whole[..size_of::<Fingerprint>()]);
    digest
}

/// Adds the trace context of the creation. It is not in the digest, since it is no part of the desired state.
pub(super) fn stamp<K: Object>(wanted: &mut K, live: Option<&K>) {
    let context = match live {
        Some(live) => TraceContext::on(live),
        None => TraceContext::current().filter(TraceContext::is_sampled),
    };
    if let Some(context) = context {
        context.stamp(wanted);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::telemetry::TRACEPARENT;

    #[test]
    fn the_order_in_which_fields_happen_to_be_written_is_no_difference() {
        let signed = |fields: [(&str, u32); 2]| {
            let resource = kube::core::discovery::ApiResource::erase::<ConfigMap>(&());
            let data: serde_json::Map<_, _> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            let mut object = kube::core::DynamicObject::new("a", &resource).data(serde_json::json!({"data": data}));
            sign(&mut object).expect("the object is JSON");
            object.metadata.annotations
        };
        assert_eq!(signed([("a", 1), ("b", 2)]), signed([("b", 2), ("a", 1)]));
        assert_ne!(signed([("a", 1), ("b", 2)]), signed([("a", 2), ("b", 1)]));
    }

    #[test]
    fn the_field_manager_is_recorded_beside_the_digest_and_one_that_was_not_recorded_may_be_any() {
        let mut map = ConfigMap::default();
        assert!(is_by(&map, "one"), "an earlier version did not record it");
        let digest = sign(&mut map).expect("the object is JSON");
        mark(&mut map, "one");
        assert!(is_by(&map, "one") && !is_by(&map, "two"));
        assert_eq!(sign(&mut map).expect("the object is JSON"), digest, "a copy of a live object is the same");
        assert!(is_by(&map, "two"));
    }

    #[test]
    fn what_is_there_keeps_its_stamp_and_gets_none() {
        let origin = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let stamped = |live: Option<&ConfigMap>| {
            let mut wanted = ConfigMap::default();
            stamp(&mut wanted, live);
            wanted.metadata.annotations.and_then(|mut annotations| annotations.remove(TRACEPARENT))
        };
        let mut live = ConfigMap::default();
        assert_eq!((stamped(Some(&live)), stamped(None)), (None, None), "without a trace, there is no stamp");
        TraceContext::parse(origin).expect("the context is valid").stamp(&mut live);
        assert_eq!(stamped(Some(&live)).as_deref(), Some(origin));
    }
}
