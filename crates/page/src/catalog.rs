//! Which resource of Kubernetes a key of the store belongs to.

use gitcd_merge::value::Value;

use crate::rights::ObjectRef;

/// Resources of Kubernetes, with where kube-apiserver stores them.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Vec<Stored>);

/// A line of the table is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line:?} is not a resource: write PLURAL SINGULAR SHORT GROUP SCOPE PREFIX, with - for nothing")]
pub struct CatalogError {
    line: String,
}

#[derive(Clone, Debug)]
struct Stored {
    plural: String,
    /// Singular and short names.
    names: Vec<String>,
    group: String,
    is_namespaced: bool,
    /// What follows `/registry/` in the keys.
    prefix: String,
}

impl Catalog {
    /// Parses a table with one built-in resource a line: plural, singular, short names with commas, group, scope, and what
    /// follows `/registry/` in the keys; `-` for nothing. Lines that start with `#` are comments.
    ///
    /// # Errors
    /// [`CatalogError`] names the first malformed line.
    pub fn parse(table: &str) -> Result<Self, CatalogError> {
        let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let stored = lines.map(|line| Stored::parse(line).ok_or_else(|| CatalogError { line: line.to_owned() }));
        Ok(Self(stored.collect::<Result<_, _>>()?))
    }

    /// Returns it with the kinds that `CustomResourceDefinitions` define. Malformed ones are skipped.
    pub(crate) fn with_definitions<'d>(mut self, definitions: impl IntoIterator<Item = &'d Value>) -> Self {
        self.0.extend(definitions.into_iter().filter_map(Stored::of_definition));
        self
    }

    /// Returns the object that a key without `/registry/` belongs to; `None` for keys that are not objects of a known resource.
    /// Custom resources need no table: their keys have group and plural.
    pub fn object(&self, name: &str) -> Option<ObjectRef> {
        let below = |stored: &&Stored| name.strip_prefix(&stored.prefix).is_some_and(|rest| rest.starts_with('/'));
        let (group, resource, rest, is_namespaced) = if let Some(stored) = self.0.iter().find(below) {
            let Stored { group, plural, prefix, is_namespaced, .. } = stored;
            (group.as_str(), plural.as_str(), &name[prefix.len() + 1..], Some(*is_namespaced))
        } else {
            let (group, rest) = name.split_once('/').filter(|(group, _)| group.contains('.'))?;
            let (plural, rest) = rest.split_once('/')?;
            (group, plural, rest, None)
        };
        let parts: Vec<&str> = rest.split('/').collect();
        let (namespace, name) = match parts[..] {
            [name] if is_namespaced != Some(true) => ("", name),
            [namespace, name] if is_namespaced != Some(false) => (namespace, name),
            _ => return None,
        };
        let is_whole = !name.is_empty() && (parts.len() == 1 || !namespace.is_empty());
        let [group, resource, namespace, name] = [group, resource, namespace, name].map(ToOwned::to_owned);
        is_whole.then_some(ObjectRef { group, resource, namespace, name })
    }

    /// Returns whether an object is of a kind, by a name as in kubectl: plural, singular, short or kind, alone, with the group, or with
    /// version and group.
    pub(crate) fn is_called(&self, object: &ObjectRef, kind: &str) -> bool {
        let kind = kind.to_lowercase();
        let (kind, group) = kind.split_once('.').map_or((&*kind, None), |(kind, group)| (kind, Some(group)));
        let is_version =
            |text: &str| text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let is_of_group = |group: &str| {
            group == object.group
                || group.split_once('.').is_some_and(|(version, group)| is_version(version) && group == object.group)
        };
        let of_table = |stored: &&Stored| stored.plural == object.resource && stored.group == object.group;
        let names = self.0.iter().find(of_table).map(|stored| stored.names.as_slice()).unwrap_or_default();
        let is_named = object.resource == kind || names.iter().any(|name| name == kind);
        // Of a kind that is not defined any more, only the plural is known: without its last letter, it is nearly always the singular.
        let is_custom = object.group.contains('.') && object.resource.strip_suffix('s') == Some(kind);
        (is_named || is_custom) && group.is_none_or(is_of_group)
    }
}

