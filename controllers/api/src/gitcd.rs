//! The store: a branch, its remotes, and how it follows them.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Image;
use crate::schema;

/// The branch that is the store, and how it follows others.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.writerLease) || (has(self.git) && has(self.git.remotes) && size(self.git.remotes) > 0)").message("a writer lease is kept in a remote: add one in git.remotes, or remove writerLease"))]
pub struct Gitcd {
    /// The image with `git` in which a script `git-pre.sh` of the entry points runs, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_image: Option<Image>,
    /// The image of gitcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitcd_image: Option<Image>,
    /// The Secret with what remotes ask for: `username` and `password` (and `url`, if it is for one server only), or a file `.git-credentials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub credentials_secret_name: Option<String>,
    /// The Secret with which images are pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image_pull_secret_name: Option<String>,
    /// The branch and its remotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// How remotes are followed. They are not if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Where the repository is kept. In an empty folder that goes with the pod if unset: then what was not pushed is lost with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Serves the repository to Git clients, so that other heavens can follow it where there is no hosting site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// At most one writer of the branch at a time, with a lease of this length on the first remote, such as `15s`. A pod that cannot reach the
    /// remote takes no writes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub writer_lease: Option<String>,
    /// What gitcd's container asks for and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
}

/// A branch and the remotes that it follows.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.remotes) || self.remotes.all(r, self.remotes.exists_one(s, (has(s.name) ? s.name : 'origin') == (has(r.name) ? r.name : 'origin')))").message("two remotes have the same name (it is origin unless given): name them differently"))]
pub struct Git {
    /// Our branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<Branches>,
    /// The repositories that it follows, the first of which it is cloned from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub remotes: Vec<Remote>,
}

/// A branch with its metadata.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.data) || !has(self.metadata) || self.data != self.metadata").message("data and metadata are two branches: give them different names"))]
pub struct Branches {
    /// What a person reads. `main` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\s~^:?*\[\\-][^\s~^:?*\[\\]*$"))]
    pub data: Option<String>,
    /// What gitcd needs besides. If unset, no branch but the reference `refs/gitcd/metadata/<data>`, which `git clone` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\s~^:?*\[\\-][^\s~^:?*\[\\]*$"))]
    pub metadata: Option<String>,
    /// Whether to fail, and try again, as long as there is no such branch. It is begun empty otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_no_branch: Option<bool>,
}

/// A repository that is followed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Remote {
    /// Its name. `origin` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// Its URL (`https://…`, `ssh://…`) or a path in the pod.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = Rule::new("!self.matches('^[a-z+]+://[^/@]*:[^/@]*@')").message("a password does not belong into a URL, where everybody can read it: put it into the Secret that credentialsSecretName names"))]
    pub repo: String,
    /// Whether everybody can read it. If unset, it is public if a `GitHubRepository` of this namespace has this URL and is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// Its branch that is merged into ours. The one of the same name as ours if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<Branches>,
    /// Which keys are taken. All if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policies: Option<RetentionPolicies>,
    /// Who wins where both sides changed the same: 1 ours, 2 theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<ConflictResolution>,
}

/// Regular expressions on keys: those are taken that the first matches and the second does not.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicies {
    /// `.*` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub include: Option<String>,
    /// `^$`, which is no key, if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub exclude: Option<String>,
}

/// Who wins where both sides changed the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictResolution {
    /// Our side.
    #[default]
    Ours,
    /// The remote's.
    Theirs,
}

impl ConflictResolution {
    /// As published: a number.
    pub fn number(self) -> u8 {
        match self {
            Self::Ours => 1,
            Self::Theirs => 2,
        }
    }
}

impl Serialize for ConflictResolution {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

impl<'de> Deserialize<'de> for ConflictResolution {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u8::deserialize(deserializer)? {
            1 => Ok(Self::Ours),
            2 => Ok(Self::Theirs),
            other => {
                Err(serde::de::Error::custom(format!("a conflict resolution is 1 (ours) or 2 (theirs), not {other}")))
            }
        }
    }
}

impl JsonSchema for ConflictResolution {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConflictResolution".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "enum": [1, 2] })
    }
}

/// How remotes are followed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// Whether our branch is pushed after each pull. True if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_after_merge: Option<bool>,
    /// Whether it is pushed even if the pull failed. False if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_on_pull_failure: Option<bool>,
    /// How often a remote that sends no notifications is polled, such as `15s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub ticker_duration: Option<String>,
}

/// Where a repository is kept.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.sizeLimit) && has(self.volumeClaim))").message("sizeLimit is for the empty folder: give a volume claim its size in volumeClaim.size"))]
pub struct Storage {
    /// The most that the empty folder may take, such as `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub size_limit: Option<String>,
    /// A volume that outlives the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<VolumeClaim>,
}

/// A claim: one that is there, or one that is made.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.name) != has(self.size)").message("name a claim that is there, or give the size of one to be made: exactly one of name and size"))]
#[x_kube(validation = Rule::new("!has(self.storageClassName) || has(self.size)").message("storageClassName is for a claim that is made: give its size, too"))]
pub struct VolumeClaim {
    /// A claim that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// The size of one that is made, such as `10Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub size: Option<String>,
    /// Its storage class. The cluster's default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub storage_class_name: Option<String>,
}

/// The repository, served to Git clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its port. 2480 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// The Secret whose `tokens.yaml` says who may do what (`docs/git-host.md`).
    #[schemars(length(min = 1))]
    pub tokens_secret_name: String,
    /// Fields of the Service that shows it to others, in the manner of a Service's `spec`; a plain one of the heaven's name if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub service: Option<Value>,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
