//! Kinds by their kubectl names, and the keys of their objects.
//!
//! Built-in kinds come from a table, custom ones from the `CustomResourceDefinitions` in the store: no server is needed.
//!
//! ```
//! use trishanku::kinds::Kinds;
//!
//! let kinds = Kinds::builtin();
//! assert_eq!(kinds.find("deploy")?.key(Some("shop"), "web"), "deployments/shop/web");
//! assert_eq!(kinds.find("nodes")?.key(None, "one"), "minions/one");
//! # Ok::<(), trishanku::kinds::UnknownKind>(())
//! ```

use serde_json::Value;

const BUILTIN: &str = include_str!("kinds/builtin.txt");

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Such as `deployments`.
    pub plural: String,
    /// Such as `deployment`.
    pub singular: String,
    /// Such as `deploy`.
    pub short: Vec<String>,
    /// Such as `apps`; empty for the core group.
    pub group: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
    /// The part of their keys after `/registry/`.
    prefix: String,
}

/// All known kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds(Vec<Kind>);

/// The kind is neither built in nor defined in the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind {name:?}, neither in Kubernetes nor among the CustomResourceDefinitions of this store{}", self.alike())]
pub struct UnknownKind {
    name: String,
    near: Vec<String>,
}

impl UnknownKind {
    fn alike(&self) -> String {
        if self.near.is_empty() { String::new() } else { format!("; did you mean {}?", self.near.join(" or ")) }
    }
}

impl Kind {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        let (plural, singular, short) = (words.next()?, words.next()?, words.next()?);
        let (group, scope, prefix) = (words.next()?, words.next()?, words.next()?);
        let short = short.split(',').filter(|short| *short != "-").map(ToOwned::to_owned).collect();
        let group = if group == "-" { String::new() } else { group };
        Some(Self { plural, singular, short, group, is_namespaced: scope == "namespaced", prefix })
    }

    /// Parses the `spec` of a `CustomResourceDefinition`.
    fn of_definition(spec: &Value) -> Option<Self> {
        let text = |at: &str| spec.pointer(at).and_then(Value::as_str).map(ToOwned::to_owned);
        let (plural, group) = (text("/names/plural")?, text("/group")?);
        let kind = text("/names/kind").unwrap_or_default().to_lowercase();
        let short = spec.pointer("/names/shortNames").and_then(Value::as_array);
        Some(Self {
            singular: text("/names/singular").unwrap_or(kind),
            short: short.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            is_namespaced: text("/scope")? == "Namespaced",
            prefix: format!("{group}/{plural}"),
            plural,
            group,
        })
    }

    /// Whether this is one of its names: singular, plural or short, alone, with the group, or with version and group.
    fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let (name, rest) = name.split_once('.').unwrap_or((&name, ""));
        let is_of_group = rest.is_empty()
            || rest == self.group
            || rest.split_once('.').is_some_and(|(version, group)| version.starts_with('v') && group == self.group);
        let is_named = name == self.plural || name == self.singular || self.short.iter().any(|short| short == name);
        is_of_group && is_named
    }

    /// The key of an object, without the prefix of all keys.
    #[must_use]
    pub fn key(&self, namespace: Option<&str>, name: &str) -> String {
        self.below(namespace) + name
    }

    /// The key prefix of its objects in one namespace, or in all of them.
    #[must_use]
    pub fn below(&self, namespace: Option<&str>) -> String {
        let prefix = &self.prefix;
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => format!("{prefix}/{namespace}/"),
            None => format!("{prefix}/"),
        }
    }
}

impl Kinds {
    /// Returns the built-in kinds of Kubernetes.
    #[must_use]
    pub fn builtin() -> Self {
        let lines = BUILTIN.lines().filter(|line| !line.starts_with('#'));
        Self(lines.map(|line| Kind::parse(line).expect("each line of the table has six words")).collect())
    }

    /// Adds the kinds that the given `spec`s of `CustomResourceDefinitions` define.
    #[must_use]
    pub fn with_definitions<'s>(mut self, specs: impl IntoIterator<Item = &'s Value>) -> Self {
        self.0.extend(specs.into_iter().filter_map(Kind::of_definition));
        self
    }

    /// Finds a kind by name; the first match wins, as in kubectl.
    ///
    /// # Errors
    /// [`UnknownKind`].
    pub fn find(&self, name: &str) -> Result<&Kind, UnknownKind> {
        self.0.iter().find(|kind| kind.is_called(name)).ok_or_else(|| {
            let name = name.to_owned();
            let is_near = |other: &str| distance(&name.to_lowercase(), other) <= 1 + name.len() / 5;
            let near = self.0.iter().filter(|kind| is_near(&kind.plural) || is_near(&kind.singular));
            let near = near.map(|kind| kind.plural.clone()).take(3).collect();
            UnknownKind { name, near }
        })
    }

    /// Iterates over the namespaced kinds.
    pub fn namespaced(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().filter(|kind| kind.is_namespaced)
    }
}

/// The edit distance of two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (by, theirs) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *theirs);
            before = row[by + 1];
            row[by + 1] = changed.min(before + 1).min(row[by] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_kubernetes_are_found_by_all_their_names() {
        let kinds = Kinds::builtin();
        for (name, key) in [
            ("deploy", "deployments/n/x"),
            ("Deployment", "deployments/n/x"),
            ("deployments.apps", "deployments/n/x"),
            ("deployment.v1.apps", "deployments/n/x"),
            ("cm", "configmaps/n/x"),
            ("svc", "services/specs/n/x"),
            ("ep", "services/endpoints/n/x"),
            ("rc", "controllers/n/x"),
            ("ing", "ingress/n/x"),
            ("no", "minions/x"),
            ("ns", "namespaces/x"),
            ("crd", "apiextensions.k8s.io/customresourcedefinitions/x"),
            ("po", "pods/n/x"),
        ] {
            assert_eq!(kinds.find(name).map(|kind| kind.key(Some("n"), "x")), Ok(key.to_owned()), "{name}");
        }
        let mut names: Vec<_> = kinds.0.iter().flat_map(|kind| kind.short.iter().chain([&kind.plural])).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "each name stands for one kind");
    }

    #[test]
    fn kinds_of_definitions_are_found_and_those_that_nobody_has_defined_are_not() {
        let spec = json!({
            "group": "rain.example.org", "scope": "Namespaced",
            "names": {"plural": "raingauges", "singular": "raingauge", "kind": "RainGauge", "shortNames": ["rg"]},
        });
        let other = json!({"group": "x.org", "scope": "Cluster", "names": {"plural": "sites", "kind": "Site"}});
        let kinds = Kinds::builtin().with_definitions([&spec, &other, &json!({"group": 1}), &Value::Null]);
        for name in ["rg", "raingauge", "RainGauges", "raingauges.rain.example.org", "raingauges.v1.rain.example.org"] {
            assert_eq!(kinds.find(name).unwrap().key(Some("n"), "x"), "rain.example.org/raingauges/n/x", "{name}");
        }
        assert_eq!(kinds.find("site").unwrap().below(Some("n")), "x.org/sites/");
        let said = kinds.find("deplyments").unwrap_err().to_string();
        assert!(said.ends_with("did you mean deployments?"), "{said}");
        let said = kinds.find("raingauges.other.org").unwrap_err().to_string();
        assert!(said.starts_with("there is no kind \"raingauges.other.org\", neither in Kubernetes"), "{said}");
    }
}
