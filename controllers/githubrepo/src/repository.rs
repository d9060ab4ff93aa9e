//! Computes the changes that a repository needs; pure.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use trishanku_api::GitHubRepositorySpec;

/// The fields of a repository that matter here.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Repository {
    /// GitHub's id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Owner and name.
    pub full_name: String,
    /// The owner.
    pub owner: Owner,
    /// Whether it is private.
    pub private: bool,
    /// URL of its web page.
    pub html_url: String,
    /// URL for cloning.
    pub clone_url: String,
    /// Its description.
    #[serde(default)]
    pub description: Option<String>,
    /// Its default branch; even an empty repository has one.
    pub default_branch: String,
    /// Its topics.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Whether it is read-only.
    #[serde(default)]
    pub archived: bool,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The owner of a repository.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Owner {
    /// The login name.
    pub login: String,
}

/// The changes that a repository needs, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Make it writable first.
    pub unarchive: bool,
    /// Replace all topics.
    pub topics: Option<Vec<String>>,
    /// Fields to change in one request.
    pub fields: Map<String, Value>,
    /// The default branch, once it exists.
    pub default_branch: Option<String>,
    /// Make it read-only at the end.
    pub archive: bool,
}

impl Changes {
    /// Whether no change is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether any change requires a writable repository.
    fn needs_writing(&self) -> bool {
        self.topics.is_some() || !self.fields.is_empty() || self.default_branch.is_some()
    }
}

/// The body of a creation request. Topics and default branch follow later. `last` is the privacy of a repository that it
/// replaces.
pub fn creation(name: &str, spec: &GitHubRepositorySpec, last: Option<bool>) -> Value {
    // Without an initial commit: the first push creates the branches.
    let mut body = json!({"name": name, "private": spec.private.or(last).unwrap_or_default(), "auto_init": false});
    if let Some(description) = spec.description.as_deref().filter(|description| !description.is_empty()) {
        body["description"] = description.into();
    }
    body
}

/// Computes the changes.
///
/// A private repository stays private unless `private` is explicitly false: leaving out a field must not publish
/// anything.
///
/// # Errors
/// The fields that differ, if the repository is read-only and is to stay so.
pub fn changes(name: &str, spec: &GitHubRepositorySpec, present: &Repository) -> Result<Changes, Vec<String>> {
    let mut changes = Changes::default();
    if present.name != name {
        changes.fields.insert("name".to_owned(), name.into());
    }
    if let Some(description) = &spec.description
        && present.description.as_deref().unwrap_or_default() != description
    {
        changes.fields.insert("description".to_owned(), description.as_str().into());
    }
    if let Some(private) = spec.private
        && present.private != private
    {
        changes.fields.insert("private".to_owned(), private.into());
    }
    if let Some(topics) = &spec.topics {
        // GitHub stores topics in lower case, without duplicates.
        let wanted: BTreeSet<_> = topics.iter().map(|topic| topic.to_ascii_lowercase()).collect();
        if wanted != present.topics.iter().cloned().collect() {
            changes.topics = Some(wanted.into_iter().collect());
        }
    }
    changes.default_branch = spec.default_branch.clone().filter(|branch| *branch != present.default_branch);
    match (present.archived, spec.archived) {
        (true, Some(false)) => changes.unarchive = true,
        (false, Some(true)) => changes.archive = true,
        (true, Some(true) | None) if changes.needs_writing() => {
            let others =
                [changes.topics.as_ref().map(|_| "topics"), changes.default_branch.as_ref().map(|_| "defaultBranch")];
            let fields = changes.fields.keys().map(String::as_str).chain(others.into_iter().flatten());
            return Err(fields.map(ToOwned::to_owned).collect());
        }
        _ => {}
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> Repository {
        let present = json!({
            "id": 7, "name": "a", "full_name": "o/a", "owner": {"login": "o"}, "private": true, "html_url": "h", "clone_url": "c",
            "description": null, "default_branch": "main", "topics": ["x", "y"], "archived": false, "created_at": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(present).unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "shorter at the call sites")]
    fn spec(fields: Value) -> GitHubRepositorySpec {
        let mut spec = json!({"credentialsSecretName": "s", "credentialsSecretTokenKey": "t"});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn only_what_differs_and_is_said_is_changed() {
        let same = |fields: Value| changes("a", &spec(fields), &present()).unwrap().is_empty();
        assert!(
            same(json!({}))
                && same(json!({"description": "", "private": true, "topics": ["Y", "x"], "archived": false}))
        );
        let all =
            json!({"description": "d", "private": false, "topics": ["Z"], "defaultBranch": "trunk", "archived": true});
        let changes = changes("b", &spec(all), &present()).unwrap();
        assert_eq!(Value::Object(changes.fields.clone()), json!({"name": "b", "description": "d", "private": false}));
        assert_eq!((changes.topics, changes.default_branch), (Some(vec!["z".to_owned()]), Some("trunk".to_owned())));
        assert!(changes.archive && !changes.unarchive);
    }

    #[test]
    fn an_unset_field_never_makes_a_repository_public() {
        let private = |said: Value, last| creation("a", &spec(said), last)["private"].clone();
        assert_eq!(private(json!({}), None), false);
        assert_eq!(
            (private(json!({}), Some(true)), private(json!({"private": false}), Some(true))),
            (true.into(), false.into())
        );
        assert!(changes("a", &spec(json!({})), &present()).unwrap().is_empty());
    }

    #[test]
    fn what_is_read_only_is_not_written_unless_it_is_to_become_writable() {
        let archived = Repository { archived: true, ..present() };
        for said in [json!({"description": "d"}), json!({"description": "d", "archived": true})] {
            assert_eq!(changes("a", &spec(said), &archived), Err(vec!["description".to_owned()]));
        }
        let changes = changes("a", &spec(json!({"description": "d", "archived": false})), &archived).unwrap();
        assert!(changes.unarchive && changes.fields.len() == 1);
        assert!(super::changes("a", &spec(json!({"archived": true})), &archived).unwrap().is_empty());
    }
}
