//! Which URLs carry a request unencrypted over a network, so that credentials must not be sent there.
//!
//! ```
//! use trishanku_service::plain_http::is_exposed;
//!
//! assert!(is_exposed("http://git.example.org/team/store.git"));
//! assert!(!is_exposed("https://git.example.org/team/store.git"));
//! assert!(!is_exposed("http://127.0.0.1:2480/store.git"));
//! ```

use std::net::IpAddr;

/// Returns whether requests to a URL can be read on the network: plain HTTP to a host that is not on loopback.
///
/// A host that another parser could read as another one is not on loopback: one with characters other than printable ASCII, or a
/// backslash, or an address that is not written out.
pub fn is_exposed(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else { return false };
    // Parsers of URLs ignore spaces in front, and tabs and line breaks anywhere.
    let scheme: String = scheme.chars().filter(|letter| *letter > ' ').collect();
    scheme.eq_ignore_ascii_case("http") && !host(rest).is_some_and(is_loopback)
}

/// Returns whether a host is this machine: `localhost`, or an address of loopback, with or without brackets.
pub fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// Returns the host of a URL without its scheme, if there is only one way to read it.
fn host(rest: &str) -> Option<&str> {
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let authority = rest.strip_prefix("//")?.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let end = match host.find(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (host, port) = host.split_at(end);
    (port.is_empty() || port.starts_with(':')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_to_another_machine_is_exposed() {
        for url in [
            "http://git.example.org/x.git",
            "HTTP://git.example.org",
            "http://ann:secret@git.example.org:8080/x",
            "http://192.0.2.1",
            "http://0.0.0.0:2480",
            "http://[2001:db8::1]:80/x",
            "http://[::ffff:127.0.0.1]/x",
            "http://git/x",
            // A name is not an address, and a user is not a host.
            "http://127.0.0.1.example.org/x",
            "http://localhost.example.org/x",
            "http://127.0.0.1@evil.example.org/x",
            "http://localhost:80@evil.example.org/x",
            "http://evil.example.org/@127.0.0.1",
            "http://evil.example.org?@127.0.0.1",
            "http://evil.example.org#@localhost",
            "http://[::1]evil.example.org/",
            // Parsers disagree.
            "http://evil.example.org\\@127.0.0.1/x",
            "http://127.0.0.1\t.example.org/x",
            " http://git.example.org",
            "ht\ttp://git.example.org",
            "http:git.example.org",
            "http:/127.0.0.1",
            "http://127.1/x",
            "http://\u{2113}ocalhost/x",
            "http://",
        ] {
            assert!(is_exposed(url), "{url:?}");
        }
        for url in [
            "https://git.example.org/x.git",
            "http://127.0.0.1:2480/x.git",
            "http://127.8.9.10",
            "http://ann:secret@127.0.0.1/x",
            "http://LocalHost:2480/x",
            "http://[::1]:2480/x",
            "http://[::1]",
            "http://localhost?x",
            "ssh://git@git.example.org/x",
            "git@git.example.org:x",
            "/srv/x.git",
            "./http:x/y",
        ] {
            assert!(!is_exposed(url), "{url:?}");
        }
        assert!(is_loopback("[::1]") && is_loopback("::1") && !is_loopback("[localhost]"));
    }
}
