//! Requests that the stock `git` would not send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// A response, with its head as text.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) fn get(address: SocketAddr, path: &str, headers: &[&str]) -> Answer {
    request(address, "GET", path, headers, b"")
}

pub(crate) fn post(address: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let service = path.rsplit('/').next().unwrap_or_default();
    let kind = format!("Content-Type: application/x-{service}-request");
    request(address, "POST", path, &[&[kind.as_str()], headers].concat(), body)
}

pub(crate) fn request(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
    let mut stream = begin(address, method, path, headers, body.len());
    // The host may respond and close before it has read the whole body.
    let _written = stream.write_all(body);
    let mut answer = Vec::new();
    let _ended = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the response has a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("the response has a status");
    Answer { status, head, body: answer[end + 4..].to_vec() }
}

/// Sends the head of a request. With HTTP/1.0, the response ends when the connection closes.
pub(crate) fn begin(address: SocketAddr, method: &str, path: &str, headers: &[&str], length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the host is listening");
    stream.set_read_timeout(Some(4 * PATIENCE)).expect("the timeout is not zero");
    let length = if method == "POST" { format!("Content-Length: {length}\r\n") } else { String::new() };
    let headers: Vec<_> = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{length}{}\r\n", headers.concat());
    stream.write_all(head.as_bytes()).expect("the host reads");
    stream
}

/// Returns a pkt-line.
pub(crate) fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}", text.len() + 4).into_bytes()
}

/// Returns the body of a push: its commands and a pack.
pub(crate) fn push(commands: &[(&str, &str, &str)], capabilities: &str, pack: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, (old, new, name)) in commands.iter().enumerate() {
        let capabilities = if at == 0 { format!("\0{capabilities}") } else { String::new() };
        body.extend(line(&format!("{old} {new} {name}{capabilities}")));
    }
    body.extend_from_slice(b"0000");
    body.extend_from_slice(pack);
    body
}

pub(crate) const ZERO: &str = "0000000000000000000000000000000000000000";
