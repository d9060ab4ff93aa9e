//! The configuration of a role group: defaults, then the role, then the group.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kind::ConfigFragment;

/// What a role group is configured to be.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// CPU, memory and storage.
    pub resources: Resources,
    /// Where pods are scheduled.
    pub affinity: Affinity,
    /// Time that a server has to stop.
    pub graceful_shutdown_timeout: String,
}

/// CPU, memory and storage.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Resources {
    /// CPU.
    pub cpu: Range,
    /// Memory.
    pub memory: Limit,
    /// Volumes.
    pub storage: Storage,
}

/// What is reserved, and what is allowed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Range {
    /// Reserved.
    pub min: Quantity,
    /// Allowed.
    pub max: Quantity,
}

/// What is reserved and allowed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Limit {
    /// Reserved and allowed.
    pub limit: Quantity,
}

/// Volumes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Storage {
    /// The volume of the server.
    pub data: Volume,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its size.
    pub capacity: Quantity,
    /// Its storage class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// A configuration that no server can have.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A field has a value of another type.
    #[error("role group {group}: config: {source}")]
    Type {
        /// The role group.
        group: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The timeout is no time.
    #[error("role group {group}: config.gracefulShutdownTimeout: {source}")]
    Timeout {
        /// The role group.
        group: String,
        /// What is wrong.
        source: humantime::DurationError,
    },
}

impl Config {
    /// Returns the time in seconds that a server has to stop.
    ///
    /// # Errors
    /// [`ConfigError::Timeout`].
    pub fn seconds_to_stop(&self, group: &str) -> Result<u64, ConfigError> {
        let parsed = humantime::parse_duration(&self.graceful_shutdown_timeout);
        let failed = |source| ConfigError::Timeout { group: group.to_owned(), source };
        parsed.map(|time| time.as_secs()).map_err(failed)
    }
}

/// Merges the settings of a role and of a group into the defaults, field by field: those of the group come first.
///
/// # Errors
/// [`ConfigError::Type`].
pub fn merged(
    labels: &BTreeMap<String, String>,
    role: &ConfigFragment,
    group: (&str, &ConfigFragment),
) -> Result<Config, ConfigError> {
    let (name, fragment) = group;
    let merge = || {
        let mut merged = defaults(labels);
        for fragment in [role, fragment] {
            json_patch::merge(&mut merged, &serde_json::to_value(fragment)?);
        }
        serde_json::from_value(merged)
    };
    merge().map_err(|source| ConfigError::Type { group: name.to_owned(), source })
}

/// The defaults: servers of one role prefer different nodes.
fn defaults(labels: &BTreeMap<String, String>) -> Value {
    json!({
        "resources": {
            "cpu": {"min": "100m", "max": "400m"}, "memory": {"limit": "256Mi"}, "storage": {"data": {"capacity": "256Mi"}},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 70,
            "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"},
        }]}},
        "gracefulShutdownTimeout": "2m",
    })
}

/// Formats a Java properties file, in the order of the names.
pub fn properties(properties: &BTreeMap<String, String>) -> String {
    let escape = |text: &str, is_key: bool| {
        let mut escaped = String::new();
        for (at, character) in text.chars().enumerate() {
            match character {
                '\n' => escaped.push_str("\\n"),
                '\r' => escaped.push_str("\\r"),
                '\t' => escaped.push_str("\\t"),
                '\\' | '=' | ':' | '#' | '!' => escaped.extend(['\\', character]),
                ' ' if is_key || at == 0 => escaped.push_str("\\ "),
                _ => escaped.push(character),
            }
        }
        escaped
    };
    properties
        .iter()
        .flat_map(|(key, value)| [escape(key, true), "=".into(), escape(value, false), "\n".into()])
        .collect()
}
