//! The store: a branch, its remotes, and how it pulls from them.

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Image;
use crate::schema;

/// The branch that is the store, and its remotes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.writerLease) || (has(self.git) && has(self.git.remotes) && size(self.git.remotes) > 0)").message("a writer lease is kept in a remote: add one in git.remotes, or remove writerLease"))]
pub struct Gitcd {
    /// Image with `git` for the entry point script `git-pre.sh`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_image: Option<Image>,
    /// Image of gitcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitcd_image: Option<Image>,
    /// Secret with remote credentials, as `username` and `password` (with `url`, if they are for one server only) or `.git-credentials`; and with `ca.crt`, if a remote's certificate is not of a public authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub credentials_secret_name: Option<String>,
    /// Whether credentials are sent over plain HTTP (`http://`), too, where everyone on the network can read them. If unset, only on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_plain_http_credentials: Option<bool>,
    /// Image pull Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image_pull_secret_name: Option<String>,
    /// The branch and its remotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// How remotes are pulled. Unset disables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Where the repository is stored. If unset, in an emptyDir, so that unpushed commits are lost with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
    /// Serves the repository to Git clients, so that other heavens can pull from it without a hosting site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Duration of a lease on the first remote, such as `15s`, which ensures a single writer. Without it, a pod rejects writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub writer_lease: Option<String>,
    /// Resources of gitcd's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
}

/// A branch and its remotes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.remotes) || self.remotes.all(r, self.remotes.exists_one(s, (has(s.name) ? s.name : 'origin') == (has(r.name) ? r.name : 'origin')))").message("two remotes have the same name (it is origin unless given): name them differently"))]
pub struct Git {
    /// The local branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<Branches>,
    /// Repositories from which it pulls. It is cloned from the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub remotes: Vec<Remote>,
}

/// A branch with its metadata.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.data) || !has(self.metadata) || self.data != self.metadata").message("data and metadata are two branches: give them different names"))]
pub struct Branches {
    /// The data branch. `main` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\s~^:?*\[\\-][^\s~^:?*\[\\]*$"))]
    pub data: Option<String>,
    /// The metadata branch. If unset, the reference `refs/gitcd/metadata/<data>`, which `git clone` does not copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\s~^:?*\[\\-][^\s~^:?*\[\\]*$"))]
    pub metadata: Option<String>,
    /// Whether to fail and retry while the branch does not exist. Otherwise, it is created empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_no_branch: Option<bool>,
}

/// A remote repository.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Remote {
    /// Name of the remote. `origin` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// URL of the repository (`https://…`, `ssh://…`) or a path in the pod.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = Rule::new("!self.matches('^[a-z+]+://[^/@]*:[^/@]*@')").message("a password does not belong in a URL, which is not secret: put it into the Secret that credentialsSecretName names"))]
    pub repo: String,
    /// Whether it is public. If unset, a `GitHubRepository` of this namespace with this URL says so, and paths and hosts
    /// without a public name or address are not public. If nothing says so, a heaven is rejected unless its Secrets are
    /// encrypted or `allowPublicSecrets` is set, and a merge that pushes unless `allowPublicSecrets` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
    /// Branch of the remote to merge. The one with the local name if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<Branches>,
    /// Which keys are merged. All if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policies: Option<RetentionPolicies>,
    /// Side that wins conflicts, 1 (ours) or 2 (theirs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_resolution: Option<ConflictResolution>,
}

/// Regular expressions for keys. Those that match `include`, but not `exclude`, are merged.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RetentionPolicies {
    /// `.*` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub include: Option<String>,
    /// `^$` if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub exclude: Option<String>,
}

/// The side that wins conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictResolution {
    /// The local side.
    #[default]
    Ours,
    /// The remote's side.
    Theirs,
}

impl ConflictResolution {
    /// The number in manifests.
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

/// How remotes are pulled.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// Whether the branch is pushed after each pull. True if unset.
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

/// Where the repository is stored.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.sizeLimit) && has(self.volumeClaim))").message("sizeLimit is for the empty folder: give a volume claim its size in volumeClaim.size"))]
pub struct Storage {
    /// Size limit of the emptyDir, such as `1Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub size_limit: Option<String>,
    /// A volume that outlives the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim: Option<VolumeClaim>,
}

/// A volume claim, existing or to be created.
#[derive(Clone, Debug, Default, Deserialize, Serialize, KubeSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.name) != has(self.size)").message("name an existing claim, or give the size of one to create: exactly one of name and size"))]
#[x_kube(validation = Rule::new("!has(self.storageClassName) || has(self.size)").message("storageClassName is for a claim to create: give its size, too"))]
pub struct VolumeClaim {
    /// An existing claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Size of a claim to create, such as `10Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub size: Option<String>,
    /// Its storage class. The cluster's default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub storage_class_name: Option<String>,
}

/// Access to the repository for Git clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its port. 2480 if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// The Secret whose `tokens.yaml` has the access rules (`docs/git-host.md`).
    #[schemars(length(min = 1))]
    pub tokens_secret_name: String,
    /// The `kubernetes.io/tls` Secret with its certificate, such as cert-manager issues. If unset, it has no TLS, and everyone on the network can read tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_secret_name: Option<String>,
    /// Fields for the `spec` of the Service that exposes it: its type, and those of load balancers, node ports, traffic
    /// policies and IP families. If unset, a plain Service with the heaven's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub service: Option<Value>,
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
