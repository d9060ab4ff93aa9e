//! Field-by-field differences between two values of a key.

use std::collections::BTreeSet;

use gitcd_merge::secrecy::Exposure;
use gitcd_merge::value::Value;

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path, such as `spec.template.spec.containers[app].image`; empty for a value that is not an object.
    pub path: String,
    /// The old value as JSON; `None` if the field did not exist.
    pub from: Option<String>,
    /// The new value as JSON; `None` if the field does not exist any more.
    pub to: Option<String>,
}

/// List items are matched by the first of these fields that is unique in both lists, as in merges without a schema.
const NAMES: [&str; 5] = ["name", "type", "uid", "key", "ip"];
/// Field ownership: long, and rarely of interest.
const MANAGED: &str = "metadata.managedFields";

/// Compares two values; `None` is an absent value. A value that is not a JSON or YAML object is one field without a name.
pub fn between(from: Option<&[u8]>, to: Option<&[u8]>) -> Vec<Field> {
    let parse = |bytes: Option<&[u8]>| bytes.and_then(Value::parse).map(|(value, _)| value);
    let (one, other) = (parse(from), parse(to));
    let mut found = Vec::new();
    if one.is_none() && from.is_some() || other.is_none() && to.is_some() {
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if from != to {
            found.push(Field { path: String::new(), from: text(from), to: text(to) });
        }
        return found;
    }
    compare(String::new(), one.as_ref(), other.as_ref(), &mut found);
    found
}

/// Hides what must not be printed. Fields whose paths are cut to the same path become one.
pub fn hidden(fields: Vec<Field>, exposure: Exposure) -> Vec<Field> {
    let shown = fields.into_iter().map(|Field { path, from, to }| {
        let (from, to) = (exposure.value(&path, from), exposure.value(&path, to));
        Field { path: exposure.path(&path).to_owned(), from, to }
    });
    let mut shown: Vec<_> = shown.collect();
    shown.dedup_by(|later, field| {
        let is_one = exposure == Exposure::Identity && later.path == field.path && !exposure.shows(&field.path);
        if is_one {
            field.from = field.from.take().or(later.from.take());
            field.to = field.to.take().or(later.to.take());
        }
        is_one
    });
    shown
}

fn compare(path: String, one: Option<&Value>, other: Option<&Value>, found: &mut Vec<Field>) {
    if path == MANAGED {
        if shown(one) != shown(other) {
            let short = |value: Option<&Value>| value.map(|_| "…".to_owned());
            found.push(Field { path, from: short(one), to: short(other) });
        }
        return;
    }
    match (one, other) {
        (None, None) => {}
        (one, other) if is_map(one) && is_map(other) && (one.is_some() && other.is_some() || path.is_empty()) => {
            maps(&path, one, other, found);
        }
        (Some(Value::List(one)), Some(Value::List(other))) => match name_of(one, other) {
            Some(name) => named(&path, name, (one, other), found),
            None => lists(path, one, other, found),
        },
        (one, other) => {
            let (from, to) = (shown(one), shown(other));
            if from != to {
                found.push(Field { path, from, to });
            }
        }
    }
}

/// Returns whether a value is a map; an absent value counts as an empty one.
fn is_map(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.as_map().is_some())
}

fn maps(path: &str, one: Option<&Value>, other: Option<&Value>, found: &mut Vec<Field>) {
    let names = |value: Option<&Value>| -> Vec<String> {
        let map = value.and_then(Value::as_map);
        map.map(|map| map.iter().map(|(name, _)| name.into_owned()).collect()).unwrap_or_default()
    };
    let (ours, theirs) = (names(one), names(other));
    let known: BTreeSet<&String> = ours.iter().collect();
    for name in ours.iter().chain(theirs.iter().filter(|name| !known.contains(name))) {
        let get = |value: Option<&'_ Value>| value.and_then(|value| value.at(&[name])).cloned();
        compare(joined(path, name), get(one).as_ref(), get(other).as_ref(), found);
    }
}

fn joined(path: &str, name: &str) -> String {
    // Names of labels and annotations may contain dots.
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match (is_plain, path.is_empty()) {
        (true, true) => name.to_owned(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{name:?}]"),
    }
}

/// Returns the field that identifies the items of both lists, if any.
fn name_of(one: &[Value], other: &[Value]) -> Option<&'static str> {
    let identifies = |name: &str, items: &[Value]| {
        let mut seen = BTreeSet::new();
        items
            .iter()
            .all(|item| item.at(&[name]).and_then(Value::as_text).is_some_and(|text| seen.insert(text.into_owned())))
    };
    if one.is_empty() && other.is_empty() {
        return None;
    }
    NAMES.into_iter().find(|name| identifies(name, one) && identifies(name, other))
}

