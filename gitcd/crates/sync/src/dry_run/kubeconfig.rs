//! Parser for the current context of a kubeconfig: the cluster's address and the user's credentials.
//!
//! Source: `k8s.io/client-go/tools/clientcmd/api/v1`, `Config`. Only client certificates and tokens are supported.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use gitcd_core::plain_http::is_exposed;
use reqwest::Url;
use serde::Deserialize;

/// The cluster and user of a context.
pub(super) struct Cluster {
    pub(super) server: String,
    /// CA certificates in PEM; `None` for this machine's trust store.
    pub(super) authority: Option<Vec<u8>>,
    /// Client certificate and key in PEM.
    pub(super) identity: Option<Vec<u8>>,
    pub(super) token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: ClusterEntry,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterEntry {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
}

impl Cluster {
    /// Checks that no token or password would be sent over plain HTTP to another machine.
    pub(super) fn check_encryption(&self) -> Result<(), String> {
        let is_sent = self.token.is_some() || self.server.contains('@');
        if !is_sent || !is_exposed(&self.server) {
            return Ok(());
        }
        let url = self.server.parse::<Url>().ok().and_then(|mut url| {
            url.set_username("").and_then(|()| url.set_password(None)).ok()?;
            Some(url.to_string())
        });
        Err(format!(
            "its token is not sent to {}, because plain HTTP does not encrypt it: use https://, or allow it with \
             --allow-plain-http-credentials",
            url.as_deref().unwrap_or("the server")
        ))
    }
}

/// Reads the current context of a kubeconfig.
pub(super) fn read(path: &Path) -> Result<Cluster, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    // The parser's message can quote a line with a private key, so it is not reported.
    let config: Config = serde_saphyr::from_str(&text).map_err(|_| "it is not a valid kubeconfig".to_owned())?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let context = config.contexts.iter().find(|named| named.name == config.current_context);
    let context = &context.ok_or_else(|| format!("it has no context {:?}", config.current_context))?.context;
    let cluster = config.clusters.into_iter().find(|named| named.name == context.cluster);
    let cluster = cluster.ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?.cluster;
    let user = config.users.into_iter().find(|named| named.name == context.user);
    let user = user.ok_or_else(|| format!("it has no user {:?}", context.user))?.user;
    if cluster.insecure_skip_tls_verify || cluster.tls_server_name.is_some() {
        return Err(
            "insecure-skip-tls-verify and tls-server-name are not supported: name the certificate authority".into()
        );
    }
    let certificate = bytes("client-certificate", folder, user.client_certificate_data, user.client_certificate)?;
    let key = bytes("client-key", folder, user.client_key_data, user.client_key)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some([certificate, b"\n".to_vec(), key].concat()),
        _ => None,
    };
    let token = match (user.token, user.token_file) {
        (Some(token), _) => Some(token),
        (None, Some(file)) => Some(file_of("tokenFile", folder, &file)?),
        (None, None) => None,
    };
    if identity.is_none() && token.is_none() {
        return Err(format!("the user {:?} has neither a client certificate with its key nor a token", context.user));
    }
    Ok(Cluster {
        server: cluster.server.trim_end_matches('/').to_owned(),
        authority: bytes(
            "certificate-authority",
            folder,
            cluster.certificate_authority_data,
            cluster.certificate_authority,
        )?,
        identity,
        token: token.map(|token| token.trim().to_owned()),
    })
}

/// Returns the decoded data of a field, or the content of its file.
fn bytes(field: &str, folder: &Path, data: Option<String>, file: Option<PathBuf>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => {
            let decoded = BASE64_STANDARD.decode(data.trim());
            decoded.map(Some).map_err(|_| format!("its {field}-data is not in base64"))
        }
        (None, Some(file)) => Ok(Some(file_of(field, folder, &file)?.into_bytes())),
        (None, None) => Ok(None),
    }
}

/// Reads a file, whose path is relative to the kubeconfig's folder.
fn file_of(field: &str, folder: &Path, file: &Path) -> Result<String, String> {
    std::fs::read_to_string(folder.join(file)).map_err(|error| format!("its {field} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Cluster, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "from-a-file\n").unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "current-context: c\ncontexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\nclusters:\n- {{name: k, cluster: {cluster}}}\nusers:\n- {{name: u, user: {user}}}\n"
        )
    }

    #[test]
    fn certificates_and_tokens_are_read_from_fields_and_files() {
        let read = read_text(&config(
            "{server: 'https://h:1/', certificate-authority-data: YQ==}",
            "{client-certificate-data: Yg==, client-key-data: Yw==}",
        ))
        .unwrap();
        assert_eq!((read.server.as_str(), read.authority.as_deref()), ("https://h:1", Some(&b"a"[..])));
        assert_eq!(read.identity.as_deref(), Some(&b"b\nc"[..]));
        let read = read_text(&config("{server: 'https://h:1'}", "{tokenFile: token}")).unwrap();
        assert_eq!(read.token.as_deref(), Some("from-a-file"));
    }

    #[test]
    fn a_token_is_not_sent_over_plain_http_to_another_machine() {
        let check = |server: &str, user: &str| {
            let cluster = read_text(&config(&format!("{{server: '{server}'}}"), user)).unwrap();
            cluster.check_encryption()
        };
        let (token, certificate) = ("{token: hunter2}", "{client-certificate-data: Yg==, client-key-data: Yw==}");
        for (server, user) in [
            ("http://k.example.org:8080/", token),
            (" http://k.example.org", token),
            ("http:k.example.org", token),
            ("http://ann:hunter2@k.example.org", certificate),
        ] {
            let problem = check(server, user).unwrap_err();
            assert!(problem.contains("use https://") && problem.contains("k.example.org"), "{problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        for (server, user) in
            [("https://k.example.org", token), ("http://127.0.0.1:8080", token), ("http://k.example.org", certificate)]
        {
            assert_eq!(check(server, user), Ok(()), "{server}");
        }
    }

    #[test]
    fn errors_name_missing_fields_and_no_secrets() {
        let problems = [
            ("hunter2: [", "it is not a valid kubeconfig"),
            ("current-context: c\n", "it has no context \"c\""),
            (&config("{server: 'https://h'}", "{exec: {command: hunter2}}"), "neither a client certificate"),
            (&config("{server: 'https://h'}", "{client-key-data: hunter2!}"), "client-key-data is not in base64"),
            (&config("{server: 'https://h'}", "{tokenFile: gone}"), "its tokenFile gone: "),
            (&config("{server: 'https://h', insecure-skip-tls-verify: true}", "{token: hunter2}"), "not supported"),
        ];
        for (text, expected) in problems {
            let problem = read_text(text).err().unwrap();
            assert!(problem.contains(expected) && !problem.contains("hunter2"), "{problem}");
        }
    }
}
