//! A client that sends exactly the given bytes: no URL is normalized.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a response may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: String,
    pub(crate) host: String,
    /// Empty for none.
    pub(crate) cookie: String,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the targets of links, unescaped.
    pub(crate) fn links(&self) -> Vec<String> {
        let starts = self.body.split("href=\"").skip(1);
        let unescaped = |link: &str| link.replace("&quot;", "\"").replace("&lt;", "<").replace("&amp;", "&");
        starts.filter_map(|rest| rest.split('"').next()).map(unescaped).collect()
    }

    /// Returns the value of a hidden field of a form.
    #[allow(dead_code, reason = "the tests of undo use it")]
    pub(crate) fn hidden(&self, name: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\" value=\""))?;
        rest.split('"').next().map(ToOwned::to_owned)
    }

    /// Returns the link to the next page.
    pub(crate) fn next(&self) -> Option<String> {
        let (_, rest) = self.body.split_once("rel=\"next\" href=\"")?;
        rest.split('"').next().map(|link| link.replace("&amp;", "&"))
    }
}

impl Client {
    pub(crate) fn new(address: String) -> Self {
        Self { host: format!("Host: {address}\r\n"), address, cookie: String::new() }
    }

    pub(crate) async fn get(&self, target: &str) -> Response {
        self.send("GET", target).await
    }

    /// Gets a page that exists.
    pub(crate) async fn page(&self, target: &str) -> Response {
        let response = self.get(target).await;
        assert_eq!(response.status, 200, "{target}: {}", response.body);
        response
    }

    pub(crate) async fn send(&self, method: &str, target: &str) -> Response {
        Self::receive(self.start(method, target, "", "").await).await
    }

    /// Sends a form. `headers` are lines, each with its end.
    #[allow(dead_code, reason = "the tests of undo use it")]
    pub(crate) async fn post(&self, target: &str, fields: &[(&str, &str)], headers: &str) -> Response {
        let encode = |text: &str| percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string();
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        let headers = format!("{headers}Content-Type: application/x-www-form-urlencoded\r\n");
        Self::receive(self.start("POST", target, &headers, &body.join("&")).await).await
    }

    async fn receive(mut stream: TcpStream) -> Response {
        let mut bytes = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
        read.expect("there is a response in time").expect("the connection works");
        let text = String::from_utf8(bytes).expect("pages are UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("there is a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("there is a status");
        Response { status, head: head.to_owned(), body: body.to_owned() }
    }

    async fn start(&self, method: &str, target: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("the page is served");
        let cookie = if self.cookie.is_empty() { String::new() } else { format!("Cookie: {}\r\n", self.cookie) };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{method} {target} HTTP/1.1\r\n{}{cookie}{headers}{length}Connection: close", self.host);
        let request = format!("{head}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.expect("the connection works");
        stream
    }

    pub(crate) async fn events(&self) -> Events {
        Events { stream: self.start("GET", "/events", "", "").await, text: String::new() }
    }
}

/// A stream of events.
pub(crate) struct Events {
    stream: TcpStream,
    text: String,
}

impl Events {
    /// Waits for the next head that is announced.
    pub(crate) async fn next(&mut self) -> String {
        let found = timeout(PATIENCE, async {
            loop {
                if let Some(at) = self.text.find("data: ")
                    && let Some(end) = self.text[at..].find('\n')
                {
                    let data = self.text[at + 6..at + end].trim().to_owned();
                    self.text.drain(..at + end);
                    return data;
                }
                let mut bytes = [0; 4096];
                let read = self.stream.read(&mut bytes).await.expect("the connection works");
                assert!(read > 0, "the stream ended: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        found.await.expect("there is an event in time")
    }
}
