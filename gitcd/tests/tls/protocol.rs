//! Supported protocols: TLS 1.2 and later, HTTP/2 and HTTP/1.1.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::version;

use super::Files;
use super::client::{Hello, fetch, handshake};

#[tokio::test]
async fn http_2_is_preferred_and_http_1_is_served() {
    let files = Files::new();
    let server = files.launch().start().await;
    let cases: [(&[&str], Option<&str>); 4] =
        [(&["http/1.1", "h2"], Some("h2")), (&["h2"], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)];
    for version in [&version::TLS12, &version::TLS13] {
        for (protocols, chosen) in cases {
            let hello = Hello { version, protocols, ..Hello::default() };
            let stream = handshake(server.secure_address(), &files.servers, hello).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes), "{protocols:?}");
            assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
        }
        for protocols in [&["http/1.1"] as &[_], &[]] {
            let hello = Hello { version, protocols, ..Hello::default() };
            let answer = fetch(server.secure_address(), &files.servers, hello, "/health").await.unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"health":"true","reason":""}"#),
                "{answer}"
            );
        }
    }
}

/// A `ClientHello` that is valid but for its version.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let suites = [0xc0, 0x2b, 0xc0, 0x09];
    // P-256 and its signatures.
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.extend([0, 0, suites.len() as u8]);
    body.extend(suites);
    body.extend([1, 0, 0, extensions.len() as u8]);
    body.extend(extensions);
    let mut message = vec![1, 0, 0, body.len() as u8];
    message.extend(body);
    let mut record = vec![22, 3, 1, 0, message.len() as u8];
    record.extend(message);
    record
}

#[tokio::test]
async fn versions_before_tls_1_2_are_refused() {
    let files = Files::new();
    let server = files.launch().start().await;
    for (version, refused) in [([3, 0], true), ([3, 1], true), ([3, 2], true), ([3, 3], false)] {
        let mut stream = TcpStream::connect(server.secure_address()).await.unwrap();
        stream.write_all(&hello(version)).await.unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.unwrap();
        if refused {
            // A fatal alert: protocol version.
            assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{version:?}: {answer:?}");
        } else {
            // The handshake continues with a ServerHello.
            assert_eq!((answer[0], answer[5]), (22, 2), "{answer:?}");
        }
    }
}