fn named(path: &str, name: &str, (one, other): (&[Value], &[Value]), found: &mut Vec<Field>) {
    let called = |item: &Value| item.at(&[name]).and_then(Value::as_text).unwrap_or_default().into_owned();
    let get = |items: &'_ [Value], wanted: &str| items.iter().find(|item| called(item) == wanted).cloned();
    let before = found.len();
    for item in one.iter().map(called).chain(other.iter().map(called).filter(|item| get(one, item).is_none())) {
        compare(format!("{path}[{item}]"), get(one, &item).as_ref(), get(other, &item).as_ref(), found);
    }
    if found.len() == before && !one.iter().map(called).eq(other.iter().map(called)) {
        let order = |items: &[Value]| Some(format!("[{}]", items.iter().map(called).collect::<Vec<_>>().join(", ")));
        found.push(Field { path: format!("{path} (order)"), from: order(one), to: order(other) });
    }
}

fn lists(path: String, one: &[Value], other: &[Value], found: &mut Vec<Field>) {
    if one.len() == other.len() {
        for (at, (one, other)) in one.iter().zip(other).enumerate() {
            compare(format!("{path}[{at}]"), Some(one), Some(other), found);
        }
        return;
    }
    let text = |items: &[Value]| shown(Some(&Value::List(items.to_vec())));
    found.push(Field { path, from: text(one), to: text(other) });
}

/// Formats a value as JSON on one line.
fn shown(value: Option<&Value>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(&value.write(gitcd_merge::value::Syntax::Json)).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(from: Option<&str>, to: Option<&str>) -> Vec<String> {
        let fields = between(from.map(str::as_bytes), to.map(str::as_bytes));
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        fields.into_iter().map(|field| format!("{}: {} > {}", field.path, text(field.from), text(field.to))).collect()
    }

    #[test]
    fn fields_are_compared_and_items_by_their_names() {
        let one = r#"{"a":1,"b":{"c":"x","d.e/f":2},"l":[{"name":"p","i":1},{"name":"q"}],"n":[1,2],"g":[1]}"#;
        let other = r#"{"b":{"c":"y","d.e/f":3},"l":[{"name":"q"},{"name":"p","i":2},{"name":"r"}],"n":[1,3],"g":[1,2],"h":{"k":1}}"#;
        assert_eq!(
            differences(Some(one), Some(other)),
            [
                "a: 1 > -",
                "b.c: \"x\" > \"y\"",
                "b[\"d.e/f\"]: 2 > 3",
                "l[p].i: 1 > 2",
                "l[r]: - > {\"name\":\"r\"}",
                "n[1]: 2 > 3",
                "g: [1] > [1,2]",
                "h: - > {\"k\":1}",
            ]
        );
        assert!(differences(Some(one), Some(one)).is_empty());
    }

    #[test]
    fn created_and_deleted_objects_are_shown_by_their_top_level_fields() {
        assert_eq!(differences(None, Some("{\"a\":{\"b\":1},\"c\":2}")), ["a: - > {\"b\":1}", "c: - > 2"]);
        assert_eq!(differences(Some("a: 1\n"), None), ["a: 1 > -"]);
    }

    #[test]
    fn what_must_not_be_printed_is_hidden() {
        let one =
            r#"{"kind":"Secret","metadata":{"name":"s","annotations":{"a.b/c":"{x}"}},"data":{"k":"x"},"type":"t"}"#;
        let other = one.replace('x', "y").replace("\"t\"", "\"u\"");
        let printed = |from: Option<&str>, exposure| {
            let fields = hidden(between(from.map(str::as_bytes), Some(other.as_bytes())), exposure);
            let text = |text: Option<String>| text.unwrap_or_else(|| "-".into());
            let line = |field: Field| format!("{}: {} > {}", field.path, text(field.from), text(field.to));
            fields.into_iter().map(line).collect::<Vec<_>>()
        };
        let annotation = "metadata.annotations[\"a.b/c\"]: (secret) > (secret)";
        let names = [annotation, "data.k: (secret) > (secret)", "type: \"t\" > \"u\""];
        assert_eq!(printed(Some(one), Exposure::Names), names);
        let created = ["kind: - > \"Secret\"", "metadata: - > (secret)", "data: - > (secret)", "type: - > \"u\""];
        assert_eq!(printed(None, Exposure::Names), created);
        let identity = [annotation, "data: (secret) > (secret)", "type: (secret) > (secret)"];
        assert_eq!(printed(Some(one), Exposure::Identity), identity);
        let fields =
            hidden(between(Some(br#"{"spec":{"a":1}}"#), Some(br#"{"spec":{"a":2,"b":3}}"#)), Exposure::Identity);
        assert_eq!(fields.len(), 1, "{fields:?}");
    }

    #[test]
    fn a_change_of_order_alone_is_shown_as_such() {
        let (one, other) = (r#"{"l":[{"name":"p"},{"name":"q"}]}"#, r#"{"l":[{"name":"q"},{"name":"p"}]}"#);
        assert_eq!(differences(Some(one), Some(other)), ["l (order): [p, q] > [q, p]"]);
    }

    #[test]
    fn a_value_that_is_no_object_is_one_field_and_managed_fields_are_one_too() {
        assert_eq!(differences(Some("x"), Some("y")), [": x > y"]);
        assert_eq!(differences(Some("x"), None), [": x > -"]);
        let with = |manager: &str| format!(r#"{{"metadata":{{"managedFields":[{{"manager":"{manager}"}}]}}}}"#);
        assert_eq!(differences(Some(&with("a")), Some(&with("b"))), ["metadata.managedFields: … > …"]);
    }
}
