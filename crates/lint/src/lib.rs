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

mod defaults;
mod definitions;
mod labels;
mod plan;
mod rules;
mod schema;
mod spelling;

use std::fmt;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use trishanku_api::{AutomatedMerge, GROUP, GitHubRepository, TrishankuHeaven, VERSION};

use self::definitions::{HeavenDefinition, HeavenDefinitions};
use self::labels::InjectLabels;

/// An error in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object, as `Kind name`.
    pub object: String,
    /// The field, starting with `spec`.
    pub field: String,
    /// What is wrong, and how to fix it.
    pub problem: String,
    is_of_others: bool,
}

impl Finding {
    /// Whether the field is not one of its object: it is probably misspelt, and kube-apiserver would drop it.
    #[must_use]
    pub fn is_unknown_field(&self) -> bool {
        self.problem.starts_with(spelling::UNKNOWN)
    }

    /// Whether the object is of a kind that another project defines.
    #[must_use]
    pub fn is_of_other_project(&self) -> bool {
        self.is_of_others
    }
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

/// Checks all objects of our group in a text with manifests, including those in lists (`kind: List`, as kubectl prints), and objects
/// of other kinds of heavens whose `CustomResourceDefinition` is in the text. Other objects are skipped.
///
/// A heaven that sets `skip.app` is checked as the webhook checks it if it is meant to be injected: a `Namespace` in the text has the
/// label `controllers.trishanku.org/inject` with its name, or its branch contains `$(REPLICA)`.
///
/// # Errors
/// [`Unreadable`].
pub fn lint(text: &str) -> Result<Vec<Finding>, Unreadable> {
    lint_with(text, &[])
}

/// As [`lint`], with further documents, such as those of other files: `CustomResourceDefinition` objects of kinds of heavens, and
/// `Namespace` objects. They are not checked, but a copy of a definition that differs is reported for the one in the text.
///
/// # Errors
/// [`Unreadable`].
pub fn lint_with(text: &str, others: &[Value]) -> Result<Vec<Finding>, Unreadable> {
    let mut findings = Vec::new();
    // Parses numbers as Kubernetes does. Error messages do not repeat the text: it may be a secret.
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let documents = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    let documents = documents.map_err(|error| Unreadable(error.to_string()))?;
    let mut all = Vec::new();
    documents.iter().chain(others).for_each(|document| flatten(document, &mut all));
    let references = References {
        definitions: HeavenDefinitions::among(all.iter().copied()),
        labels: InjectLabels::of(all.iter().copied()),
    };
    for document in &documents {
        each(document, &references, &mut findings);
    }
    Ok(findings)
}

/// What other objects say about the objects to check.
struct References<'d> {
    definitions: HeavenDefinitions<'d>,
    labels: InjectLabels<'d>,
}

/// Adds a document, or the objects of a list.
fn flatten<'d>(document: &'d Value, all: &mut Vec<&'d Value>) {
    match list_items(document) {
        Some(items) => items.iter().for_each(|item| flatten(item, all)),
        None => all.push(document),
    }
}

fn list_items(document: &Value) -> Option<&Vec<Value>> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    document["items"].as_array().filter(|_| is_list)
}

/// The kinds of our group.
const KINDS: [&str; 3] = ["TrishankuHeaven", "AutomatedMerge", "GitHubRepository"];
/// The fields of an object.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
/// The fields of `metadata`.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Checks an object, or all objects of a list; the list itself is not checked.
fn each(document: &Value, references: &References<'_>, findings: &mut Vec<Finding>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    if let Some(items) = list_items(document) {
        return items.iter().for_each(|item| each(item, references, findings));
    }
    if references.definitions.is_contradicted(document) {
        findings.push(Finding {
            object: format!("{kind} {}", document["metadata"]["name"].as_str().unwrap_or_default()),
            field: "spec".to_owned(),
            problem: "another copy of this definition differs: remove one, or make them equal".to_owned(),
            is_of_others: true,
        });
    }
    let api_version = document["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if let Some(definition) = references.definitions.of(group, kind) {
        return other_heaven(document, definition, version, findings);
    }
    // Another project may have a GitHubRepository.
    let is_like_ours = group.is_empty() || group.contains("trishanku");
    let is_meant = match spelling::closest(kind, KINDS) {
        Some("GitHubRepository") => is_like_ours,
        Some(meant) => is_like_ours || kind.eq_ignore_ascii_case(meant),
        None => false,
    };
    if group == GROUP || is_meant {
        let before = findings.len();
        object(document, &references.labels, findings);
        findings[before..].iter_mut().for_each(|finding| finding.is_of_others = !is_like_ours);
    }
}

