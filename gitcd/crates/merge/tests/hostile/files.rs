//! Files that a reader of YAML or JSON may find expensive.

use super::each;

/// Returns files of about `n` bytes, each with its name.
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub(crate) fn files(n: usize) -> Vec<(&'static str, String)> {
    let repeated = |s: &str| s.repeat(n / s.len());
    let mut all = vec![
        ("x: [[[[", format!("x: {}", repeated("["))),
        ("x: {{{{", format!("x: {}", repeated("{"))),
        ("x: [{[{", format!("x: {}", repeated("[{"))),
        ("x: {a: {a:", format!("x: {}", repeated("{a: "))),
        ("- - - -", repeated("- ")),
        ("x:\\n- - - -", format!("x:\n{}", repeated("- "))),
        ("? ? ? ?", repeated("? ")),
        ("? - ? -", repeated("? - ")),
        (": : : :", repeated(": ")),
        ("flow list", format!("x: [{}]", repeated("a,"))),
        ("flow list nl", format!("x: [{}]", repeated("a,\n"))),
        ("flow map", format!("x: {{{}}}", each(n / 10, |i| format!("k{i:06}: ,")))),
        ("flow pairs", format!("x: [{}]", repeated("a: b,"))),
        ("flow ?", format!("x: [{}]", repeated("? ,"))),
        ("long scalar", format!("x: {}", repeated("a"))),
        ("many words", format!("x: {}", repeated("a "))),
        ("multiline plain", format!("x: {}", repeated("a\n  "))),
        ("multiline dq", format!("x: \"{}\"", repeated("a\n  "))),
        ("multiline sq", format!("x: '{}'", repeated("a\n  "))),
        ("dq escapes", format!("x: \"{}\"", repeated("\\n"))),
        ("dq unterminated", format!("x: \"{}", repeated("a\n "))),
        ("dq u escapes", format!("x: \"{}\"", repeated("\\u0041"))),
        ("sq quotes", format!("x: '{}'", repeated("''"))),
        ("many dq", format!("x:\n{}", repeated("- \"a\"\n"))),
        ("many flow", format!("x:\n{}", repeated("- []\n"))),
        ("flow dq", format!("x: [{}]", repeated("\"a\","))),
        ("flow dq lines", format!("x: [{}]", repeated("\"a\",\n"))),
        ("literal", format!("x: |\n{}", repeated(" a\n"))),
        ("literals", format!("x:\n{}", repeated("- |\n a\n"))),
        ("literals tab", format!("x:\n{}", repeated("- |1\n \tb\n"))),
        ("literal blank", format!("x: |\n{}", repeated("\n"))),
        ("literal blanks", format!("x: |\n{}", repeated("  \n"))),
        ("literal open", format!("x: |\n{}", repeated(" a\n").trim_end())),
        ("literals open", format!("x:\n{}", repeated("- |\n a\n").trim_end())),
        ("folded", format!("x: >\n{}", repeated(" a\n"))),
        ("comments", repeated("# a\n")),
        ("comments end", format!("x: 1\n{}", repeated("# a\n"))),
        ("comment long", format!("x: 1 #{}", repeated("a"))),
        ("comments in", format!("x:\n{}", repeated("# a\n- b\n"))),
        ("comments flow", format!("x: [\n{}]", repeated("a, # b\n"))),
        ("comments before key", format!("{}x: 1\n", repeated("# a\n"))),
        ("comments nested", repeated(" # a\n")),
        ("anchors", format!("x:\n{}", each(n / 12, |i| format!("- &a{i:06} b\n")))),
        ("aliases", format!("x: &a b\ny:\n{}", repeated("- *a\n"))),
        ("anchor same", format!("x:\n{}", repeated("- &a b\n"))),
        ("tags", format!("x:\n{}", repeated("- !!str b\n"))),
        ("tag long", format!("x: !{} b", repeated("a"))),
        ("tag verbatim", format!("x: !<{}> b", repeated("a"))),
        ("tag pct", format!("x: !{} b", repeated("%41"))),
        ("anchor long", format!("x: &{} b", repeated("a"))),
        ("tag directives", format!("{}---\nx: 1\n", each(n / 20, |i| format!("%TAG !a{i:06}! a\n")))),
        ("directives", format!("{}---\nx: 1\n", repeated("%FOO a\n"))),
        ("documents", repeated("---\nx: 1\n")),
        ("document ends", format!("x: 1\n{}", repeated("...\n"))),
        ("document starts", repeated("---\n")),
        ("blank lines", format!("x: 1\n{}", repeated("\n"))),
        ("blank lines first", format!("{}x: 1\n", repeated("\n"))),
        ("blank line sp", format!("x:\n{} 1\n", repeated("  \n"))),
        ("spaces", format!("x:{}1\n", repeated(" "))),
        ("spaces lead", format!("{}x: 1\n", repeated(" "))),
        ("tabs", format!("x:\t{}1\n", repeated("\t"))),
        ("tabs in dq", format!("x: \"{}\"", repeated("a\n\t"))),
        ("list tabs", format!("x:\n{}", repeated("- a\t\n"))),
        ("deep block", each((2 * n).isqrt(), |i| format!("{}a:\n", " ".repeat(i)))),
        ("deep block seq", each((2 * n).isqrt(), |i| format!("{}-\n", " ".repeat(i)))),
        ("many keys", each(n / 10, |i| format!("k{i:06}: 1\n"))),
        ("same keys", repeated("k: 1\n")),
        ("big int", format!("x: {}", repeated("9"))),
        ("big float", format!("x: 1.{}", repeated("9"))),
        ("big exp", format!("x: 1e{}", repeated("9"))),
        ("big hex", format!("x: 0x{}", repeated("f"))),
        ("big bin", format!("x: 0b{}", repeated("1"))),
        ("big oct", format!("x: 0o{}", repeated("7"))),
        ("big _", format!("x: 1{}", repeated("_1"))),
        ("colons", format!("x: {}", repeated(":a"))),
        ("dashes", format!("x: {}", repeated("-"))),
        ("dashes lines", format!("x: a{}", repeated("\n -"))),
        ("hash words", format!("x: {}", repeated("a#"))),
        ("question flow", format!("x: [{}", repeated("? ["))),
        ("close", format!("x: {}", repeated("]"))),
        ("commas", format!("x: [{}]", repeated(","))),
        ("json deep", format!("{{\"x\":{}", repeated("["))),
        ("json deep obj", repeated("{\"a\":")),
        ("json string", format!("{{\"x\":\"{}\"}}", repeated("a"))),
        ("json escapes", format!("{{\"x\":\"{}\"}}", repeated("\\u0041"))),
        ("json number", format!("{{\"x\":{}}}", repeated("9"))),
        ("json keys", format!("{{{}\"x\":1}}", each(n / 14, |i| format!("\"k{i:07}\":1,")))),
        ("json same keys", format!("{{{}\"x\":1}}", repeated("\"k\":1,"))),
        ("json list", format!("{{\"x\":[{}1]}}", repeated("1,"))),
        ("json lists", format!("{{\"x\":[{}1]}}", repeated("[],"))),
        ("json space", format!("{{\"x\":{}1}}", repeated(" "))),
        ("ls", format!("x:\n{}", repeated("- a: \"x\u{2028}y\"\n"))),
        ("cr", format!("x:\n{}", repeated("- a\r"))),
        ("merge keys", format!("a: &a {{x: 1}}\nb:\n{}", repeated("  <<: *a\n"))),
        ("merge list", format!("a: &a {{x: 1}}\nb:\n  <<: [{}]", repeated("*a,"))),
        ("explicit keys", repeated("? a\n: b\n")),
        ("explicit keys distinct", each(n / 14, |i| format!("? k{i:06}\n: b\n"))),
        ("multi-line key", format!("x: 1\n{}: 2", repeated("a "))),
        ("simple keys in flow", format!("{{{}", repeated("a, "))),
        ("dq flow unterminated", format!("x: [{}", repeated("\"a\" "))),
        ("wide indent seq", format!("x:\n{}", repeated("          - a\n"))),
        ("bom", format!("x: 1\n{}", repeated("\u{feff}"))),
        ("alias bomb", {
            let level = |i| format!("a{0}: &a{0} [*a{i}, *a{i}, *a{i}, *a{i}, *a{i}]\n", i + 1);
            "a0: &a0 [x, x, x, x, x]\n".to_owned() + &each(n / 50, level)
        }),
        ("merge chain", {
            let level = |i| format!("a{0}: &a{0} {{<<: *a{i}, k{0}: 1}}\n", i + 1);
            "a0: &a0 {k0: 1}\n".to_owned() + &each(n / 40, level)
        }),
        ("alias chain", {
            let level = |i| format!("a{0}: &a{0} [*a{i}]\n", i + 1);
            "a0: &a0 [x]\n".to_owned() + &each(n / 40, level)
        }),
    ];
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";
    all.extend([
        ("cm many data numbers", format!("{head}data:\n{}", each(n / 14, |i| format!("  k{i:06}: 1\n")))),
        ("cm ok data", format!("{head}data:\n{}", each(n / 14, |i| format!("  k{i:06}: a\n")))),
        ("cm bad flow", format!("{head}data: [{}", repeated("["))),
        (
            "cm labels",
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels:\n{}",
                each(n / 14, |i| format!("    k{i:06}: a\n"))
            ),
        ),
        ("cm text", format!("{head}data:\n  x: |\n{}", repeated("    a\n"))),
        (
            "cm before",
            format!(
                "{}apiVersion: v1\nkind: ConfigMap\nmetadata: {{}}\n",
                each(n / 14, |i| format!("k{i:06}: {{}}\n"))
            ),
        ),
        ("binaryData list", format!("{head}binaryData:\n  x: [{}]", repeated("1,"))),
    ]);
    all
}
