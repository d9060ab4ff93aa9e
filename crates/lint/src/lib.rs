//! Checks manifests without a cluster.
//!
//! Schemas and CEL rules come from the CRDs, as in a kube-apiserver. Errors that only controllers find, such as port
//! conflicts in a pod, come from the controllers' own planning.
//!
//! ```
//! let manifest = "
//! apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
//! kind: TrishankuHeaven
//! metadata: {name: scheduler}
//! spec: {skip: {app: false}}
//! ";
//! let findings = trishanku_lint::lint(manifest)?;
//! assert!(findings[0].to_string().starts_with("TrishankuHeaven scheduler: spec: app is missing"), "{}", findings[0]);
//! # Ok::<(), trishanku_lint::Unreadable>(())
//! ```

mod plan;
mod rules;
mod schema;

use std::fmt;

use kube::CustomResourceExt as _;
use serde_json::Value;
use trishanku_api::{AutomatedMerge, GROUP, GitHubRepository, TrishankuHeaven, VERSION};

/// An error in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object, as `Kind name`.
    pub object: String,
    /// The field, starting with `spec`.
    pub field: String,
    /// What is wrong, and how to fix it.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.field, self.problem)
    }
}

/// The text is not YAML.
#[derive(Debug, thiserror::Error)]
#[error("not YAML: {0}")]
pub struct Unreadable(String);

/// Checks all objects of our group in a text with manifests, including those in lists (`kind: List`, as kubectl prints).
/// Other objects are skipped.
///
/// # Errors
/// [`Unreadable`].
pub fn lint(text: &str) -> Result<Vec<Finding>, Unreadable> {
    let mut findings = Vec::new();
    // Parses numbers as Kubernetes does. Error messages do not repeat the text: it may be a secret.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let documents = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    for document in documents.map_err(|error| Unreadable(error.to_string()))? {
        each(&document, &mut findings);
    }
    Ok(findings)
}

/// Checks an object, or all objects of a list; the list itself is not checked.
fn each(document: &Value, findings: &mut Vec<Finding>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    if let Some(items) = document["items"].as_array().filter(|_| kind.ends_with("List")) {
        return items.iter().for_each(|item| each(item, findings));
    }
    let (group, version) = document["apiVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
    if group == GROUP {
        object(document, version, findings);
    }
}

fn object(document: &Value, version: &str, findings: &mut Vec<Finding>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let object = format!("{kind} {name}");
    let mut add = |field: &str, problem: String| {
        findings.push(Finding { object: object.clone(), field: field.to_owned(), problem });
    };
    let definition = match kind {
        "TrishankuHeaven" => TrishankuHeaven::crd(),
        "AutomatedMerge" => AutomatedMerge::crd(),
        "GitHubRepository" => GitHubRepository::crd(),
        other => {
            let kinds = "TrishankuHeaven, AutomatedMerge and GitHubRepository";
            return add("kind", format!("there is no kind {other:?} in {GROUP}: there are {kinds}"));
        }
    };
    if version != VERSION {
        add("apiVersion", format!("there is no version {version:?}: use {GROUP}/{VERSION}"));
    }
    if name.is_empty() {
        add("metadata.name", "Required value: give the object a name".to_owned());
    }
    let schema = definition.spec.versions.first().and_then(|version| version.schema.clone()).unwrap_or_default();
    let schema = serde_json::to_value(schema.open_api_v3_schema).unwrap_or_default();
    let Some(spec) = document.get("spec") else { return add("spec", "Required value".to_owned()) };
    let schema = &schema["properties"]["spec"];
    let before = findings.len();
    let mut add = |field: &str, problem: String| {
        findings.push(Finding { object: object.clone(), field: field.to_owned(), problem });
    };
    schema::check("spec", spec, schema, &mut add);
    rules::check("spec", spec, schema, &mut add);
    let is_well_formed = findings.len() == before;
    findings.extend(plan::explicit_resolutions(spec).map(|(field, problem)| Finding {
        object: object.clone(),
        field,
        problem,
    }));
    // Planning needs a well-formed spec.
    if is_well_formed {
        let problem = plan::check(kind, name, spec);
        findings.extend(problem.map(|(field, problem)| Finding { object, field, problem }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAVEN: &str = "{apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1, kind: TrishankuHeaven, metadata: {name: NAME}, spec: {}}";

    #[test]
    fn a_remote_whose_side_wins_every_conflict_is_reported() {
        let remote = |resolution: &str| {
            format!(
                "{{apiVersion: {GROUP}/{VERSION}, kind: AutomatedMerge, metadata: {{name: m}}, spec: {{app: {{committerName: m}}, \
                 gitcd: {{git: {{branches: {{data: a}}, remotes: [{{name: r, repo: /r.git{resolution}}}]}}}}}}}}"
            )
        };
        assert_eq!(lint(&remote("")).unwrap(), []);
        for (resolution, side) in [(1, "ours"), (2, "theirs")] {
            let findings = lint(&remote(&format!(", conflictResolution: {resolution}"))).unwrap();
            let [finding] = &findings[..] else { panic!("{findings:?}") };
            assert_eq!(finding.field, "spec.gitcd.git.remotes[0].conflictResolution");
            assert!(finding.problem.contains(side) && finding.problem.contains("deleted"), "{finding}");
        }
    }

    #[test]
    fn objects_in_lists_are_looked_at_whichever_list_it_is_and_those_of_others_are_not() {
        let [one, two, three] = ["one", "two", "three"].map(|name| HEAVEN.replace("NAME", name));
        let theirs = "{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs}}";
        let inner = format!("{{apiVersion: v1, kind: List, items: [{two}]}}");
        let list = format!("{{apiVersion: v1, kind: List, items: [{one}, {theirs}, {inner}]}}");
        let typed = format!(
            "{{apiVersion: {GROUP}/{VERSION}, kind: TrishankuHeavenList, metadata: {{resourceVersion: ''}}, items: [{three}]}}"
        );
        let findings = lint(&format!("{list}\n---\n{typed}\n---\n{theirs}\n")).unwrap();
        let mut objects: Vec<_> = findings.iter().map(|finding| finding.object.as_str()).collect();
        objects.dedup();
        assert_eq!(objects, ["TrishankuHeaven one", "TrishankuHeaven two", "TrishankuHeaven three"], "{findings:?}");
        // An empty list is valid; without items it is not a list.
        assert_eq!(lint("{apiVersion: v1, kind: List, items: []}").unwrap(), []);
        let none = lint(&format!("{{apiVersion: {GROUP}/{VERSION}, kind: TrishankuHeavenList}}")).unwrap();
        assert!(none[0].problem.contains("there is no kind"), "{none:?}");
    }
}
