//! Which objects of a kind are cached.

use std::collections::BTreeMap;

/// A selection of a kind's objects, by labels, by fields, or by both. A text is one of labels.
///
/// ```
/// use trishanku_framework::cache::Selector;
///
/// let pods = Selector::labels("app=tank,tier!=test").and_fields("spec.nodeName=one");
/// assert_eq!(Selector::from("app=tank"), Selector::labels("app=tank"));
/// ```
///
/// kube-apiserver evaluates it. Which fields it can select by depends on the kind: name and namespace always, some fields of
/// built-in kinds, and those that a CRD names in `selectableFields`. A list by any other field fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

impl Selector {
    /// Selects by labels, such as `app=tank,tier!=test`.
    pub fn labels(labels: impl Into<String>) -> Self {
        Self { labels: Some(labels.into()), fields: None }
    }

    /// Selects by fields, such as `spec.nodeName=one`.
    pub fn fields(fields: impl Into<String>) -> Self {
        Self::default().and_fields(fields)
    }

    /// Selects by these fields, too.
    #[must_use]
    pub fn and_fields(mut self, fields: impl Into<String>) -> Self {
        self.fields = Some(fields.into());
        self
    }

    pub(super) fn is_all(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }
}

impl From<&str> for Selector {
    fn from(labels: &str) -> Self {
        Self::labels(labels)
    }
}

impl From<String> for Selector {
    fn from(labels: String) -> Self {
        Self::labels(labels)
    }
}

/// A selector of labels by equality and existence, which can be evaluated here: `app=tank,tier`.
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
