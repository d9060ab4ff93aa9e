//! Checks that only the controllers make.

use serde::de::DeserializeOwned;
use serde_json::Value;
use trishanku_api::{AutomatedMergeSpec, Gitcd, TrishankuHeavenSpec};
use trishanku_heaven_plan::credentials::exposed_remotes;
use trishanku_heaven_plan::injected;
use trishanku_heaven_plan::plan::{EntryPoints, Images, Place, REPLICA, merge};
use trishanku_heaven_plan::pod::PodError;
use trishanku_heaven_plan::workload::{HEAVEN, Replicas};
use trishanku_heaven_plan::{HeavenParts, objects, pod};

use crate::labels::Labelled;

type Problem = Option<(String, String)>;

fn typed<T: DeserializeOwned>(spec: &Value) -> Result<T, (String, String)> {
    serde_json::from_value(spec.clone()).map_err(|error| ("spec".to_owned(), error.to_string()))
}

fn at(field: &str, error: &impl std::error::Error) -> (String, String) {
    (field.to_owned(), error.to_string())
}

/// Remotes with a fixed conflict resolution, which has side effects on deletions and later edits.
pub(crate) fn explicit_resolutions(spec: &Value) -> impl Iterator<Item = (String, String)> {
    let remotes = spec["gitcd"]["git"]["remotes"].as_array().cloned().unwrap_or_default();
    remotes.into_iter().enumerate().filter_map(|(at, remote)| {
        let side = match remote["conflictResolution"].as_i64()? {
            1 => "ours",
            2 => "theirs",
            _ => return None,
        };
        let problem = format!(
            "with {side} a merge keeps updates of objects that the other side has deleted, and edits that other branches made later; leave it out so that merges \
             behave as one kube-apiserver"
        );
        Some((format!("spec.gitcd.git.remotes[{at}].conflictResolution"), problem))
    })
}

/// Passwords and tokens that are sent without encryption.
pub(crate) fn unencrypted(spec: &Value) -> Vec<(String, String)> {
    let Ok(gitcd) = serde_json::from_value::<Gitcd>(spec["gitcd"].clone()) else { return Vec::new() };
    let remotes = exposed_remotes(&gitcd).filter(|_| gitcd.credentials_secret_name.is_some()).map(|(at, _)| {
        let problem = "plain HTTP does not encrypt credentials, so they are not sent there: use https://, or set \
                       gitcd.allowPlainHttpCredentials; if the Secret with them has a url of another server, nothing has to be \
                       changed";
        (format!("spec.gitcd.git.remotes[{at}].repo"), problem.to_owned())
    });
    let host = gitcd.host.as_ref().filter(|host| host.tls_secret_name.is_none()).map(|_| {
        let problem = "the Git host serves plain HTTP, so everyone on the network can read tokens: set tlsSecretName";
        ("spec.gitcd.host".to_owned(), problem.to_owned())
    });
    remotes.chain(host).collect()
}

/// The first error of the plan. `labelled` is a namespace whose label names the heaven.
pub(crate) fn check(kind: &str, name: &str, spec: &Value, labelled: Option<Labelled<'_>>) -> Problem {
    match kind {
        "TrishankuHeaven" => of_heaven(name, spec, labelled).err(),
        "AutomatedMerge" => of_merge(name, spec).err(),
        _ => None,
    }
}

fn of_heaven(name: &str, spec: &Value, labelled: Option<Labelled<'_>>) -> Result<(), (String, String)> {
    let spec: TrishankuHeavenSpec = typed(spec)?;
    let parts = HeavenParts::of_spec(name, &spec);
    if parts.skips_app {
        // Otherwise it may be the heaven of a controller on another machine.
        return match labelled {
            Some(labelled) => {
                injected::check(parts).map_err(|error| ("spec".to_owned(), format!("{error}; {labelled}")))
            }
            None if parts.branch().contains(REPLICA) => injected::check(parts).map_err(|error| at("spec", &error)),
            None => Ok(()),
        };
    }
    if let Some(labelled) = labelled {
        let problem = format!(
            "{labelled}, but it runs its own Deployment, so it cannot be injected: set skip.app, or remove the label"
        );
        return Err(("spec.skip.app".to_owned(), problem));
    }
    if parts.pod_template.is_none() {
        return Ok(());
    }
    objects::host_service(name, HEAVEN, parts.gitcd).map_err(|error| at("spec", &error))?;
    match pod::of_heaven(&parts, &Images::default(), &EntryPoints::default(), Replicas::One) {
        Ok(_) => Ok(()),
        Err(PodError::Template { field, error }) => Err(at(&format!("spec.{field}"), &error)),
        Err(error) => Err(at("spec", &error)),
    }
}

fn of_merge(name: &str, spec: &Value) -> Result<(), (String, String)> {
    let spec: AutomatedMergeSpec = typed(spec)?;
    let plan = merge(name, &spec, &Images::default(), &Place::pod(), &EntryPoints::default());
    plan.map(drop).map_err(|error| at("spec", &error))
}
