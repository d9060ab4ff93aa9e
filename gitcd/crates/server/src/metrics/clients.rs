//! Requests by the version of the client's library, which etcd's Go client sends.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName};

const VERSION: HeaderName = HeaderName::from_static("client-api-version");
/// Version of a client that sends none.
const UNKNOWN: &str = "unknown";
/// Limit on versions, since clients could invent them.
const VERSIONS: usize = 64;

/// Numbers of requests by version, in the order in which the versions were first seen.
#[derive(Debug)]
pub(super) struct Clients([OnceLock<Version>; VERSIONS]);

impl Default for Clients {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }
}

#[derive(Debug)]
struct Version {
    name: Box<str>,
    /// Unary, and streams.
    requests: [AtomicU64; 2],
}

impl Clients {
    /// Counts a request, without a lock. Searches the versions in order; most servers see one or two.
    pub(super) fn count(&self, headers: &HeaderMap, is_stream: bool) {
        let name = headers.get(VERSION).and_then(|version| version.to_str().ok()).unwrap_or(UNKNOWN);
        let new = || Version { name: name.into(), requests: [AtomicU64::default(), AtomicU64::default()] };
        if let Some(version) = self.0.iter().map(|slot| slot.get_or_init(new)).find(|version| &*version.name == name) {
            version.requests[usize::from(is_stream)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns version, kind of request and number, except zeros.
    pub(super) fn counted(&self) -> Vec<(String, &'static str, u64)> {
        let counted = self.0.iter().filter_map(OnceLock::get).flat_map(|version| {
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
    fn versions_are_distinguished_and_bounded() {
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