/// Checks a heaven of another project: its fields, and its branch. Only its own controller knows what else it consists of.
fn other_heaven(document: &Value, definition: HeavenDefinition<'_>, version: &str, findings: &mut Vec<Finding>) {
    let kind = document["kind"].as_str().unwrap_or_default();
    let object = format!("{kind} {}", document["metadata"]["name"].as_str().unwrap_or_default());
    let mut add = |field: &str, problem: String| {
        findings.push(Finding { object: object.clone(), field: field.to_owned(), problem, is_of_others: true });
    };
    let schema = match definition.schema(version) {
        Ok(schema) => schema,
        Err(served) => {
            let problem =
                format!("the CustomResourceDefinition of {kind} has no version {version:?}: use one of {served}");
            return add("apiVersion", problem);
        }
    };
    let mut completed = document.get("spec").map_or_else(|| json!({}), |spec| json!({"spec": spec}));
    defaults::complete(&mut completed, schema);
    let Some(spec) = completed.get("spec") else {
        if schema["required"].as_array().is_some_and(|required| required.iter().any(|name| name == "spec")) {
            add("spec", "Required value".to_owned());
        }
        return;
    };
    let schema = &schema["properties"]["spec"];
    schema::check("spec", spec, schema, &mut add);
    rules::check("spec", spec, schema, &mut add);
    // Only what the manifest says is explicit.
    plan::explicit_resolutions(&document["spec"])
        .chain(plan::unencrypted(spec))
        .for_each(|(field, problem)| add(&field, problem));
}

