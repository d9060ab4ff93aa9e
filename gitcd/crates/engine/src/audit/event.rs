//! Audit events of kube-apiserver (`audit.k8s.io/v1`), as far as a commit needs them.
//!
//! Bodies of requests and responses are read past: only `metadata.name`, `resourceVersion`, whether the object is terminating,
//! and `dryRun` are kept. No other part of an object, such as the data of a Secret, is ever stored.

use std::fmt;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Events as a webhook receives them.
#[derive(Debug, Deserialize)]
pub struct EventList {
    /// `EventList`.
    kind: String,
    /// `audit.k8s.io/v1`.
    #[serde(rename = "apiVersion")]
    api_version: String,
    /// The events.
    #[serde(default)]
    pub items: Vec<Event>,
}

/// Why a body is not a list of audit events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// It is not JSON, or a field has another type.
    #[error("the body is not an EventList of audit.k8s.io/v1 in JSON: {0}")]
    Parse(#[from] serde_json::Error),
    /// It is another kind of object.
    #[error("the body is {kind:?} of {api_version:?}; set --audit-webhook-version=audit.k8s.io/v1 in kube-apiserver")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
}

impl EventList {
    /// Parses the body of a webhook request.
    ///
    /// # Errors
    /// [`EventError`]; the message contains no part of an object.
    pub fn parse(body: &[u8]) -> Result<Self, EventError> {
        let list: Self = serde_json::from_slice(body)?;
        if list.kind != "EventList" || list.api_version != "audit.k8s.io/v1" {
            return Err(EventError::Kind { kind: list.kind, api_version: list.api_version });
        }
        Ok(list)
    }
}

/// A request to kube-apiserver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// `ResponseComplete` once the response is sent.
    pub stage: String,
    /// Path and query, which has `dryRun`.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// `create`, `update`, `patch`, `delete`, `deletecollection`, or a verb that does not write.
    pub verb: String,
    /// The authenticated user.
    pub user: User,
    /// The user that the request impersonated.
    pub impersonated_user: Option<User>,
    /// Addresses of the client and of proxies; only the last one is not chosen by the client.
    #[serde(rename = "sourceIPs")]
    pub sources: Vec<String>,
    /// The client's `User-Agent`.
    pub user_agent: String,
    /// The object.
    pub object_ref: Option<ObjectRef>,
    /// The response's status.
    pub response_status: Option<Status>,
    /// The body of the request, at level `Request` and above.
    pub request_object: Body,
    /// The body of the response, at level `RequestResponse`.
    pub response_object: Body,
    /// When the request arrived.
    pub request_received_timestamp: Timestamp,
    /// When the response was sent.
    pub stage_timestamp: Timestamp,
}

/// A user.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name.
    pub username: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The resource, such as `deployments`.
    pub resource: String,
    /// The namespace; empty for objects of the cluster.
    pub namespace: String,
    /// The name; empty for all objects of a `deletecollection`, and where the server chooses it.
    pub name: String,
    /// The subresource, such as `status`.
    pub subresource: String,
}

/// The status of a response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
}

/// What is kept of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
    /// Whether `metadata` has a `deletionTimestamp` and no finalizers: the request may have removed the object.
    pub is_terminating: bool,
    /// Of `DeleteOptions`: whether they have `dryRun`.
    pub dry_run: Option<bool>,
}

/// A time in milliseconds since 1970, rounded down; `None` if it is missing or invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub Option<i64>);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(deserializer)?;
        let time = text.and_then(|text| humantime::parse_rfc3339(&text).ok());
        let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self(since.and_then(|since| i64::try_from(since.as_millis()).ok())))
    }
}

/// A text; `None` for a value of any other type. Bodies have any shape: a JSON patch, or an object of a custom resource.
struct Text(Option<String>);

/// The length of a list or a map; `None` for other values. Elements are read past.
struct Length(Option<usize>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, _) = deserializer.deserialize_any(Shape)?;
        Ok(Self(text))
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (_, length) = deserializer.deserialize_any(Shape)?;
        Ok(Self(length))
    }
}

/// Reads past a value of any type, and returns it if it is a text, or how many elements it has.
struct Shape;

