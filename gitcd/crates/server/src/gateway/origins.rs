//! Origins of web pages that may send requests (CORS).

use http::{HeaderMap, HeaderValue, header};

/// The origins of web pages that may send requests. Browsers send a page's origin; requests without one are not restricted.
///
/// None by default, unlike in etcd: without TLS, any web page could otherwise write to a server on its visitor's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    any: bool,
    listed: Vec<String>,
}

impl Origins {
    /// Parses etcd's `--cors`: origins separated by commas, or `*` for all.
    pub fn parse(list: &str) -> Self {
        let listed: Vec<_> =
            list.split(',').map(str::trim).filter(|origin| !origin.is_empty()).map(ToOwned::to_owned).collect();
        Self { any: listed.iter().any(|origin| origin == "*"), listed }
    }

    /// Checks the origin in a request's headers; the error is the refused origin.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        match headers.get_all(header::ORIGIN).iter().find(|origin| !self.allows(origin)) {
            Some(origin) => Err(String::from_utf8_lossy(origin.as_bytes()).into_owned()),
            None => Ok(()),
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.any || self.listed.iter().any(|listed| listed.as_bytes() == origin.as_bytes())
    }

    /// Adds the CORS headers for a page that is allowed.
    pub(crate) fn add_headers(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
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
            let mut headers = HeaderMap::new();
            origins.add_headers(page.get(header::ORIGIN), &mut headers);
            assert_eq!(!headers.is_empty(), allowed, "{list}");
        }
    }
}
