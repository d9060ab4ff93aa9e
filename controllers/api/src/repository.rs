//! A repository on GitHub.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trishanku_framework::status::{Conditions, conditions_schema};

/// A repository on GitHub, or on a GitHub Enterprise server. Its name is that of the object.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "controllers.trishanku.org.trishanku.org",
    version = "v1alpha1",
    kind = "GitHubRepository",
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
#[x_kube(validation = Rule::new("has(self.organization) == has(oldSelf.organization) && (!has(self.organization) || self.organization == oldSelf.organization)").message("a repository is not moved to another owner: make another GitHubRepository, or move it on GitHub first"))]
#[x_kube(validation = Rule::new("!has(self.archived) || !self.archived || !has(self.deletionPolicy) || self.deletionPolicy != 'Archive'").message("it is archived already: deletionPolicy Archive does nothing, use Retain"))]
pub struct GitHubRepositorySpec {
    /// The Secret with the token (and `url`, if it is for one server only: for github.com, `https://github.com`).
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_name: String,
    /// The key of the token in that Secret.
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_token_key: String,
    /// The organization that owns it. The user whose token it is if unset or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub organization: Option<String>,
    /// What it is for, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 350))]
    pub description: Option<String>,
    /// Whether only those may read it who were let in. False if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// Its default branch. Left alone if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200))]
    pub default_branch: Option<String>,
    /// Its topics. Left alone if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub topics: Option<Vec<String>>,
    /// Whether it is read-only. Left alone if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<bool>,
    /// Whether a repository of this name that is there already is taken. It is an error otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,
    /// What becomes of it when this object is deleted. `Retain` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// The API of a GitHub Enterprise server, such as `https://github.example.org/api/v3`; its host has to be one that the manager is let send tokens to (`--github-api-hosts`). That of github.com if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://[^@]+$"), length(max = 2048))]
    pub api_url: Option<String>,
    /// The key in the Secret of the token with certificates (PEM) that the API's server is trusted by, beside those that everybody trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_ca_key: Option<String>,
}

/// What becomes of a repository when its object is deleted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It stays as it is.
    #[default]
    Retain,
    /// It becomes read-only.
    Archive,
    /// It is deleted, with everything in it.
    Delete,
}

/// How a repository is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct GitHubRepositoryStatus {
    /// Which generation of the object this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// GitHub's number of it, which stays when it is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Owner and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// Where people look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html_url: Option<String>,
    /// Where it is cloned from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_url: Option<String>,
    /// Its default branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// Whether only those may read it who were let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<bool>,
    /// When GitHub was asked to make it, as long as that has not been answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub creation_started: Option<Time>,
    /// When GitHub was last queried, to the hour unless something changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::time")]
    pub last_sync_time: Option<Time>,
    /// Whether it is as it should be, and why not.
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
