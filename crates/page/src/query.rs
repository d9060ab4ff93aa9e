//! Parameters of requests.

use axum::http::Uri;

use crate::catalog::Catalog;
use crate::keys::Key;

/// Parameters after this many are ignored.
const MAX_PARAMETERS: usize = 20;
/// Longer values are cut, except for exact ones.
const MAX_CHARS: usize = 1000;

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default().as_bytes())
    }

    /// Parses a query, or the body of a form.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text).take(MAX_PARAMETERS);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Returns the first value with this name as it is; `None` if it is absent or empty.
    pub(crate) fn exact(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the first value with this name without spaces around it; `None` if it is absent or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let value = self.exact(name)?;
        let end = value.char_indices().nth(MAX_CHARS).map_or(value.len(), |(at, _)| at);
        Some(value[..end].trim()).filter(|value| !value.is_empty())
    }

    /// Returns a number; 0 if it is absent or malformed.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.text(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    /// Returns whether whole values are requested.
    pub(crate) fn is_whole(&self) -> bool {
        self.text("whole").is_some()
    }
}

/// Which commits are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) namespace: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) user: Option<String>,
}

impl Filter {
    pub(crate) fn of(query: &Query) -> Self {
        let text = |name| query.text(name).map(ToOwned::to_owned);
        Self { namespace: text("namespace"), kind: text("kind"), name: text("name"), user: text("user") }
    }

    pub(crate) fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Returns whether it selects objects, and not only users.
    fn has_object(&self) -> bool {
        self.namespace.is_some() || self.kind.is_some() || self.name.is_some()
    }

    pub(crate) fn covers_user(&self, by: &str) -> bool {
        self.user.as_ref().is_none_or(|user| by.to_lowercase().contains(&user.to_lowercase()))
    }

    /// Returns whether it covers a key. `catalog` has the kinds that exist.
    pub(crate) fn covers(&self, key: &Key, catalog: &Catalog) -> bool {
        if !self.has_object() {
            return true;
        }
        let Some(object) = &key.object else { return false };
        self.namespace.as_ref().is_none_or(|namespace| *namespace == object.namespace)
            && self.kind.as_ref().is_none_or(|kind| catalog.is_called(object, kind))
            && self.name.as_ref().is_none_or(|name| object.name.to_lowercase().contains(&name.to_lowercase()))
    }

    /// Returns the parameters of a link, with others before them.
    pub(crate) fn link(&self, others: &[(&str, &str)]) -> String {
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(others);
        for (name, value) in
            [("namespace", &self.namespace), ("kind", &self.kind), ("name", &self.name), ("user", &self.user)]
        {
            if let Some(value) = value {
                pairs.append_pair(name, value);
            }
        }
        pairs.finish()
    }
}