fn object(document: &Value, labels: &InjectLabels<'_>, findings: &mut Vec<Finding>) {
    let written = document["kind"].as_str().unwrap_or_default();
    let kind = spelling::closest(written, KINDS).unwrap_or(written);
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let object = format!("{written} {name}");
    let mut add = |field: &str, problem: String| {
        findings.push(Finding { object: object.clone(), field: field.to_owned(), problem, is_of_others: false });
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
    if written != kind {
        add("kind", format!("there is no kind {written:?} in {GROUP}: use {kind}"));
    }
    match document["apiVersion"].as_str().map(|written| written.split_once('/').unwrap_or(("", written))) {
        None => add("apiVersion", format!("Required value: use {GROUP}/{VERSION}")),
        Some((GROUP, VERSION)) => {}
        Some((GROUP, version)) => add("apiVersion", format!("there is no version {version:?}: use {GROUP}/{VERSION}")),
        Some((group, _)) => {
            add("apiVersion", format!("there is no kind {kind} in the group {group:?}: use {GROUP}/{VERSION}"));
        }
    }
    for (path, fields, known) in [("", document, &FIELDS[..]), ("metadata.", &document["metadata"], &METADATA)] {
        for field in fields.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !known.contains(&&**field) {
                add(&format!("{path}{field}"), spelling::unknown(field, known.iter().copied()));
            }
        }
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
        findings.push(Finding { object: object.clone(), field: field.to_owned(), problem, is_of_others: false });
    };
    schema::check("spec", spec, schema, &mut add);
    rules::check("spec", spec, schema, &mut add);
    let is_well_formed = findings.len() == before;
    let advice = plan::explicit_resolutions(spec).chain(plan::unencrypted(spec));
    findings.extend(advice.map(|(field, problem)| Finding {
        object: object.clone(),
        field,
        problem,
        is_of_others: false,
    }));
    // Planning needs a well-formed spec.
    if is_well_formed {
        let problem = plan::check(kind, name, spec, labels.naming(&document["metadata"]));
        findings.extend(problem.map(|(field, problem)| Finding { object, field, problem, is_of_others: false }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAVEN: &str = "{apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1, kind: TrishankuHeaven, metadata: {name: NAME}, spec: {}}";

    #[test]
    fn credentials_and_tokens_without_encryption_are_reported() {
        let heaven = |gitcd: &str| {
            let heaven = HEAVEN
                .replace("NAME", "a")
                .replace("spec: {}", &format!("spec: {{skip: {{app: true}}, gitcd: {gitcd}}}"));
            lint(&heaven).unwrap().into_iter().map(|finding| finding.field).collect::<Vec<_>>()
        };
        let remotes =
            "git: {remotes: [{repo: 'https://h/x'}, {name: b, repo: 'http://h/x'}, {name: c, repo: 'http://[::1]/x'}]}";
        assert_eq!(heaven(&format!("{{{remotes}}}")), [""; 0]);
        let secret = format!("{{credentialsSecretName: s, {remotes}}}");
        assert_eq!(heaven(&secret), ["spec.gitcd.git.remotes[1].repo"]);
        assert_eq!(heaven(&secret.replacen('{', "{allowPlainHttpCredentials: true, ", 1)), [""; 0]);
        assert_eq!(heaven("{host: {tokensSecretName: t}}"), ["spec.gitcd.host"]);
        assert_eq!(heaven("{host: {tokensSecretName: t, tlsSecretName: c}}"), [""; 0]);
    }

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
    fn a_misspelt_kind_group_or_version_is_reported_with_the_right_one() {
        let api = format!("{GROUP}/{VERSION}");
        let merge =
            "spec: {app: {committerName: m}, gitcd: {git: {branches: {data: a}, remotes: [{name: r, repo: /r.git}]}}}";
        let of = |api_version: &str, kind: &str| {
            lint(&format!("{{{api_version}kind: {kind}, metadata: {{name: m}}, {merge}}}")).unwrap()
        };
        let [wrong_group, no_group, wrong_version, none] =
            ["controllers.trishanku.org/v1alpha1", "v1alpha1", &format!("{GROUP}/v1"), ""]
                .map(|api| if api.is_empty() { String::new() } else { format!("apiVersion: {api}, ") });
        let right = format!("apiVersion: {api}, ");
        assert_eq!(of(&right, "AutomatedMerge"), []);
        for (api_version, kind, field) in [
            (&wrong_group, "AutomatedMerge", "apiVersion"),
            (&no_group, "AutomatedMerge", "apiVersion"),
            (&wrong_version, "AutomatedMerge", "apiVersion"),
            (&none, "AutomatedMerge", "apiVersion"),
            (&right, "automatedmerge", "kind"),
            (&right, "AutomatedMerges", "kind"),
            (&right, "AutomtaedMerge", "kind"),
        ] {
            let findings = of(api_version, kind);
            let [finding] = &findings[..] else { panic!("{api_version}{kind}: {findings:?}") };
            let expected = if field == "kind" { "use AutomatedMerge" } else { &format!("use {api}") };
            assert!(finding.field == field && finding.problem.ends_with(expected), "{finding}");
        }
        // Both at once, and the rest of the object as well.
        let findings =
            lint("{apiVersion: trishanku.org/v1, kind: trishankuHeaven, metadata: {name: a}, spec: {}}").unwrap();
        let fields: Vec<_> = findings.iter().map(|finding| finding.field.as_str()).collect();
        assert!(fields.starts_with(&["kind", "apiVersion", "spec"]), "{findings:?}");
        // A kind of others.
        assert_eq!(lint("{apiVersion: example.com/v1, kind: GitHubRepository, spec: {}}").unwrap(), []);
        assert_eq!(lint("{apiVersion: example.com/v1, kind: Automatic, spec: {}}").unwrap(), []);
    }

    #[test]
    fn a_misspelt_field_is_reported_wherever_it_is() {
        let heaven = |fields: &str, spec: &str| {
            format!(
                "{{apiVersion: {GROUP}/{VERSION}, kind: TrishankuHeaven, metadata: {{name: a{fields}}}, spec: {{skip: {{app: true}}{spec}}}}}"
            )
        };
        assert_eq!(lint(&heaven("", "")).unwrap(), []);
        for (fields, spec, field, meant) in [
            (", lables: {}", "", "metadata.lables", "labels"),
            ("}, specs: {", "", "specs", "spec"),
            ("", ", certficates: {}", "spec.certficates", "certificates"),
            ("", ", gitcd: {git: {remote: []}}", "spec.gitcd.git.remote", "remotes"),
        ] {
            let findings = lint(&heaven(fields, spec)).unwrap();
            let found =
                findings.iter().find(|finding| finding.field == field).unwrap_or_else(|| panic!("{findings:?}"));
            let expected = format!("unknown field: it would be dropped; did you mean {meant:?}?");
            assert_eq!(found.problem, expected);
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
