//! Whether the Git host of a heaven serves over TLS; pure.

use k8s_openapi::api::core::v1::Secret;
use trishanku_api::Gitcd;
use trishanku_heaven_plan::workload::State;

/// The Secret with the certificate of the Git host, if the manifest names one.
pub(crate) fn certificate(gitcd: Option<&Gitcd>) -> Option<&str> {
    gitcd?.host.as_ref()?.tls_secret_name.as_deref()
}

/// The condition of a Git host; `None` without a host. A host without TLS is not an error: manifests from before the field
/// exists keep working.
pub(crate) fn encrypted(gitcd: Option<&Gitcd>, secret: Option<&Secret>) -> Option<State> {
    gitcd?.host.as_ref()?;
    let Some(name) = certificate(gitcd) else {
        let message = "the Git host serves plain HTTP, so everyone on the network can read the tokens of its users: set \
                       spec.gitcd.host.tlsSecretName, and use https:// in the remotes that name this host";
        return Some(State::new(false, "PlainHTTP", message));
    };
    let Some(secret) = secret else {
        let message =
            format!("Secret {name:?} in spec.gitcd.host.tlsSecretName does not exist, and the pod waits for it");
        return Some(State::new(false, "NotFound", message));
    };
    let is_missing = |key: &&str| {
        let value = secret.data.as_ref().and_then(|data| data.get(*key));
        value.is_none_or(|value| value.0.is_empty())
    };
    match ["tls.crt", "tls.key"].into_iter().find(is_missing) {
        Some(key) => {
            let message = format!(
                "Secret {name:?} in spec.gitcd.host.tlsSecretName has no {key}: its type must be kubernetes.io/tls"
            );
            Some(State::new(false, "SecretIncomplete", message))
        }
        None => Some(State::new(true, "TLS", "")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_without_tls_or_without_its_certificate_is_reported() {
        let gitcd = |host: serde_json::Value| -> Gitcd { serde_json::from_value(json!({"host": host})).unwrap() };
        let secret = |keys: &[&str]| Secret {
            data: Some(keys.iter().map(|key| ((*key).to_owned(), ByteString(b"PEM".to_vec()))).collect()),
            ..Secret::default()
        };
        let plain = gitcd(json!({"tokensSecretName": "t"}));
        let secure = gitcd(json!({"tokensSecretName": "t", "tlsSecretName": "host"}));
        for (gitcd, secret, is, reason, words) in [
            (&plain, None, false, "PlainHTTP", "tlsSecretName"),
            (&secure, None, false, "NotFound", "\"host\""),
            (&secure, Some(secret(&["tls.crt"])), false, "SecretIncomplete", "no tls.key"),
            (&secure, Some(secret(&["tls.crt", "tls.key", "ca.crt"])), true, "TLS", ""),
        ] {
            let state = encrypted(Some(gitcd), secret.as_ref()).unwrap();
            assert_eq!((state.is, state.reason.as_str()), (is, reason));
            assert!(state.message.contains(words), "{state:?}");
        }
        assert_eq!(encrypted(Some(&Gitcd::default()), None), None);
        assert_eq!(encrypted(None, None), None);
    }
}
