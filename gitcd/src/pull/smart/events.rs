//! Changes that a remote tells of.

use serde::Deserialize;

use super::{Exchange, error};
use crate::pull::program::Failed;

/// A stream of changes of references; see `docs/design/host.md`.
#[derive(Debug)]
pub(in crate::pull) struct Events {
    response: reqwest::Response,
    /// What has come of the next event.
    text: Vec<u8>,
}

#[derive(Deserialize)]
struct Change {
    reference: String,
}

impl Exchange<'_> {
    /// Follows the references; `None` if the remote does not tell of changes.
    pub(in crate::pull) async fn events(&self) -> Result<Option<Events>, Failed> {
        let Some(at) = &self.remote.events else { return Ok(None) };
        let request = self.client.get(format!("{}/{at}", self.remote.url)).header("accept", "text/event-stream");
        Ok(Some(Events { response: self.send(request).await?, text: Vec::new() }))
    }
}

impl Events {
    /// Returns when one of these references has changed, or any may have; the first time, as soon as changes are told.
    pub(in crate::pull) async fn next(&mut self, wanted: &[&str]) -> Result<(), Failed> {
        const LONGEST: usize = 64 << 20;
        loop {
            while let Some(end) = self.text.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                if concerns(&String::from_utf8_lossy(&event), wanted) {
                    return Ok(());
                }
            }
            match self.response.chunk().await.map_err(|failed| error(&failed))? {
                Some(chunk) if self.text.len() + chunk.len() <= LONGEST => self.text.extend_from_slice(&chunk),
                _ => return Err(Failed::of("the stream of changes has ended")),
            }
        }
    }
}

/// A snapshot concerns everybody: it says that changes were not told one by one.
fn concerns(event: &str, wanted: &[&str]) -> bool {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    match field("event: ") {
        Some("change") => field("data: ")
            .and_then(|data| serde_json::from_str::<Change>(data).ok())
            .is_none_or(|change| wanted.contains(&&*change.reference)),
        Some(_) => true,
        // A sign of life.
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::concerns;

    #[test]
    fn only_what_is_wanted_counts() {
        let wanted = ["refs/heads/main"];
        let change = |name: &str| {
            format!("event: change\ndata: {{\"reference\":\"{name}\",\"old\":null,\"new\":\"{}\"}}\n\n", "1".repeat(40))
        };
        assert!(concerns(&change("refs/heads/main"), &wanted));
        assert!(!concerns(&change("refs/heads/other"), &wanted));
        assert!(concerns("event: snapshot\ndata: {\"references\":{}}\n\n", &wanted));
        assert!(!concerns(": still here\n\n", &wanted));
    }
}
