//! A minimal HTTP client for `/health` and `/metrics`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Fetches `path`; returns status and body, or an error after two seconds.
pub(crate) async fn fetch(server: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    tokio::time::timeout(Duration::from_secs(2), exchange(server, path)).await?
}

async fn exchange(server: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(server).await?;
    // HTTP/1.0 without keep-alive: the body ends with the stream and is never chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    match (status, answer.split_once("\r\n\r\n")) {
        (Some(status), Some((_, body))) => Ok((status, body.to_owned())),
        _ => Err(io::Error::other(format!("not an HTTP response: {answer:?}"))),
    }
}
