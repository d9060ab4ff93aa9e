//! Conversion between messages and JSON objects, in protobuf's own mapping with etcd's options: names as in the `.proto` files,
//! fields without a value omitted, unknown fields ignored.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tonic::Status;

/// Converts a JSON object to an encoded message.
pub(super) fn to_message(kind: &MessageDescriptor, object: &[u8]) -> Result<Vec<u8>, Status> {
    let refused = |error| Status::invalid_argument(format!("{}: {error}", kind.full_name()));
    let _: Unambiguous = serde_json::from_slice(object).map_err(refused)?;
    let mut json = serde_json::Deserializer::from_slice(object);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(kind.clone(), &mut json, &options);
    Ok(message.map_err(refused)?.encode_to_vec())
}

/// JSON without duplicate fields, in any spelling: the last one would silently win.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            // `prev_kv` and `prevKv` are one field.
            if !seen.insert(name.replace('_', "").to_ascii_lowercase()) {
                return Err(A::Error::custom(format!("duplicate field {name:?}")));
            }
            object.next_value::<Self>()?;
        }
        Ok(self)
    }
}

/// Converts an encoded message to a JSON object.
pub(super) fn from_message(kind: &MessageDescriptor, message: Bytes) -> Result<Vec<u8>, Status> {
    let internal = |error: &dyn std::error::Error| Status::internal(format!("{}: {error}", kind.full_name()));
    let message = DynamicMessage::decode(kind.clone(), message).map_err(|error| internal(&error))?;
    let options = SerializeOptions::new().use_proto_field_name(true).skip_default_fields(true);
    let mut json = Vec::new();
    message
        .serialize_with_options(&mut serde_json::Serializer::new(&mut json), &options)
        .map_err(|error| internal(&error))?;
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::etcdserverpb::{RangeRequest, RangeResponse};
    use crate::proto::mvccpb::KeyValue;
    use tonic::Code;

    fn kind(name: &str) -> MessageDescriptor {
        let pool = prost_reflect::DescriptorPool::decode(crate::proto::DESCRIPTORS).unwrap();
        pool.get_message_by_name(&format!("etcdserverpb.{name}")).unwrap()
    }

    #[test]
    fn both_spellings_both_base64_alphabets_and_numbers_in_quotes_are_taken() {
        for object in [
            r#"{"key":"-_8=","range_end":"AA","limit":"7","keys_only":true,"sort_order":"DESCEND","x":{"y":[1]}}"#,
            r#"{"key":"+/8","rangeEnd":"AA==","limit":7,"keysOnly":true,"sortOrder":2,"revision":null}"#,
        ] {
            let message = to_message(&kind("RangeRequest"), object.as_bytes()).unwrap();
            let range = RangeRequest {
                key: Bytes::from_static(b"\xfb\xff"),
                range_end: Bytes::from_static(b"\0"),
                limit: 7,
                keys_only: true,
                sort_order: 2,
                ..RangeRequest::default()
            };
            assert_eq!(RangeRequest::decode(&*message).unwrap(), range, "{object}");
        }
    }

    #[test]
    fn what_is_no_such_message_is_refused() {
        for object in [
            r#"{"key":5}"#,
            r#"{"key":"!!"}"#,
            r#"{"limit":"x"}"#,
            r#"{"limit":1.5}"#,
            r#"{"limit":1,"limit":2}"#,
            r#"{"keys_only":true,"keysOnly":true}"#,
            r#"{"x":[{"y":1,"y":1}]}"#,
            "{a}",
        ] {
            let refused = to_message(&kind("RangeRequest"), object.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{object}");
        }
    }

    #[test]
    fn numbers_of_64_bits_come_in_quotes_and_what_is_not_set_not_at_all() {
        let pair = KeyValue { key: Bytes::from_static(b"\xff"), mod_revision: i64::MAX, ..KeyValue::default() };
        let answer = RangeResponse { kvs: vec![pair], count: 1, ..RangeResponse::default() };
        let json = from_message(&kind("RangeResponse"), answer.encode_to_vec().into()).unwrap();
        let expected = r#"{"kvs":[{"key":"/w==","mod_revision":"9223372036854775807"}],"count":"1"}"#;
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }
}
