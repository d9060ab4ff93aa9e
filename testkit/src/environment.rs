//! The cluster that the environment selects.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::StartError;
use crate::store::Storage;

const KUBECONFIG: &str = "TRISHANKU_TESTKIT_KUBECONFIG";
const CONTEXT: &str = "TRISHANKU_TESTKIT_CONTEXT";
const STORAGE: &str = "TRISHANKU_TESTKIT_STORAGE";

#[cfg(feature = "gitcd")]
const STORAGES: &str = "gitcd or etcd";
#[cfg(not(feature = "gitcd"))]
const STORAGES: &str = "etcd (gitcd needs the feature gitcd of trishanku-testkit)";

/// The cluster to test on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    Existing { kubeconfig: PathBuf, context: Option<String> },
    Start(Storage),
}

/// Returns the cluster that these variables select; an empty one is as one that is not set.
pub(crate) fn selected(variable: impl Fn(&str) -> Option<OsString>) -> Result<Selected, StartError> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    let text = |value: OsString| value.to_string_lossy().into_owned();
    let (kubeconfig, context, storage) = (set(KUBECONFIG), set(CONTEXT).map(text), set(STORAGE).map(text));
    let invalid = |variable, value, expected| Err(StartError::Variable { variable, value, expected });
    match (kubeconfig, context, storage) {
        (Some(_), _, Some(storage)) => {
            invalid(STORAGE, storage, "it to be unset beside TRISHANKU_TESTKIT_KUBECONFIG: the cluster has its store")
        }
        (Some(kubeconfig), context, None) => Ok(Selected::Existing { kubeconfig: kubeconfig.into(), context }),
        (None, Some(context), _) => invalid(CONTEXT, context, "TRISHANKU_TESTKIT_KUBECONFIG beside it"),
        (None, None, None) => Ok(Selected::Start(Storage::default())),
        (None, None, Some(name)) => match name.as_str() {
            #[cfg(feature = "gitcd")]
            "gitcd" => Ok(Selected::Start(Storage::Gitcd)),
            "etcd" => Ok(Selected::Start(Storage::Etcd)),
            _ => invalid(STORAGE, name, STORAGES),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Selected, String> {
        let value =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into());
        selected(value).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_select_a_store_or_an_existing_cluster() {
        assert_eq!(of(&[]), Ok(Selected::Start(Storage::default())));
        assert_eq!(of(&[(STORAGE, ""), (KUBECONFIG, "")]), Ok(Selected::Start(Storage::default())));
        assert_eq!(of(&[(STORAGE, "etcd")]), Ok(Selected::Start(Storage::Etcd)));
        let context = Some("kind".to_owned());
        let kubeconfig = "/k".into();
        assert_eq!(of(&[(KUBECONFIG, "/k"), (CONTEXT, "kind")]), Ok(Selected::Existing { kubeconfig, context }));
    }

    #[test]
    fn contradictions_and_unknown_values_are_refused_by_name() {
        for (variables, expected) in [
            (&[(STORAGE, "sqlite")][..], "TRISHANKU_TESTKIT_STORAGE=\"sqlite\" is invalid: expected"),
            (&[(STORAGE, "etcd"), (KUBECONFIG, "/k")], "unset beside TRISHANKU_TESTKIT_KUBECONFIG"),
            (&[(CONTEXT, "kind")], "TRISHANKU_TESTKIT_CONTEXT=\"kind\" is invalid"),
        ] {
            let error = of(variables).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
