//! A GitHub Enterprise server: another address with a path and a self-signed certificate.

use std::sync::Arc;

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::fake::{Fake, TOKEN};
use crate::world::{World, settings};

/// Puts TLS in front of a plain server; returns URL and certificate.
async fn secured(fake: &Fake) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let behind = fake.url.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                copy_bidirectional(&mut stream, &mut TcpStream::connect(behind).await?).await
            });
        }
    });
    (url, made.cert.pem())
}

#[tokio::test]
async fn a_server_is_trusted_by_the_certificates_in_the_secret_and_by_no_others() {
    let fake = Fake::start().await;
    let (url, certificate) = secured(&fake).await;
    let mut world = World::at(fake, url, settings()).await;
    world.apply("one", json!({})).await;
    let unready = world.is("one", "Ready", "False", "GitHubUnreachable").await;
    assert!(unready.message.contains("certificate"), "{unready:?}");
    // Nothing was sent to a server that is not trusted.
    assert!(world.fake.calls().is_empty());
    world.apply("one", json!({"credentialsSecretCaKey": "ca.crt"})).await;
    let waiting = world.is("one", "Ready", "False", "SecretNotFound").await;
    assert!(waiting.message.contains("ca.crt"), "{waiting:?}");
    world.secret(&[("password", TOKEN), ("ca.crt", "no certificate")]).await;
    world.is("one", "Stalled", "True", "AccessInvalid").await;
    world.secret(&[("password", TOKEN), ("ca.crt", &certificate)]).await;
    world.is_ready("one").await;
    assert_eq!(world.fake.writes(), ["POST /user/repos 201"]);
    world.stop().await;
}