impl Stored {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [plural, singular, short, group, scope, prefix] = words[..] else { return None };
        let is_namespaced = match scope {
            "namespaced" => true,
            "cluster" => false,
            _ => return None,
        };
        let names = std::iter::once(singular).chain(short.split(',').filter(|short| *short != "-"));
        Some(Self {
            plural: plural.to_owned(),
            names: names.map(ToOwned::to_owned).collect(),
            group: if group == "-" { String::new() } else { group.to_owned() },
            is_namespaced,
            prefix: prefix.to_owned(),
        })
    }

    fn of_definition(definition: &Value) -> Option<Self> {
        let text = |path: &[&str]| definition.at(path)?.as_text().map(|text| text.to_lowercase());
        let (group, plural) = (text(&["spec", "group"])?, text(&["spec", "names", "plural"])?);
        let short = definition.at(&["spec", "names", "shortNames"]).and_then(Value::as_list).unwrap_or_default();
        let short = short.iter().filter_map(Value::as_text).map(|name| name.to_lowercase());
        let names = [text(&["spec", "names", "singular"]), text(&["spec", "names", "kind"])];
        let names = names.into_iter().flatten().filter(|name| !name.is_empty()).chain(short).collect();
        let is_namespaced = text(&["spec", "scope"])? == "namespaced";
        Some(Self { prefix: format!("{group}/{plural}"), plural, names, group, is_namespaced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_the_resources_that_rbac_names() {
        let table = "# comment\nservices service svc - namespaced services/specs\nnodes node no - cluster minions\n\
                     ingresses ingress ing networking.k8s.io namespaced ingress\n";
        let catalog = Catalog::parse(table).unwrap();
        let of = |name| {
            let ObjectRef { group, resource, namespace, name } = catalog.object(name)?;
            Some([group, resource, namespace, name].join("|"))
        };
        for (name, expected) in [
            ("services/specs/shop/web", Some("|services|shop|web")),
            ("minions/one", Some("|nodes||one")),
            ("ingress/shop/web", Some("networking.k8s.io|ingresses|shop|web")),
            ("rain.example.org/gauges/shop/a", Some("rain.example.org|gauges|shop|a")),
            ("rain.example.org/sites/a", Some("rain.example.org|sites||a")),
            // Neither a node in a namespace, nor a Service without one, nor anything deeper.
            ("minions/shop/one", None),
            ("services/specs/web", None),
            ("services/specs/a/b/c", None),
            ("services/specs//web", None),
            ("ranges/serviceips", None),
            ("minions", None),
        ] {
            assert_eq!(of(name).as_deref(), expected, "{name}");
        }
        let ingress = catalog.object("ingress/shop/web").unwrap();
        for kind in ["ing", "Ingress", "ingresses", "ingresses.networking.k8s.io"] {
            assert!(catalog.is_called(&ingress, kind), "{kind}");
        }
        assert!(!catalog.is_called(&ingress, "ingresses.other.org") && !catalog.is_called(&ingress, "svc"));
        assert!(Catalog::parse("nodes node").unwrap_err().to_string().contains("\"nodes node\""));
    }

    #[test]
    fn custom_kinds_have_the_names_of_their_definitions() {
        let definition = br#"{"spec": {"group": "rain.example.org", "scope": "Namespaced", "names": {
            "plural": "gauges", "singular": "gauge", "kind": "RainGauge", "shortNames": ["rg", "RGS"]}}}"#;
        let parsed = |text: &[u8]| Value::parse(text).expect("it is JSON").0;
        let (gauge, malformed) = (parsed(definition), parsed(br#"{"spec": {"group": 1}}"#));
        let catalog = Catalog::default().with_definitions([&malformed, &gauge]);
        let object = catalog.object("rain.example.org/gauges/shop/a").expect("it is an object");
        for name in
            ["gauges", "gauge", "RainGauge", "rg", "rgs", "rg.rain.example.org", "RainGauge.v1.rain.example.org"]
        {
            assert!(catalog.is_called(&object, name), "{name}");
        }
        for name in ["rai", "rg.example.org", "rg.vx.rain.example.org", "gaug"] {
            assert!(!catalog.is_called(&object, name), "{name}");
        }
        assert_eq!(catalog.object("rain.example.org/gauges/a"), None, "the kind has namespaces");
        assert!(!Catalog::default().is_called(&object, "rg"));
    }
}
