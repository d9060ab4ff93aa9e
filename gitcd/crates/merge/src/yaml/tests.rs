use granit_parser::ScalarStyle;
use proptest::prelude::*;

use super::*;

fn json(text: &str) -> Result<String, String> {
    Value::read(text.as_bytes())
        .map(|(value, _)| String::from_utf8(value.write(Syntax::Json)).unwrap())
        .map_err(|error| error.to_string())
}

fn rewritten(original: &str, new: &str) -> String {
    let new = Value::parse(new.as_bytes()).unwrap().0;
    String::from_utf8(rewrite(original.as_bytes(), &new)).unwrap()
}

#[test]
fn scalars_are_what_kubernetes_takes_them_for() {
    for (yaml, expected) in [
        ("yes", "true"),
        ("y", "true"),
        ("ON", "true"),
        ("off", "false"),
        ("N", "false"),
        ("yES", r#""yES""#),
        ("'yes'", r#""yes""#),
        ("!!str yes", r#""yes""#),
        ("! yes", r#""yes""#),
        ("!!bool yes", "true"),
        ("~", "null"),
        ("", "null"),
        ("NULL", "null"),
        ("010", "8"),
        ("0o14", "12"),
        ("089", "89"),
        ("0x1F", "31"),
        ("0b101", "5"),
        ("-0b101", "-5"),
        ("0b-101", "-5"),
        ("1_000", "1000"),
        ("_1", r#""_1""#),
        ("+1", "1"),
        ("1.50", "1.50"),
        ("1.0", "1"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("1_0.5", "10.5"),
        ("1e21", "1e+21"),
        ("1e400", r#""1e400""#),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709551616"),
        ("12:30:45", r#""12:30:45""#),
        ("2001-01-01", r#""2001-01-01""#),
        ("!!timestamp 2001-01-01", r#""2001-01-01""#),
        ("!!float 1", "1"),
        ("!!int '7'", "7"),
        ("!!binary aGk=", r#""hi""#),
        ("!own 1", r#""1""#),
        ("=", r#""=""#),
        ("<<", r#""<<""#),
    ] {
        assert_eq!(json(&format!("a: {yaml}\n")), Ok(format!("{{\"a\":{expected}}}")), "{yaml}");
    }
    for yaml in [".inf", "-.INF", ".nan", "!!int x", "!!bool 1", "!!timestamp x", "!!binary ?", "*a", "\"\\ud800\""] {
        assert!(json(&format!("a: {yaml}\n")).is_err(), "{yaml}");
    }
}

#[test]
fn names_merges_and_aliases_are_those_of_kubernetes() {
    for (yaml, expected) in [
        ("8080: a\noff: b\n1.5: c\non: d\n", r#"{"8080":"a","false":"b","1.5":"c","true":"d"}"#),
        ("0x10: a\n1e7: b\n", r#"{"16":"a","1e+07":"b"}"#),
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, 'y': 3}\n", r#"{"a":{"x":1,"true":2},"b":{"x":1,"true":2,"y":3}}"#),
        ("a: &a {x: 1}\nb:\n  x: 2\n  <<: *a\n", r#"{"a":{"x":1},"b":{"x":1}}"#),
        (
            "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n",
            r#"{"a":{"x":1},"b":{"x":2,"z":3},"c":{"x":1,"z":3}}"#,
        ),
        ("\u{feff}a: 1\n", r#"{"a":1}"#),
        ("%YAML 1.1\n---\na: 1\n...\n", r#"{"a":1}"#),
        ("a: 1\n---\n# nothing more\n", r#"{"a":1}"#),
        ("a: |\n  x\n  y", r#"{"a":"x\ny"}"#),
    ] {
        assert_eq!(json(yaml), Ok(expected.into()), "{yaml}");
    }
}

#[test]
fn what_kubernetes_does_not_read_is_refused_with_the_reason() {
    for (yaml, reason) in [
        ("a: 1\n---\nb: 2\n", "line 3: it has more than one document"),
        ("a: 1\nb: 2\na: 3\n", "line 3: it names the field \"a\" twice"),
        ("1: a\n'1': b\n", "line 2: it names the field \"1\" twice"),
        ("null: a\n", "line 1: null cannot be the name of a field; quote it"),
        ("a: 1\n? [x]\n: 2\n", "line 2: a list or a mapping cannot be the name of a field"),
        ("a: &a [*a]\n", "line 1: an anchor's value contains itself"),
        ("a: {<<: 1}\n", "line 1: \"<<\" needs a mapping or a list of mappings"),
        ("a:\n\tb: 1\n", "line 2: tabs disallowed within this context (block indentation)"),
        ("a: 1\n\t\nb: 2\n", "line 2: a tab character is used for indentation"),
        ("a: x\u{1}\n", "line 1: it has a control character; write it as an escape in double quotes (U+0001)"),
        ("a: \"\\/\"\n", "line 1: Kubernetes does not read the escape \"\\/\""),
        ("a: .inf\n", "line 1: JSON has no infinity and no NaN"),
        ("- a\n", "it is not an object"),
        ("{a: 1}", "it is not well-formed JSON"),
    ] {
        assert_eq!(json(yaml), Err(reason.into()), "{yaml}");
    }
    assert_eq!(Value::read(b"\xff\xfea\0:\0").unwrap_err().to_string(), "it is UTF-16; only UTF-8 is read");
}

#[test]
fn bombs_and_deep_nesting_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        bomb.extend([&format!("a{level}: &a{level} ["), below.trim_end_matches(", "), "]\n"]);
    }
    // Anything but linear time would take hours.
    assert!(json(&bomb).unwrap_err().contains("aliases"));
    let large = format!("a: &a \"{}\"\nl:\n{}", "x".repeat(500_000), "- *a\n".repeat(1000));
    assert!(json(&large).unwrap_err().contains("aliases"));
    for open in ["[", "{a: ", "- ", "? "] {
        let deep = format!("x: {}", open.repeat(1_000_000 / open.len()));
        assert!(json(&deep).is_err());
        assert!(json(&deep.replacen("x: ", "x:\n  ", 1)).is_err());
    }
}

const FILE: &str = "\
# Who keeps this: the tea team.
apiVersion: v1
kind: ConfigMap   # of the shop
metadata:
  name: shop
  labels: {app: shop, \"tier\": 'front'}

data:
  # Quotes matter.
  feature: \"yes\"
  debug: 'off'
  mode: 0644
  script: |
    echo one

    echo two  # not a comment

  last: plain text   # the end
";

#[test]
fn a_rewrite_keeps_the_lines_of_which_nothing_changed() {
    let json = json(FILE).unwrap();
    assert_eq!(
        rewritten(FILE, &json.replace(r#""name":"shop""#, r#""name":"shop","uid":"yes","generation":2"#)),
        FILE.replace("'front'}\n", "'front'}\n  uid: \"yes\"\n  generation: 2\n"),
        "fields are added"
    );
    assert_eq!(
        rewritten(FILE, &json.replace(r#""off""#, r#""it's on""#).replace(r#""plain text""#, r#""a\nb""#)),
        FILE.replace("'off'", "'it''s on'").replace("plain text  ", "\"a\\nb\"  "),
        "quotes stay"
    );
    assert_eq!(
        rewritten(FILE, &json.replace(r#","tier":"front""#, "").replace(r#""feature":"yes","#, "")),
        FILE.replace(", \"tier\": 'front'", "").replace("  feature: \"yes\"\n", ""),
        "fields are removed"
    );
    assert_eq!(
        rewritten(FILE, &json.replace(r"\n\necho two  # not a comment\n", r"\ntwo\n")),
        FILE.replace("\n    echo two  # not a comment\n", "    two\n"),
        "blocks stay blocks"
    );
}

#[test]
fn items_of_lists_are_found_again() {
    let file = "\
spec:
  containers:
  # The first.
  - name: a     # a
    image: one
  # The second.
  - image: two
    name: b
  args: [x, \"y\"]
  hosts:
    - one
    - two   # 2
";
    let value = json(file).unwrap();
    let new = value.replace(r#"{"name":"a","image":"one"}"#, r#"{"name":"a","image":"1.1"},{"name":"c"}"#);
    let expected = file.replace("image: one\n", "image: \"1.1\"\n  - name: c\n");
    assert_eq!(rewritten(file, &new), expected);
    let new = value.replace(r#"{"name":"a","image":"one"},"#, "").replace(r#""y"]"#, r#""y",true]"#);
    let expected = file.replace("  - name: a     # a\n    image: one\n", "").replace("\"y\"", "\"y\", true");
    assert_eq!(rewritten(file, &new), expected);
    let new = value.replace(r#""one","two"]"#, r#""zero","two","three"]"#);
    let expected = file.replace("    - one\n    - two   # 2\n", "    - zero\n    - two   # 2\n    - three\n");
    assert_eq!(rewritten(file, &new), expected);
    let new = value.replace(r#"{"image":"two","name":"b"}"#, r#"{"name":"b"}"#);
    let expected = file.replace("  - image: two\n    name: b\n", "  - name: b\n");
    assert_eq!(rewritten(file, &new), expected);
}

#[test]
fn line_ends_and_the_byte_order_mark_stay() {
    let file = "\u{feff}a: 1\r\nb: 2 # two\r\n";
    assert_eq!(rewritten(file, r#"{"a":"1","b":2,"c":[1]}"#), "\u{feff}a: \"1\"\r\nb: 2 # two\r\nc:\r\n- 1\r\n");
    assert_eq!(rewritten("a: 1", r#"{"a":1,"b":2}"#), "a: 1\nb: 2");
}

#[test]
fn blanks_at_the_end_of_a_block_go_with_it() {
    let file = "data:\n  text: |\n    one \n  other: 1\n";
    let new = r#"{"data":{"text":"two\n","other":1}}"#;
    assert_eq!(rewritten(file, new), "data:\n  text: |\n    two\n  other: 1\n");
    let new = r#"{"data":{"text":"one \n","other":1,"more":"x"}}"#;
    assert_eq!(rewritten(file, new), format!("{file}  more: x\n"));
}

/// Strings, numbers and collections that are hard to write.
fn any_value() -> impl Strategy<Value = serde_json::Value> {
    let word = proptest::sample::select(vec![
        "yes",
        "off",
        "a",
        "b c",
        "0o7",
        "1:30",
        "x: y",
        "- z",
        "#c",
        "",
        "two\nlines\n",
        "one\n\n two",
        " \n",
        "name",
        "é\u{2028}",
        "tab\there",
        "\u{1}",
        "\n",
        "a\n\n",
        "<<",
        "1e3",
        "2001-01-01",
        "~",
    ]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        (-9_i64..99).prop_map(Into::into),
        Just(serde_json::json!(1.5)),
        word.prop_map(Into::into),
        "[ -~\\n]{0,5}".prop_map(Into::into),
    ];
    let name = proptest::sample::select(vec!["a", "b", "name", "yes", "1", "x y", "c: d"]).prop_map(String::from);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = serde_json::Value> {
    proptest::collection::btree_map("[a-d]", any_value(), 1..5)
        .prop_map(|map| serde_json::Value::Object(map.into_iter().collect()))
}

/// Writes values in many styles: with comments, in braces, with different indentation.
struct Writer {
    state: u64,
    out: String,
}

impl Writer {
    fn choose(&mut self, of: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % of
    }

    fn end_line(&mut self) {
        let end = ["\n", "\n", " # of this\n", "\n\n", "\n# between\n"][self.choose(5) as usize];
        self.out.push_str(end);
    }

    fn inline(&mut self, value: &Value, indent: usize, is_item: bool) {
        let style = [ScalarStyle::Plain, ScalarStyle::SingleQuoted, ScalarStyle::DoubleQuoted][self.choose(3) as usize];
        if self.choose(3) > 0 {
            self.out.push(' ');
            self.out.push_str(&write::flow(value, style).unwrap());
            self.end_line();
        } else if is_item {
            self.out.push_str(&write::behind_dash(value, indent, style).unwrap());
            self.out.push('\n');
        } else {
            self.out.push_str(&write::behind_colon(value, indent, style).unwrap());
            self.out.push('\n');
        }
    }

    fn nested(&mut self, value: &Value, indent: usize, least: usize) -> bool {
        let is_full =
            value.as_map().is_some_and(|map| !map.is_empty()) || value.as_list().is_some_and(|list| !list.is_empty());
        if !is_full || self.choose(3) == 0 {
            return false;
        }
        self.end_line();
        let deeper = (self.choose(3) as usize).max(least);
        self.block(value, indent + deeper);
        true
    }

    fn block(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Map(map) => {
                for (name, value) in map.iter() {
                    self.out.push_str(&" ".repeat(indent));
                    self.out.push_str(&write::quoted(&name, ScalarStyle::Plain, false));
                    self.out.push(':');
                    if !self.nested(value, indent, usize::from(value.as_map().is_some())) {
                        self.inline(value, indent, false);
                    }
                }
            }
            Value::List(list) => {
                for value in list {
                    self.out.push_str(&" ".repeat(indent));
                    self.out.push('-');
                    if !self.nested(value, indent, 1) {
                        self.inline(value, indent, true);
                    }
                }
            }
            Value::Scalar(_) => unreachable!("collections are written in lines"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_was_rewritten_is_read_as_the_new_value(old in any_object(), new in any_object(), state: u64, keep: u8) {
        // Mostly, only a part is new.
        let mut wanted = old.clone();
        for (place, (name, value)) in new.as_object().unwrap().iter().enumerate() {
            if keep >> place & 1 == 0 {
                wanted[name] = value.clone();
            }
        }
        if keep & 0xc0 == 0 && wanted.as_object().unwrap().len() > 1 {
            let first = wanted.as_object().unwrap().keys().next().unwrap().clone();
            wanted.as_object_mut().unwrap().remove(&first);
        }
        let [old, wanted] = [old, wanted].map(|value| Value::parse(value.to_string().as_bytes()).unwrap().0);
        let mut writer = Writer { state, out: String::new() };
        writer.block(&old, 0);
        let text = writer.out;
        prop_assert!(Value::parse(text.as_bytes()).is_some_and(|(read, _)| read == old), "{text:?} is not {old:?}");
        prop_assert_eq!(rewrite(text.as_bytes(), &old), text.as_bytes(), "nothing changed");
        let result = String::from_utf8(rewrite(text.as_bytes(), &wanted)).unwrap();
        prop_assert!(Value::parse(result.as_bytes()).is_some_and(|(read, _)| read == wanted), "{text:?} {wanted:?} {result:?}");
        let shares = old.as_map().unwrap().iter().any(|(name, _)| wanted.at(&[&name]).is_some());
        // If a block scalar ends with a line of white space, what follows could become a part of it.
        let is_unclear = text.lines().any(|line| !line.is_empty() && line.trim().is_empty());
        prop_assert!(!shares || is_unclear || edited(&text, &wanted).is_some(), "written from scratch: {text:?}\n{}", wanted.excerpt(2000));
    }
}
