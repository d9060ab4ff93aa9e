//! Comparison with other readers: that of Kubernetes, and one of YAML 1.2 (`hack/yaml`, built with Go).

use std::io::Write;
use std::process::{Command, Stdio};

use rand::SeedableRng;
use rand::prelude::*;
use serde_json::Value as Json;

use super::*;

/// Returns what the readers make of each document; `None` without a Go toolchain.
fn ask(documents: &[Vec<u8>]) -> Option<Vec<Json>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hack/yaml");
    Command::new("go").arg("version").output().ok()?;
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("yaml");
    let mut compile = Command::new("go");
    compile.args(["build", "-o"]).arg(&program).arg(".").current_dir(folder);
    compile.envs([("GOFLAGS", "-mod=readonly"), ("GOWORK", "off"), ("CGO_ENABLED", "0")]);
    assert!(compile.status().unwrap().success(), "hack/yaml does not build");
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut input = Vec::new();
    for document in documents {
        input.extend(u32::try_from(document.len()).unwrap().to_be_bytes());
        input.extend(document);
    }
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let answers: Vec<Json> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(answers.len(), documents.len());
    Some(answers)
}

/// Formats equal values as the same text: numbers by value, fields by name.
fn normal(value: &Json) -> String {
    match value {
        Json::Number(number) => format!("{:?}", number.as_f64()),
        Json::Array(items) => format!("[{}]", items.iter().map(normal).collect::<Vec<_>>().join(",")),
        Json::Object(map) => {
            let mut fields: Vec<_> = map.iter().map(|(name, value)| format!("{name:?}:{}", normal(value))).collect();
            fields.sort();
            format!("{{{}}}", fields.join(","))
        }
        other => other.to_string(),
    }
}

fn ours(document: &[u8]) -> Result<String, Unreadable> {
    let (value, _) = Value::read(document)?;
    Ok(normal(&serde_json::from_slice(&value.write(Syntax::Json)).unwrap()))
}

const BEGINNINGS: [&str; 6] = ["", "a: ", "a:\n  ", "a:\n- ", "a: {", "a: ["];

const PIECES: [&str; 100] = [
    "a",
    "b",
    "key",
    "yes",
    "no",
    "y",
    "on",
    "0o14",
    "014",
    "0x1F",
    "1_000",
    "1.0",
    "1e3",
    ".5",
    ".inf",
    "~",
    "null",
    "\"q\"",
    "'s'",
    "\"a: b\"",
    "'it''s'",
    " ",
    "  ",
    "    ",
    "\n",
    "\n",
    "\n",
    "\n  ",
    "\n    ",
    "\n- ",
    "\n  - ",
    "- ",
    "- ",
    "- ",
    ": ",
    ": ",
    ": ",
    ":",
    "? ",
    "?",
    "#",
    "# c",
    " # c",
    "|",
    "|-",
    "|+",
    "|2",
    ">",
    ">-",
    "&x ",
    "*x",
    "&y ",
    "*y",
    "!!str ",
    "!!int ",
    "! ",
    "!t ",
    "!!binary ",
    "<<: ",
    "<<",
    "{",
    "}",
    "[",
    "]",
    ",",
    ", ",
    "---",
    "\n---\n",
    "...",
    "\n...\n",
    "%",
    "@",
    "`",
    "\t",
    "\n\t",
    "\"",
    "'",
    "\\n",
    "\\",
    "\r\n",
    "é",
    "12",
    "12:30",
    "2001-01-01",
    "a:\n",
    "a: ",
    "b: ",
    "c: ",
    "{a: b}",
    "[a, b]",
    "{a: 1, b: [x]}",
    "-",
    "=",
    "a b",
    "0b101",
    "-1",
    "+1",
    "\u{2028}",
    "\u{feff}",
    "\\/",
];

