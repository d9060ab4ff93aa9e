use std::borrow::Cow;

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::json::MAX_NESTING;
use super::{DecodeError, Form, decode, encode, guess};

/// Objects as kube-apiserver stores them with `--storage-media-type=application/json`.
const KUBERNETES: &[&str] = &[
    include_str!("testdata/deployment.json"),
    include_str!("testdata/clusterrole.json"),
    include_str!("testdata/crd.json"),
];

/// JSON text with `space` between all tokens, including unusual scalars and duplicate names.
fn json(space: &'static str) -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        prop::sample::select(vec![
            "0",
            "-0",
            "1",
            "-12.50",
            "1e999",
            "1E+2",
            "0.0e-0",
            "123456789012345678901234567890",
            "true",
            "false",
            "null",
            r#""""#,
            r#""a b""#,
            r#""\"\\\/\b\f\n\r\t""#,
            r#""\u00e9\uD800""#,
            r#""{\"a\": [1, 2]}\n""#,
            "\"é\u{7f}\u{2028}😀\"",
            "{}",
            "[]",
        ])
        .prop_map(str::to_owned),
        "\"[ -!#-\\[\\]-~]{0,40}\"",
        any::<f64>()
            .prop_filter("JSON has no other numbers", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        any::<i64>().prop_map(|number| number.to_string()),
    ];
    let name = prop_oneof![
        prop::sample::select(vec![r#""a""#, r#""""#, r#""\\\"""#, r#""metadata""#]).prop_map(str::to_owned),
        "\"[a-zA-Z:{}, ]{0,12}\"",
    ];
    let tree = scalar.prop_recursive(6, 60, 6, move |inner| {
        let field = (name.clone(), inner.clone()).prop_map(move |(name, value)| [&name, ":", &value].join(space));
        prop_oneof![list("[", "]", space, inner.boxed()), list("{", "}", space, field.boxed()),]
    });
    list("[", "]", space, tree.boxed()).prop_map(move |text| format!("{space}{text}"))
}

fn list(
    open: &'static str,
    close: &'static str,
    space: &'static str,
    member: BoxedStrategy<String>,
) -> impl Strategy<Value = String> {
    prop::collection::vec(member, 0..6).prop_map(move |members| {
        let comma = [space, ",", space].concat();
        let inner = members.join(&comma);
        if inner.is_empty() { [open, close].join(space) } else { [open, &inner, close].join(space) }
    })
}

/// Any bytes: JSON, truncated JSON, JSON with replaced or added bytes, and noise.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let text = || prop_oneof![json(""), json(" "), json("\r\n\t")];
    let noise = prop::sample::select(&b"{}[]\",:\\0e.-+ntu \n\t\0\x1f\x7f\xc3\xff"[..]);
    prop_oneof![
        2 => json("").prop_map(String::into_bytes),
        2 => json("").prop_map(|text| [text.as_bytes(), b"\n"].concat()),
        1 => text().prop_map(String::into_bytes),
        2 => (text(), any::<prop::sample::Index>()).prop_map(|(text, cut)| {
            text.as_bytes()[..cut.index(text.len() + 1)].to_vec()
        }),
        4 => (text(), prop::collection::vec((any::<prop::sample::Index>(), noise, any::<bool>()), 1..4))
            .prop_map(|(text, changes)| {
                let mut bytes = text.into_bytes();
                for (at, byte, insert) in changes {
                    let at = at.index(bytes.len());
                    if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
                }
                bytes
            }),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// An independent check whether `text` is a JSON object or array.
fn is_document(text: &[u8]) -> bool {
    let starts_well = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
    let nothing_odd = str::from_utf8(text).is_ok();
    starts_well && nothing_odd && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_value_comes_back_exactly(value in any_value()) {
        let (form, blob) = encode(&value);
        prop_assert_eq!(matches!(blob, Cow::Borrowed(_)), form == Form::Raw);
        prop_assert_eq!(decode(form, &blob), Ok(value));
    }

    #[test]
    fn json_is_recognized_as_by_an_independent_parser(value in any_value()) {
        prop_assert_eq!(guess(&value) == Form::CompactNewline, is_document(&value));
    }

    #[test]
    fn json_is_laid_out_if_and_only_if_it_has_no_white_space_of_its_own(value in any_value()) {
        let text = value.strip_suffix(b"\n").unwrap_or(&value);
        let (form, blob) = encode(&value);
        let compact = is_document(text) && decode(Form::Compact, text).as_deref() == Ok(text);
        prop_assert_eq!(form != Form::Raw, compact);
        prop_assert_eq!(form == Form::CompactNewline, compact && value.ends_with(b"\n"));
        if compact {
            prop_assert_eq!(guess(&blob), Form::CompactNewline);
        }
    }

    #[test]
    fn the_layout_means_the_same_and_is_the_usual_one(text in json("")) {
        let (form, blob) = encode(text.as_bytes());
        prop_assert_eq!(form, Form::Compact);
        // An independent layout; it differs where numbers and escapes are normalized or names repeat.
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(&serde_json::from_slice::<Value>(&blob).expect("still JSON"), &value);
            if serde_json::to_string(&value).expect("a value") == text {
                let usual = serde_json::to_string_pretty(&value).expect("a value") + "\n";
                prop_assert_eq!(str::from_utf8(&blob), Ok(usual.as_str()));
            }
        }
    }

    #[test]
    fn a_file_laid_out_by_a_person_is_read_in_kube_apiservers_form(text in json(" \n\t")) {
        prop_assert_eq!(guess(text.as_bytes()), Form::CompactNewline);
        let value = decode(Form::CompactNewline, text.as_bytes()).expect("JSON");
        let (form, blob) = encode(&value);
        prop_assert_eq!(form, Form::CompactNewline);
        prop_assert_eq!(decode(form, &blob), Ok(value));
    }
}

#[test]
fn the_forms_of_the_design_hold_by_example() {
    for (value, form) in [
        ("", Form::Raw),
        ("\n", Form::Raw),
        ("{}", Form::Compact),
        ("{}\n", Form::CompactNewline),
        ("[]\n", Form::CompactNewline),
        ("{}\n\n", Form::Raw),
        ("{ }", Form::Raw),
        (" {}", Form::Raw),
        ("{\"a\": 1}", Form::Raw),
        ("\"text\"", Form::Raw),
        ("12", Form::Raw),
        ("[01]", Form::Raw),
        ("[1,]", Form::Raw),
        ("[1}", Form::Raw),
        ("{\"a\"}", Form::Raw),
        ("\u{feff}{}", Form::Raw),
        ("k8s\0\n\x0c\n\x02v1", Form::Raw),
        ("apiVersion: v1\n", Form::Raw),
    ] {
        assert_eq!(encode(value.as_bytes()).0, form, "{value:?}");
    }
    let value = r#"{"a":{"b":[1,{},"x y"],"b":[]},"c":null}"#;
    let blob = "{\n  \"a\": {\n    \"b\": [\n      1,\n      {},\n      \"x y\"\n    ],\n    \"b\": []\n  },\n  \"c\": null\n}\n";
    assert_eq!(str::from_utf8(&encode(value.as_bytes()).1), Ok(blob));
}

#[test]
fn objects_of_a_real_kubernetes_come_back_and_look_as_usual() {
    for object in KUBERNETES {
        let (form, blob) = encode(object.as_bytes());
        assert_eq!(form, Form::CompactNewline);
        assert_eq!(decode(form, &blob).as_deref(), Ok(object.as_bytes()));
        let value: Value = serde_json::from_str(object).expect("a Kubernetes object");
        let usual = serde_json::to_string_pretty(&value).expect("a value") + "\n";
        // Go escapes these, and escapes are kept.
        let usual = usual.replace('<', "\\u003c").replace('>', "\\u003e");
        assert_eq!(str::from_utf8(&blob), Ok(usual.as_str()));
    }
}

#[test]
fn nesting_is_followed_to_the_limit_and_no_further() {
    let nested = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
    // The innermost pair is empty, which adds no level.
    let deepest = format!("{{\"a\":\"{}\",\"b\":{}}}", "x".repeat(100_000), nested(MAX_NESTING));
    let (form, blob) = encode(deepest.as_bytes());
    assert_eq!(form, Form::Compact);
    assert_eq!(decode(form, &blob).as_deref(), Ok(deepest.as_bytes()));
    let too_deep = deepest.replace("[]", "[[]]");
    assert_eq!(encode(too_deep.as_bytes()).0, Form::Raw);
    assert_eq!(guess(nested(1_000_000).as_bytes()), Form::Raw);
}

#[test]
fn a_value_that_indentation_would_blow_up_is_kept_raw() {
    let value = format!("{}{}{}", "[".repeat(500), vec!["1"; 100_000].join(","), "]".repeat(500));
    assert_eq!(encode(value.as_bytes()).0, Form::Raw);
    let small = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    assert_eq!(encode(small.as_bytes()).0, Form::Compact);
    let deep = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    assert_eq!(encode(deep.as_bytes()).0, Form::Raw);
}

#[test]
fn a_blob_in_another_form_than_recorded_is_an_error_with_its_place() {
    let error = |form, offset, expected| Err(DecodeError { form, offset, expected });
    assert_eq!(decode(Form::Compact, b"kind: Pod\n"), error('c', 0, "a JSON object or array"));
    assert_eq!(decode(Form::CompactNewline, b"{\"a\":\n tru}"), error('n', 7, "true, false or null"));
    assert_eq!(decode(Form::Compact, b"[\"\xff\"]"), error('c', 2, "UTF-8"));
    assert_eq!(decode(Form::Compact, b"[1] 2"), error('c', 4, "the end"));
}

#[test]
fn every_form_has_its_letter() {
    for form in [Form::Raw, Form::Compact, Form::CompactNewline] {
        assert_eq!(Form::from_code(form.code()), Some(form));
    }
    assert_eq!(Form::from_code('x'), None);
}
