//! Whether a heaven's kube-apiserver stores Secrets encrypted: a pure function of the manifest and the configuration.

use serde::Deserialize;
use serde_json::{Map, Value};
use trishanku_api::ApiServer;

/// The key of the configuration in its Secret.
pub const FILE: &str = "encryption.yaml";
const FLAG: &str = "encryption-provider-config";

/// Whether Secrets are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// They are.
    On,
    /// They are not; with the reason if a configuration is given.
    Off(Option<String>),
    /// The Secret with the configuration does not exist yet; the text names it.
    Unknown(String),
}

/// The parts of an `EncryptionConfiguration` that decide it:
/// <https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/#apiserver-config-k8s-io-v1-EncryptionConfiguration>.
#[derive(Deserialize)]
struct EncryptionConfiguration {
    #[serde(default)]
    resources: Vec<ResourceConfiguration>,
}

#[derive(Deserialize)]
struct ResourceConfiguration {
    #[serde(default)]
    resources: Vec<String>,
    /// Each with one key, its name.
    #[serde(default)]
    providers: Vec<Map<String, Value>>,
}

/// Returns the name of the Secret with the configuration, if the flags do not replace it.
pub fn secret(given: Option<&ApiServer>) -> Option<&str> {
    given.filter(|given| !replaces(given))?.encryption_configuration_secret_name.as_deref()
}

/// Whether the manifest sets the flag itself. kube-apiserver accepts underscores, too.
fn replaces(given: &ApiServer) -> bool {
    given.extra_args.keys().any(|name| name.replace('_', "-") == FLAG)
}

/// Returns whether Secrets are encrypted. `configuration` is the content of [`FILE`] in the Secret that [`secret`] names:
/// `None` if there is no such Secret, an empty one if it has no such key.
pub fn of(given: Option<&ApiServer>, configuration: Option<&[u8]>) -> Encryption {
    if given.is_some_and(replaces) {
        let why = format!("apiserver.extraArgs sets {FLAG}, whose file cannot be checked");
        return Encryption::Off(Some(why));
    }
    let Some(name) = secret(given) else { return Encryption::Off(None) };
    let Some(configuration) = configuration else {
        return Encryption::Unknown(format!("Secret {name:?} with the EncryptionConfiguration"));
    };
    match problem(configuration) {
        None => Encryption::On,
        Some(problem) => Encryption::Off(Some(format!("{FILE} in Secret {name:?} {problem}"))),
    }
}

/// Returns why a configuration does not encrypt Secrets: writes use the first provider of the first entry that includes them.
pub fn problem(configuration: &[u8]) -> Option<String> {
    // The error could repeat a key.
    let Ok(configuration) = serde_saphyr::from_slice::<EncryptionConfiguration>(configuration) else {
        return Some("is not an EncryptionConfiguration".to_owned());
    };
    let includes = |entry: &&ResourceConfiguration| {
        entry.resources.iter().any(|resource| ["secrets", "secrets.", "*.", "*.*"].contains(&resource.as_str()))
    };
    let Some(entry) = configuration.resources.iter().find(includes) else {
        return Some("does not include secrets".to_owned());
    };
    let mut configured = entry.providers.first().into_iter().flatten().filter(|(_, value)| !value.is_null());
    match configured.next().map(|(name, _)| name) {
        None => Some("has no provider for secrets".to_owned()),
        Some(name) if name == "identity" => {
            Some("has identity as the first provider for secrets, which does not encrypt".to_owned())
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(entries: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: {entries}\n")
    }

    #[test]
    fn the_first_provider_of_the_first_entry_with_secrets_counts() {
        let given = ApiServer { encryption_configuration_secret_name: Some("e".to_owned()), ..ApiServer::default() };
        let of = |entries: &str| of(Some(&given), Some(configuration(entries).as_bytes()));
        let aes = "{aescbc: {keys: [{name: k, secret: aGVsbG8=}]}}";
        for resource in ["secrets", "'*.'", "'*.*'"] {
            assert_eq!(
                of(&format!("[{{resources: [configmaps, {resource}], providers: [{aes}, {{identity: {{}}}}]}}]")),
                Encryption::On
            );
        }
        for (entries, expected) in [
            (format!("[{{resources: [secrets], providers: [{{identity: {{}}}}, {aes}]}}]"), "identity"),
            (format!("[{{resources: [configmaps], providers: [{aes}]}}]"), "does not include secrets"),
            (format!("[{{resources: ['*.apps'], providers: [{aes}]}}]"), "does not include secrets"),
            (
                "[{resources: [secrets], providers: [{identity: {}}]}, {resources: ['*.*'], providers: [{kms: {}}]}]"
                    .to_owned(),
                "identity",
            ),
            ("[{resources: [secrets], providers: []}]".to_owned(), "no provider"),
            ("[]".to_owned(), "does not include secrets"),
            ("3".to_owned(), "is not an EncryptionConfiguration"),
        ] {
            match of(&entries) {
                Encryption::Off(Some(why)) => {
                    assert!(why.contains(expected) && why.contains("\"e\""), "{entries}: {why}");
                }
                other => panic!("{entries}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_encryption() {
        let mut given =
            ApiServer { encryption_configuration_secret_name: Some("e".to_owned()), ..ApiServer::default() };
        assert!(matches!(of(Some(&given), None), Encryption::Unknown(what) if what.contains("\"e\"")));
        assert!(matches!(of(Some(&given), Some(b"")), Encryption::Off(Some(_))));
        assert_eq!(of(None, None), Encryption::Off(None));
        assert_eq!(of(Some(&ApiServer::default()), None), Encryption::Off(None));
        for name in [FLAG, "encryption_provider_config"] {
            given.extra_args = [(name.to_owned(), "/mine".to_owned())].into();
            assert_eq!(secret(Some(&given)), None);
            assert!(matches!(of(Some(&given), None), Encryption::Off(Some(why)) if why.contains("extraArgs")));
        }
    }
}
