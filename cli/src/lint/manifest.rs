//! Findings about a manifest, in the words of a gitcd that rejects it.

use gitcd::merge::schema::Schemas;
use gitcd::pull::admit::{self, Admission, Finding};
use serde_json::Value;

use super::template;

/// Checks a file as gitcd does that finds it in a commit.
pub(super) fn of_branch(schemas: &Schemas, key: &str, text: &str) -> Vec<Finding> {
    let admission = Admission { schemas, is_kubernetes: true, completes: true };
    let findings = match admission.admit(key.as_bytes(), text.as_bytes(), None, || None) {
        Ok(_) => admit::check(schemas, text.as_bytes()),
        Err(findings) => findings,
    };
    located(findings, text)
}

/// Checks manifests outside a branch.
pub(super) fn of_manifest(schemas: &Schemas, text: &str) -> Vec<Finding> {
    let check = |document: &String| [of_document(schemas, document), of_templates(schemas, document)].concat();
    documents(text).iter().flat_map(check).collect()
}

/// Returns the unknown fields in pod templates of heavens.
pub(super) fn unknown_fields(schemas: &Schemas, text: &str) -> Vec<Finding> {
    let mut findings: Vec<_> = documents(text).iter().flat_map(|document| of_templates(schemas, document)).collect();
    findings.retain(template::is_unknown_field);
    findings
}

fn of_templates(schemas: &Schemas, document: &str) -> Vec<Finding> {
    read(document).iter().flat_map(|value| template::check(schemas, value, document)).collect()
}

/// Checks one document. YAML in braces is read as well, as kubectl does, though a branch cannot have it.
fn of_document(schemas: &Schemas, text: &str) -> Vec<Finding> {
    let is_yaml = text.trim_start().starts_with('{') && serde_json::from_str::<Value>(text).is_err();
    match is_yaml.then(|| read(text)).and_then(|documents| documents.into_iter().next()) {
        Some(value) => {
            // The line numbers of the converted text would be wrong.
            admit::check(schemas, value.to_string().as_bytes())
        }
        _ => located(admit::check(schemas, text.as_bytes()), text),
    }
}

fn located(findings: Vec<Finding>, text: &str) -> Vec<Finding> {
    findings.into_iter().map(|finding| finding.located(text.as_bytes())).collect()
}

/// Parses the documents of a text; none if it is not YAML, which other checks report.
fn read(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    serde_saphyr::from_multiple_with_options::<Value>(text, options).unwrap_or_default()
}

/// Returns the `CustomResourceDefinitions` in a text.
pub(super) fn definitions(text: &str) -> Vec<Value> {
    if !text.contains("CustomResourceDefinition") {
        return Vec::new();
    }
    read(text).into_iter().filter(|document| document["kind"] == "CustomResourceDefinition").collect()
}

/// Returns the Namespaces in a text, also in lists: their labels select heavens for pods.
pub(super) fn namespaces(text: &str) -> Vec<Value> {
    if !text.contains("Namespace") {
        return Vec::new();
    }
    let is_meant = |document: &Value| document["kind"] == "Namespace" || document["items"].is_array();
    read(text).into_iter().filter(is_meant).collect()
}

/// Splits a text into documents, each padded with empty lines so that line numbers stay correct.
fn documents(text: &str) -> Vec<String> {
    let (mut found, mut lines) = (vec![String::new()], 0);
    for line in text.split_inclusive('\n') {
        let is_mark = line.trim_end() == "---" || line.starts_with("--- ") || line.trim_end() == "...";
        if is_mark {
            lines += 1;
            found.push("\n".repeat(lines));
            continue;
        }
        lines += 1;
        if let Some(last) = found.last_mut() {
            last.push_str(line);
        }
    }
    found.retain(|document| !document.trim().is_empty());
    found
}
