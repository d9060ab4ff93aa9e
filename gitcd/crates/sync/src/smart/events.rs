//! Change notifications of a remote.

use git2::Oid;
use serde::Deserialize;

use super::Exchange;
use super::lines::chunk;
use crate::wire::TransportError;

/// A stream of reference changes; see `docs/design/host.md`.
#[derive(Debug)]
pub(crate) struct Events {
    response: reqwest::Response,
    /// The received part of the next event.
    text: Vec<u8>,
    /// How many bytes of it were searched for its end: a long event arrives in many chunks.
    searched: usize,
}

#[derive(Deserialize)]
struct Change {
    reference: String,
    new: Option<String>,
}

impl Exchange<'_> {
    /// Opens the stream of changes; `None` if the remote has none.
    pub(crate) async fn events(&self) -> Result<Option<Events>, TransportError> {
        let Some(at) = &self.remote.events else { return Ok(None) };
        let request = self.client.get(format!("{}/{at}", self.remote.url)).header("accept", "text/event-stream");
        Ok(Some(Events { response: self.send(request).await?, text: Vec::new(), searched: 0 }))
    }
}

impl Events {
    /// Waits until a reference has changed in a way that is news, or any reference may have. Returns for the first time when the
    /// stream starts.
    pub(crate) async fn next(&mut self, is_news: impl Fn(&str, Option<Oid>) -> bool) -> Result<(), TransportError> {
        const LONGEST: usize = 64 << 20;
        loop {
            while let Some(end) = self.text[self.searched..].windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..self.searched + end + 2).collect();
                self.searched = 0;
                if concerns(&String::from_utf8_lossy(&event), &is_news) {
                    return Ok(());
                }
            }
            self.searched = self.text.len().saturating_sub(1);
            match chunk(&mut self.response).await? {
                Some(chunk) if self.text.len() + chunk.len() <= LONGEST => self.text.extend_from_slice(&chunk),
                _ => return Err(TransportError::of("the stream of changes has ended")),
            }
        }
    }
}

/// Returns whether an event may be news. A snapshot always is: it stands for changes that were not sent one by one.
fn concerns(event: &str, is_news: impl Fn(&str, Option<Oid>) -> bool) -> bool {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    match field("event: ") {
        Some("change") => {
            field("data: ").and_then(|data| serde_json::from_str::<Change>(data).ok()).is_none_or(|change| {
                is_news(&change.reference, change.new.as_deref().and_then(|oid| Oid::from_str(oid).ok()))
            })
        }
        Some(_) => true,
        // A keepalive comment.
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use git2::Oid;

    use super::concerns;

    #[test]
    fn only_changes_of_wanted_references_are_news() {
        let known = Oid::from_bytes(&[0x11; 20]).unwrap();
        let is_news = |name: &str, new: Option<Oid>| name == "refs/heads/main" && new != Some(known);
        let change = |name: &str, new: &str| {
            format!("event: change\ndata: {{\"reference\":\"{name}\",\"old\":null,\"new\":{new}}}\n\n")
        };
        let (same, other) = (format!("\"{known}\""), format!("\"{}\"", "2".repeat(40)));
        assert!(concerns(&change("refs/heads/main", &other), is_news));
        assert!(concerns(&change("refs/heads/main", "null"), is_news));
        assert!(!concerns(&change("refs/heads/main", &same), is_news));
        assert!(!concerns(&change("refs/heads/other", &other), is_news));
        assert!(concerns("event: snapshot\ndata: {\"references\":{}}\n\n", is_news));
        assert!(!concerns(": still here\n\n", is_news));
    }
}
