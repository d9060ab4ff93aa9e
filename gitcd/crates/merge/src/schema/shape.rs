//! Types of JSON that Kubernetes accepts in an object.

use serde::Deserialize;

/// The type of JSON at a place. `null` is valid everywhere and means absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shape {
    /// Anything: raw JSON, or the type is unknown.
    #[default]
    Any,
    /// An object, or a map.
    #[serde(skip)]
    Object,
    /// A list.
    #[serde(skip)]
    List,
    /// A string.
    String,
    /// `true` or `false`.
    Boolean,
    /// A 32-bit integer, without a point or an exponent.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A number with an integral value, in any notation: `integer` in the schema of a custom resource.
    #[serde(skip)]
    Integer,
    /// A number.
    Number,
    /// A string in base64.
    Bytes,
    /// A string with an RFC 3339 time.
    Time,
    /// An RFC 3339 time with six fractional digits.
    #[serde(rename = "microtime")]
    MicroTime,
    /// A quantity such as `100m` or `1.5Gi`: a string or a number.
    Quantity,
    /// A string or a 32-bit integer.
    IntOrString,
    /// An object, `true` or `false`.
    ObjectOrBoolean,
}
