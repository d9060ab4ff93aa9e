//! Which web pages may send requests.

use http::{HeaderMap, HeaderValue, header};

/// The origins of web pages that may send requests from a browser. A browser says from which page a request comes; programs of
/// other kinds say nothing and are not asked.
///
/// None unless somebody says otherwise, unlike in etcd: without TLS, a page of anybody could otherwise write to a
/// server on the visitor's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    any: bool,
    listed: Vec<String>,
}

impl Origins {
    /// Reads etcd's `--cors`: origins separated by commas, or `*` for all.
    pub fn parse(list: &str) -> Self {
        let listed: Vec<_> =
            list.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(ToOwned::to_owned).collect();
        Self { any: listed.iter().any(|origin| origin == "*"), listed }
    }

    /// Whether a request with these headers is to be answered; an error says from where it comes.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        match headers.get(header::ORIGIN) {
            Some(origin) if !self.allows(origin) => Err(String::from_utf8_lossy(origin.as_bytes()).into_owned()),
            _ => Ok(()),
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.any || self.listed.iter().any(|listed| listed.as_bytes() == origin.as_bytes())
    }

    /// Tells the browser what the page may do.
    pub(crate) fn tell(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        let allowed = match origin {
            _ if self.any => HeaderValue::from_static("*"),
            Some(origin) if self.allows(origin) => origin.clone(),
            _ => return,
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        let methods = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let names = HeaderValue::from_static("accept, content-type, authorization");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_refused_unless_they_are_listed_and_programs_never() {
        let from = |origin: &'static str| HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
        let page = from("http://page.example");
        for (list, allowed) in [
            ("", false),
            ("*", true),
            ("http://page.example", true),
            ("http://a.example, http://page.example", true),
            ("http://page.example:80", false),
            ("page.example", false),
        ] {
            let origins = Origins::parse(list);
            assert_eq!(origins.check(&page).is_ok(), allowed, "{list}");
            assert!(origins.check(&HeaderMap::new()).is_ok(), "{list}");
            let mut told = HeaderMap::new();
            origins.tell(page.get(header::ORIGIN), &mut told);
            assert_eq!(!told.is_empty(), allowed, "{list}");
        }
    }
}
