//! Label selectors that can be evaluated here.

use std::collections::BTreeMap;

/// A selector by equality and existence: `app=tank,tier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labels(Vec<(String, Option<String>)>);

impl Labels {
    /// Returns `None` for a selector that only the apiserver evaluates, such as `tier in (a, b)`.
    pub(super) fn parse(selector: &str) -> Option<Self> {
        let one = |part: &str| {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value.strip_prefix('=').unwrap_or(value).trim())),
                None => (part, None),
            };
            let name = name.trim();
            let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
            let is_known = !name.is_empty() && is_plain(name) && value.is_none_or(is_plain);
            is_known.then(|| (name.to_owned(), value.map(ToOwned::to_owned)))
        };
        selector.split(',').map(one).collect::<Option<_>>().map(Self)
    }

    pub(super) fn select(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let has = |(name, value): &(String, Option<String>)| {
            let found = labels.and_then(|labels| labels.get(name));
            found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
        };
        self.0.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_and_existence_are_evaluated_and_nothing_else() {
        let labels = BTreeMap::from([("app".to_owned(), "tank".to_owned()), ("x.org/tier".to_owned(), String::new())]);
        for (selector, expected) in [
            ("app", true),
            ("app=tank", true),
            (" app == tank , x.org/tier", true),
            ("x.org/tier=", true),
            ("app=pump", false),
            ("app=tank,other", false),
        ] {
            let parsed = Labels::parse(selector).unwrap();
            assert_eq!(parsed.select(Some(&labels)), expected, "{selector}");
            assert!(!parsed.select(None), "{selector}");
        }
        for selector in ["", "!app", "app!=tank", "app in (tank)", "app notin (tank)", "app=tank,", "n>1"] {
            assert_eq!(Labels::parse(selector), None, "{selector}");
        }
    }
}
