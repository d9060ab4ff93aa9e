//! Labels and annotations of the pod.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::problem::Problems;

/// Labels and annotations that are added, and problems among them.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    pub(super) fn label(&mut self, key: String, value: String, problems: &mut Problems) {
        let path = format!("metadata.labels[{key}]");
        check_key(&path, &key, problems);
        if !value.is_empty() && !is_name(&value) {
            let found = "has an invalid value".to_owned();
            let remedy = "use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
            problems.invalid(path.clone(), found, remedy);
        }
        insert(&mut self.labels, &path, key, value, problems);
    }

    pub(super) fn annotation(&mut self, key: String, value: String, problems: &mut Problems) {
        let path = format!("metadata.annotations[{key}]");
        check_key(&path, &key.to_lowercase(), problems);
        insert(&mut self.annotations, &path, key, value, problems);
    }

    /// Adds what is missing. Reports other values of the user's.
    pub(super) fn merge(self, metadata: &mut Option<ObjectMeta>, problems: &mut Problems) {
        let Self { labels, annotations } = self;
        if labels.is_empty() && annotations.is_empty() {
            return;
        }
        let metadata = metadata.get_or_insert_default();
        merge("labels", labels, &mut metadata.labels, problems);
        merge("annotations", annotations, &mut metadata.annotations, problems);
    }
}

fn insert(added: &mut BTreeMap<String, String>, path: &str, key: String, value: String, problems: &mut Problems) {
    if added.get(&key).is_some_and(|before| *before != value) {
        problems.invalid(path.to_owned(), "is set twice, to different values".to_owned(), "set it once");
    }
    added.insert(key, value);
}

fn merge(
    field: &str,
    added: BTreeMap<String, String>,
    present: &mut Option<BTreeMap<String, String>>,
    problems: &mut Problems,
) {
    if added.is_empty() {
        return;
    }
    let present = present.get_or_insert_default();
    for (key, value) in added {
        match present.get(&key) {
            Some(theirs) if *theirs != value => {
                // The value may be long.
                let (path, found) = (format!("metadata.{field}[{key}]"), "has another value than the injected one");
                problems.collision(path, found.to_owned(), "remove it");
            }
            Some(_) => {}
            None => drop(present.insert(key, value)),
        }
    }
}

fn check_key(path: &str, key: &str, problems: &mut Problems) {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if !is_name(name) || prefix.is_some_and(|prefix| !is_domain(prefix)) {
        let remedy = "use a name like team or example.com/team, with at most 63 letters, digits, '-', '_' and '.' after the domain";
        problems.invalid(path.to_owned(), "has an invalid key".to_owned(), remedy);
    }
}

/// Returns whether it can be the name in a key, or the value of a label.
fn is_name(name: &str) -> bool {
    let has_ends =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    has_ends && name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns whether it is a DNS name in lower case.
pub(super) fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.chars().all(is_inner)
    };
    domain.len() <= 253 && domain.split('.').all(is_label)
}