#[test]
fn what_is_read_is_what_kubernetes_reads() {
    let mut random = StdRng::seed_from_u64(1);
    let documents: Vec<Vec<u8>> = (0..30_000)
        .map(|_| {
            let mut text = (*BEGINNINGS.choose(&mut random).unwrap()).to_owned();
            (0..random.random_range(1..14)).for_each(|_| text.push_str(PIECES.choose(&mut random).unwrap()));
            text.into_bytes()
        })
        // Unlike Kubernetes, gitcd reads text that starts like JSON only as JSON.
        .filter(|document| !document.trim_ascii_start().starts_with(b"{"))
        .collect();
    let Some(answers) = ask(&documents) else { return eprintln!("not compared: there is no `go` in PATH") };
    let mut read = 0;
    for (document, answer) in documents.iter().zip(&answers) {
        // Documents that only gitcd rejects: several documents, separators, trailing text.
        let Ok(ours) = ours(document) else { continue };
        let text = String::from_utf8_lossy(document);
        let kube = answer.get("kube").filter(|value| value.is_object());
        assert_eq!(Some(ours), kube.map(normal), "{text:?}: {answer}");
        read += 1;
    }
    assert!(read > 2_000, "only {read} documents were read");
}

const HARD: [&str; 70] = [
    "yes",
    "no",
    "y",
    "N",
    "on",
    "OFF",
    "true",
    "null",
    "~",
    "",
    "0",
    "1",
    "-1",
    "+1",
    "0o7",
    "010",
    "0x1",
    "1e3",
    "1E5",
    ".5",
    "5.",
    ".inf",
    ".NaN",
    "1_000",
    "1:30",
    "1:30:45.5",
    "2001-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "=",
    "<<",
    "!x",
    "&a",
    "*a",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "a:",
    "?",
    "|",
    ">",
    "%a",
    "@a",
    "`a",
    "{a}",
    "[a]",
    "a,b",
    "'a",
    "\"a",
    "a\nb",
    "a\n",
    "\na",
    " a",
    "a ",
    "\ta",
    "a\tb",
    "a\u{85}b",
    "a\u{2028}b",
    "\u{feff}a",
    "\u{1}",
    "\u{7f}",
    "\u{fffe}",
    "é",
    "😀",
    "a\\b",
    "---",
    "a\n---\nb",
    "a\r\nb",
    "x\n\n",
    "  \n a\n",
];

#[test]
fn what_is_written_is_read_alike_by_readers_of_both_versions() {
    let mut random = StdRng::seed_from_u64(2);
    let of_text = |text: &str| serde_json::json!({ "v": text, text: { "l": [text, [text], { text: text }] } });
    let mut values: Vec<Json> = HARD.into_iter().map(of_text).collect();
    for number in ["0", "-0", "1.0", "1.50", "1e3", "-1e-7", "123456789012345678901234567890", "18446744073709551615"] {
        values.push(serde_json::from_str(&format!("{{\"v\":{number}}}")).unwrap());
    }
    for _ in 0..5_000 {
        let parts: Vec<&str> = (0..random.random_range(0..6)).map(|_| *HARD.choose(&mut random).unwrap()).collect();
        values.push(of_text(&parts.join(["", " ", "\n"].choose(&mut random).unwrap())));
    }
    let mut documents = Vec::new();
    for value in &values {
        let inner = Value::parse(value.to_string().as_bytes()).unwrap().0;
        documents.push(inner.write(Syntax::Yaml));
        let mut outer = Map::default();
        outer.set("z", inner);
        documents.push(rewrite(b"z: {}  # in braces\n", &Value::Map(outer)));
    }
    let Some(answers) = ask(&documents) else { return eprintln!("not compared: there is no `go` in PATH") };
    for (place, (document, answer)) in documents.iter().zip(&answers).enumerate() {
        let value = &values[place / 2];
        let wanted = if place % 2 == 0 { normal(value) } else { normal(&serde_json::json!({ "z": value })) };
        let text = String::from_utf8_lossy(document);
        assert_eq!(ours(document).as_ref(), Ok(&wanted), "{text}");
        for reader in ["kube", "later"] {
            assert_eq!(answer.get(reader).map(normal).as_ref(), Some(&wanted), "{reader}: {text}\n{answer}");
        }
    }
}
