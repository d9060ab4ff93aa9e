//! The pod templates of heavens. Their definition keeps every field, so a misspelt one would only be noticed by its absence.

use gitcd::merge::schema::{Node, Schemas};
use gitcd::pull::admit::{self, Finding};
use serde_json::{Value, json};

/// How the problem of an unknown field starts, as in `trishanku-lint`.
const UNKNOWN: &str = "unknown field: it would be dropped";
/// Where a heaven has its template.
const TEMPLATE: &str = "spec.app.podTemplate";

/// Checks the templates of the heavens in one document, with lines in `text`.
pub(super) fn check(schemas: &Schemas, document: &Value, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    each(schemas, document, "", &mut findings);
    findings.into_iter().map(|finding| finding.located(text.as_bytes())).collect()
}

/// Whether a finding is about an unknown field.
pub(super) fn is_unknown_field(finding: &Finding) -> bool {
    finding.problem.starts_with(UNKNOWN)
}

fn each(schemas: &Schemas, document: &Value, path: &str, findings: &mut Vec<Finding>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    if let Some(items) = document["items"].as_array().filter(|_| kind.ends_with("List")) {
        let of_item = |(at, item)| each(schemas, item, &format!("{path}items[{at}]."), findings);
        return items.iter().enumerate().for_each(of_item);
    }
    if !kind.eq_ignore_ascii_case("TrishankuHeaven") {
        return;
    }
    let template = &document["spec"]["app"]["podTemplate"];
    if !template.is_object() {
        return;
    }
    let path = format!("{path}{TEMPLATE}");
    // A built-in kind with a pod template, to find unknown fields in it.
    let object = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {}, "template": template});
    for found in admit::check(schemas, object.to_string().as_bytes()) {
        let Some(below) = found.field.strip_prefix("template") else { continue };
        let problem = if found.is_warning { unknown(schemas, &found.field) } else { found.problem };
        findings.push(Finding::of_field(&format!("{path}{below}"), problem));
    }
    if template["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
        findings.push(Finding::of_field(&format!("{path}.spec.containers"), "Required value: a pod needs a container"));
    }
}

/// The problem of an unknown field, given its path in a `PodTemplate`.
fn unknown(schemas: &Schemas, field: &str) -> String {
    let meant = meant(schemas, field).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
    format!("{UNKNOWN}{meant}")
}

/// Returns the known field that differs in one letter.
fn meant(schemas: &Schemas, field: &str) -> Option<String> {
    let (above, name) = field.rsplit_once('.')?;
    let node = above.split('.').try_fold(schemas.of("v1", "PodTemplate")?, |node: Node<'_>, step| {
        let (name, item) = step.split_once('[').map_or((step, false), |(name, _)| (name, true));
        let below = node.field(name)?;
        if item { below.items() } else { Some(below) }
    })?;
    variants(name).find(|variant| node.field(variant).is_some())
}

/// The names with one letter more, one fewer, another one, or two swapped.
fn variants(name: &str) -> impl Iterator<Item = String> {
    let letters: Vec<char> = name.chars().collect();
    let join = |parts: [&[char]; 3]| parts.concat().into_iter().collect::<String>();
    (0..=letters.len()).flat_map(move |at| {
        let (before, after) = letters.split_at(at);
        let mut found = Vec::new();
        if let [first, second, rest @ ..] = after {
            found.push(join([before, &[*second, *first], rest]));
        }
        if let [_, rest @ ..] = after {
            found.push(join([before, &[], rest]));
        }
        for letter in ('a'..='z').chain('A'..='Z') {
            found.push(join([before, &[letter], after]));
            if let [_, rest @ ..] = after {
                found.push(join([before, &[letter], rest]));
            }
        }
        found
    })
}
