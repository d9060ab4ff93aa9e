//! The resource: which service, version and instance the spans are of.

use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;

/// Returns the resource that the environment describes, with `attributes` in addition. Its name is `name`, or that in the
/// environment, or `default`.
pub fn resource(name: Option<&str>, default: &str, attributes: impl IntoIterator<Item = KeyValue>) -> Resource {
    // Both builders read the environment.
    let found = Resource::builder().build();
    let found = found.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    let builder = Resource::builder().with_attributes(attributes);
    match (name, found) {
        (Some(name), _) => builder.with_service_name(name.to_owned()),
        (None, Some(found)) if !found.starts_with("unknown_service") => builder,
        (None, _) => builder.with_service_name(default.to_owned()),
    }
    .build()
}
