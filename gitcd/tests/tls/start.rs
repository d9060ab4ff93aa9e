//! Certificates at startup: unusable files are refused by name, expired ones are warned about.

use super::Files;
use super::authority::Authority;
use super::client::shown;
use super::support::{Kind, Launch};

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_by_name() {
    let key_of_another = Authority::new("other").issue("other").key;
    let cases: [(&str, Option<&str>, &str); 8] = [
        ("server.crt", None, "No such file"),
        ("server.crt", Some(""), "has no certificate"),
        ("server.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "server.crt"),
        ("server.key", None, "No such file"),
        ("server.key", Some("nonsense"), "has no private key"),
        ("server.key", Some(&key_of_another), "not the key of the certificate"),
        ("clients.crt", None, "No such file"),
        ("clients.crt", Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "clients.crt"),
    ];
    for (name, content, problem) in cases {
        let files = Files::new();
        let path = files.folder.path().join(name);
        match content {
            None => std::fs::remove_file(&path).unwrap(),
            Some(content) => std::fs::write(&path, content).unwrap(),
        }
        let exit = files.launch_mutual().spawn().exit().await;
        assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
        let path = path.display().to_string();
        assert!(exit.output.contains(&path) && exit.output.contains(problem), "{name} {content:?}: {}", exit.output);
    }
}

#[tokio::test]
async fn a_key_on_a_curve_that_is_not_supported_is_refused_with_those_that_are() {
    let files = Files::new();
    std::fs::write(files.cert(), include_str!("p521/p521.crt")).unwrap();
    std::fs::write(files.key(), include_str!("p521/p521.key")).unwrap();
    let exit = files.launch().spawn().exit().await;
    assert_eq!(exit.status.code(), Some(1), "{}", exit.output);
    let path = files.cert().display().to_string();
    let says = |what: &str| exit.output.contains(what);
    assert!(says(&path) && says("P-521, which is not supported; use P-256, P-384"), "{}", exit.output);
}

#[tokio::test]
async fn an_authority_on_such_a_curve_is_warned_of() {
    let files = Files::new();
    std::fs::write(files.authority(), include_str!("p521/p521.crt")).unwrap();
    let server = files.launch_mutual().start().await;
    assert!(server.output().contains("P-521, which is not supported"), "{}", server.output());
}

#[tokio::test]
async fn certificates_beside_a_url_without_tls_are_warned_of() {
    let files = Files::new();
    let server = files.launch_mutual().start().await;
    let (said, plain) =
        (server.output(), format!("http://{} in --listen-urls is served without TLS", server.address()));
    for words in [&*plain, "--tls-cert", "--tls-trusted-ca-certs", &format!("Write https://{}", server.address())] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("is served without TLS").count(), 1, "the other listener has TLS: {said}");
}

#[tokio::test]
async fn a_listener_without_its_certificates_is_refused() {
    let exit = Launch::new(Kind::Gitcd).secure().spawn().exit().await;
    assert!(!exit.status.success() && exit.output.contains("--tls-cert"), "{}", exit.output);
    // If client certificates are required, an unauthenticated listener must not be started.
    let files = Files::new();
    let trusted = format!("--tls-trusted-ca-certs={}", files.authority().display());
    let exit = Launch::new(Kind::Gitcd).argument(trusted).spawn().exit().await;
    assert!(!exit.status.success() && exit.output.contains("--tls-cert"), "{}", exit.output);
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_warned_of() {
    let files = Files::new();
    files.install(&files.servers.issue_until("gitcd", 2020));
    let server = files.launch().start().await;
    let log = server.output();
    let warned = |line: &&str| line.contains("WARN") && line.contains("has expired");
    let warning = log.lines().find(warned).unwrap_or_else(|| panic!("no warning: {log}"));
    assert!(warning.contains(&files.cert().display().to_string()) && warning.contains("2020"), "{warning}");
    files.install(&files.servers.issue("gitcd"));
    shown(server.secure_address(), &files).await;
}
