//! The JSON that Kubernetes reads at a place of an object.

use serde::Deserialize;

/// What may stand at a place. `null` may stand everywhere and means that nothing is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shape {
    /// Anything: raw JSON, or nothing is known.
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
    /// A whole number of 32 bits, without a point or an exponent.
    Int32,
    /// The same of 64 bits.
    Int64,
    /// A number with an integral value, however it is written: what `integer` means in the schema of a custom resource.
    #[serde(skip)]
    Integer,
    /// A number.
    Number,
    /// A string in base64.
    Bytes,
    /// A string with a time of RFC 3339.
    Time,
    /// The same with six digits behind the seconds.
    #[serde(rename = "microtime")]
    MicroTime,
    /// A quantity such as `100m` or `1.5Gi`: a string or a number.
    Quantity,
    /// A string, or a whole number of 32 bits.
    IntOrString,
    /// An object, `true` or `false`.
    ObjectOrBoolean,
}