impl<'de> Visitor<'de> for Shape {
    type Value = (Option<String>, Option<usize>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok((Some(text.to_owned()), None))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok((None, None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok((None, None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok((None, None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok((None, None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok((None, None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut length = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok((None, Some(length)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut length = 0;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok((None, Some(length)))
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields::<BodyFields>::default())
    }
}

/// Reads the fields of a map that `T` keeps; a value of any other type has none.
struct Fields<T>(T);

impl<T: Default> Default for Fields<T> {
    fn default() -> Self {
        Self(T::default())
    }
}

/// What is kept of a map.
trait Kept: Default {
    type Value: Default;

    /// Reads the value of a field.
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;

    fn end(self) -> Self::Value;
}

impl<'de, T: Kept> Visitor<'de> for Fields<T> {
    type Value = T::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(T::Value::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::Value::default())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            self.0.field(&name, &mut map)?;
        }
        Ok(self.0.end())
    }
}

#[derive(Default)]
struct BodyFields {
    kind: Option<String>,
    dry_run: Option<usize>,
    metadata: Metadata,
}

/// `metadata` of a body.
#[derive(Clone, Debug, Default)]
struct Metadata {
    name: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<String>,
    finalizers: Option<usize>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Fields::<Self>::default())
    }
}

impl Kept for Metadata {
    type Value = Self;

    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let text = match name {
            "name" => &mut self.name,
            "resourceVersion" => &mut self.resource_version,
            "deletionTimestamp" => &mut self.deletion_timestamp,
            "finalizers" => {
                self.finalizers = map.next_value::<Length>()?.0;
                return Ok(());
            }
            _ => return map.next_value::<IgnoredAny>().map(drop),
        };
        *text = map.next_value::<Text>()?.0;
        Ok(())
    }

    fn end(self) -> Self {
        self
    }
}

impl Kept for BodyFields {
    type Value = Body;

    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "kind" => self.kind = map.next_value::<Text>()?.0,
            "dryRun" => self.dry_run = map.next_value::<Length>()?.0,
            "metadata" => self.metadata = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn end(self) -> Body {
        let Self { kind, dry_run, metadata } = self;
        Body {
            name: metadata.name,
            resource_version: metadata.resource_version,
            is_terminating: metadata.deletion_timestamp.is_some() && metadata.finalizers.unwrap_or_default() == 0,
            dry_run: (kind.as_deref() == Some("DeleteOptions")).then_some(dry_run.unwrap_or_default() > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(json: &str) -> Body {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn only_four_facts_of_an_object_are_kept() {
        let secret = r#"{"kind":"Secret","data":{"password":"aHVzaA=="},"metadata":{"name":"a","resourceVersion":"7",
            "annotations":{"x":"aHVzaA=="}}}"#;
        let kept = body(secret);
        assert_eq!(kept, Body { name: Some("a".into()), resource_version: Some("7".into()), ..Body::default() });
        assert!(!format!("{kept:?}").contains("aHVzaA"));
        assert_eq!(body(r#"{"kind":"DeleteOptions","dryRun":["All"]}"#).dry_run, Some(true));
        assert_eq!(body(r#"{"kind":"DeleteOptions","dryRun":[]}"#).dry_run, Some(false));
        assert_eq!(body(r#"{"kind":"Custom","dryRun":["All"]}"#).dry_run, None);
        assert!(body(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[]}}"#).is_terminating);
        assert!(
            !body(r#"{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a"]}}"#).is_terminating
        );
    }

    #[test]
    fn bodies_of_any_shape_are_read_past() {
        for other in [
            "null",
            "7",
            "-7",
            "1.5",
            "true",
            r#""text""#,
            "[]",
            r#"[{"op":"add","path":"/metadata","value":{"name":7}}]"#,
            r#"{"metadata":null}"#,
            r#"{"metadata":[1]}"#,
            r#"{"metadata":"x"}"#,
            r#"{"metadata":{"name":{"a":1}},"kind":[]}"#,
            r#"{"metadata":{"resourceVersion":null,"deletionTimestamp":false},"dryRun":true}"#,
            r#"{"\u006bind":{}}"#,
        ] {
            assert_eq!(body(other), Body::default(), "{other}");
        }
    }

    #[test]
    fn times_are_rounded_down_to_the_millisecond_of_the_store() {
        let time = |text: &str| serde_json::from_str::<Timestamp>(text).unwrap().0;
        assert_eq!(time(r#""1970-01-01T00:00:01.234999Z""#), Some(1234));
        assert_eq!(time(r#""1970-01-01T00:00:01Z""#), Some(1000));
        for wrong in ["null", "7", r#""""#, r#""yesterday""#, r#""1960-01-01T00:00:00Z""#] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_bodies_are_refused_with_what_they_are() {
        let said = |body: &str| EventList::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(said("{").contains("EventList of audit.k8s.io/v1"));
        assert!(
            said(r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1beta1"}"#).contains("--audit-webhook-version")
        );
        assert_eq!(EventList::parse(br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1"}"#).unwrap().items.len(), 0);
    }
}
