//! Keys, as pages print and link them.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::rights::ObjectRef;

/// The prefix of all keys of a kube-apiserver.
pub(crate) const PREFIX: &[u8] = b"/registry/";
/// What the path of a URL may contain as it is (RFC 3986, unreserved), and the slashes of a key.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The whole key.
    pub(crate) whole: Vec<u8>,
    /// Its text without the prefix of kube-apiserver, as it is printed.
    pub(crate) text: String,
    /// The object, if it is one of a known resource.
    pub(crate) object: Option<ObjectRef>,
}

impl Key {
    /// Returns the path of its page.
    ///
    /// Browsers resolve `.` and `..` in paths, even encoded ones, so keys with such parts are in the query.
    pub(crate) fn link(&self) -> String {
        let name = self.whole.strip_prefix(PREFIX).unwrap_or(&self.whole);
        let is_path =
            !name.starts_with(b"/") && name.split(|byte| *byte == b'/').all(|part| !matches!(part, b"." | b".."));
        let escaped = percent_encode(name, ESCAPED);
        if is_path { format!("/object/{escaped}") } else { format!("/object?key={escaped}") }
    }
}

/// Formats a key on one line: control characters and those that change the direction of text are replaced, and bytes that are not
/// UTF-8 are escaped as in `%FF`.
pub(crate) fn text(name: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in name.utf8_chunks() {
        shown.push_str(&trishanku_stdio::text::plain(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _done = write!(shown, "%{byte:02X}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(whole: &[u8]) -> String {
        Key { whole: whole.to_vec(), text: String::new(), object: None }.link()
    }

    #[test]
    fn no_key_leads_out_of_its_link() {
        assert_eq!(link(b"/registry/configmaps/shop/a"), "/object/configmaps/shop/a");
        assert_eq!(link(b"/registry/configmaps/../../x"), "/object?key=configmaps/../../x");
        assert_eq!(link(b"/registry/a/\"><script>?#%/\xff"), "/object/a/%22%3E%3Cscript%3E%3F%23%25/%FF");
        assert_eq!(link(b"/other/a"), "/object?key=/other/a");
        assert_eq!(text(b"a\x1b\n\xe2\x80\xaeb\xff"), "a\u{fffd}\u{fffd}\u{fffd}b%FF");
    }
}
