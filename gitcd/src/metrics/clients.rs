//! Requests by the version of the client's library, which Go's client tells.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName};
use parking_lot::RwLock;

const VERSION: HeaderName = HeaderName::from_static("client-api-version");
/// A client that tells none.
const UNKNOWN: &str = "unknown";
/// No more versions than that: clients could invent them.
const VERSIONS: usize = 64;

/// How many requests there were of each version.
#[derive(Debug, Default)]
pub(super) struct Clients(RwLock<Vec<Version>>);

#[derive(Debug)]
struct Version {
    name: Box<str>,
    /// With one answer, and streams.
    requests: [AtomicU64; 2],
}

impl Clients {
    /// Counts a request. The versions that were seen first are found first, which are one or two.
    pub(super) fn count(&self, headers: &HeaderMap, is_stream: bool) {
        let name = headers.get(VERSION).and_then(|version| version.to_str().ok()).unwrap_or(UNKNOWN);
        let count = |versions: &[Version]| {
            let version = versions.iter().find(|version| &*version.name == name)?;
            version.requests[usize::from(is_stream)].fetch_add(1, Ordering::Relaxed);
            Some(())
        };
        if count(&self.0.read()).is_some() {
            return;
        }
        let mut versions = self.0.write();
        if count(&versions).is_none() && versions.len() < VERSIONS {
            versions.push(Version { name: name.into(), requests: [AtomicU64::default(), AtomicU64::default()] });
            count(&versions);
        }
    }

    /// Version, kind of request, number; only what there was.
    pub(super) fn counted(&self) -> Vec<(String, &'static str, u64)> {
        let versions = self.0.read();
        let counted = versions.iter().flat_map(|version| {
            let kinds = ["unary", "stream"].into_iter().zip(&version.requests);
            kinds.map(|(kind, number)| (version.name.to_string(), kind, number.load(Ordering::Relaxed)))
        });
        counted.filter(|(_, _, number)| *number > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn versions_are_told_apart_and_bounded() {
        let clients = Clients::default();
        clients.count(&HeaderMap::new(), false);
        for version in 0..100 {
            let headers = HeaderMap::from_iter([(VERSION, HeaderValue::from_str(&format!("3.{version}")).unwrap())]);
            clients.count(&headers, true);
            clients.count(&headers, true);
        }
        let counted = clients.counted();
        assert_eq!(counted.len(), VERSIONS);
        assert_eq!(counted[0], ("unknown".to_owned(), "unary", 1));
        assert_eq!(counted[1], ("3.0".to_owned(), "stream", 2));
    }
}
