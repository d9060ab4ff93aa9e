//! `GitHubRepository`: a repository on GitHub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

/// A repository on GitHub or a GitHub Enterprise server, with the object's name.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "GitHubRepository",
    doc = "A repository on GitHub or a GitHub Enterprise server, created and kept with these settings.",
    plural = "githubrepositories",
    namespaced,
    status = "GitHubRepositoryStatus",
    shortname = "ghrepo",
    category = "trishanku",
    derive = "PartialEq",
    derive = "Default"
)]
#[kube(printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#)]
#[kube(printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#)]
#[kube(printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.htmlUrl"}"#)]
#[kube(printcolumn = r#"{"name":"Private","type":"boolean","jsonPath":".spec.private","priority":1}"#)]
#[kube(printcolumn = r#"{"name":"Last sync","type":"date","jsonPath":".status.lastSyncTime","priority":1}"#)]
#[kube(printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#)]
#[x_kube(validation = Rule::new("has(self.organization) == has(oldSelf.organization) && (!has(self.organization) || self.organization == oldSelf.organization)").message("a repository is not moved to another owner: create another GitHubRepository, or move it on GitHub first"))]
#[x_kube(validation = Rule::new("!has(self.archived) || !self.archived || !has(self.deletionPolicy) || self.deletionPolicy != 'Archive'").message("it is archived already: deletionPolicy Archive does nothing, use Retain"))]
pub struct GitHubRepositorySpec {
    /// The Secret with the token (and `url`, such as `https://github.com`, if it is for one server only).
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_name: String,
    /// Key of the token in that Secret.
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_token_key: String,
    /// The owning organization. If unset or empty, the token's user owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub organization: Option<String>,
    /// One-line description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 350))]
    pub description: Option<String>,
    /// Whether it is private. False if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// Its default branch. Unchanged if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub default_branch: Option<String>,
    /// Its topics. Unchanged if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub topics: Option<Vec<String>>,
    /// Whether it is read-only. Unchanged if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
    /// Whether to adopt an existing repository of this name. Otherwise, it is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,
    /// What happens to it when this object is deleted. `Retain` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// API of a GitHub Enterprise server, such as `https://github.example.org/api/v3`, whose host `--github-api-hosts` allows. github.com if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://[^@]+$"), length(max = 2048))]
    pub api_url: Option<String>,
    /// Key of additional CA certificates (PEM) for the API, in the token's Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_ca_key: Option<String>,
}

/// What happens to a repository when its object is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It is kept unchanged.
    #[default]
    Retain,
    /// It is archived, and so read-only.
    Archive,
    /// It is deleted, with all its content.
    Delete,
}

/// Observed state.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct GitHubRepositoryStatus {
    /// Generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// GitHub's id, which survives renames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Owner and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// URL of its web page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html_url: Option<String>,
    /// URL for cloning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_url: Option<String>,
    /// Its default branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// Whether it is private.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// When its creation was requested, until GitHub has responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub creation_started: Option<Time>,
    /// When GitHub was last queried, to the hour unless something changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_sync_time: Option<Time>,
    /// Conditions of the object.
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

impl Conditions for GitHubRepositoryStatus {
    fn conditions(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }

    fn observed_generation(&mut self) -> &mut Option<i64> {
        &mut self.observed_generation
    }
}
