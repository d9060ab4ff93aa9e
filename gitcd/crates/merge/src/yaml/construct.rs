//! The value of a document: resolves scalars, aliases and merge keys.

use std::collections::HashMap;

use granit_parser::ScalarStyle;

use super::Unreadable;
use super::scalar::{self, Scalar};
use super::tree::{CORE, Content, MAX_DEPTH, Node, Tree};
use crate::value::{LONG_PATH, MAX_PATH_BYTES, Map, Value};

/// Returns the value of the document's root.
pub(super) fn construct(tree: &Tree<'_>) -> Result<Value, Unreadable> {
    let Some(root) = tree.root else { return Ok(Value::Scalar("null".into())) };
    // The document itself counts as one.
    Builder { tree, decoded: 1, aliased: 0, within_alias: 0, copied: 0, path: 0 }.value(root, 0)
}

/// Returns the names of a mapping's fields, in the order of the document; `None` for a merge key.
pub(super) fn names(tree: &Tree<'_>, children: &[usize]) -> Option<Vec<Option<String>>> {
    let name = |index: &usize| {
        let mut node = &tree.nodes[*index];
        if is_merge(node) {
            return Some(None);
        }
        if let Content::Alias(target) = node.content {
            node = &tree.nodes[target];
        }
        resolve(node).ok()?.name().ok().map(Some)
    };
    children.iter().step_by(2).map(name).collect()
}

/// Limit of text copied for aliases, in bytes. (Kubernetes' reader shares it.)
const OF_ALIASES: usize = 4 << 20;

struct Builder<'a, 't> {
    tree: &'a Tree<'t>,
    decoded: usize,
    aliased: usize,
    within_alias: usize,
    /// Bytes of text copied for aliases.
    copied: usize,
    /// Bytes of the names on the path to the current value.
    path: usize,
}

/// Fields of a mapping under construction.
#[derive(Default)]
struct Fields {
    map: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

impl Fields {
    fn set(&mut self, name: String, value: Value) {
        if let Some(place) = self.places.get(&name) {
            self.map[*place].1 = value;
        } else {
            self.places.insert(name.clone(), self.map.len());
            self.map.push((name, value));
        }
    }
}

impl Builder<'_, '_> {
    fn node(&self, index: usize) -> &Node<'_> {
        &self.tree.nodes[index]
    }

    fn error(&self, index: usize, reason: impl Into<String>) -> Unreadable {
        Unreadable::new(self.node(index).line, reason.into())
    }

    /// Counts a step, and rejects documents that expand too much by aliases, by Kubernetes' measure.
    fn count(&mut self, index: usize) -> Result<(), Unreadable> {
        const FEW: f64 = 400_000.0;
        const MANY: f64 = 4_000_000.0;
        self.decoded += 1;
        if self.within_alias > 0 {
            self.aliased += 1;
            if let Content::Scalar(text, ..) = &self.node(index).content {
                self.copied += text.len();
            }
        }
        if self.copied > OF_ALIASES {
            return Err(self.error(index, "its aliases stand for more than 4 MiB of text"));
        }
        let decoded = self.decoded as f64;
        let allowed = 0.99 - 0.89 * ((decoded - FEW) / (MANY - FEW)).clamp(0.0, 1.0);
        if self.aliased > 100 && self.decoded > 1000 && self.aliased as f64 / decoded > allowed {
            return Err(self.error(index, "too much of it comes from aliases"));
        }
        Ok(())
    }

    fn value(&mut self, index: usize, depth: usize) -> Result<Value, Unreadable> {
        if depth > MAX_DEPTH {
            return Err(self.error(index, format!("it is nested deeper than {MAX_DEPTH} levels")));
        }
        self.count(index)?;
        let tree = self.tree;
        match &tree.nodes[index].content {
            Content::Scalar(..) => {
                let json = resolve(self.node(index)).and_then(|scalar| scalar.json());
                json.map(|json| Value::Scalar(json.into())).map_err(|reason| self.error(index, reason))
            }
            Content::Alias(target) => self.follow(index, *target, |builder| builder.value(*target, depth + 1)),
            Content::List(items, _) => {
                Ok(Value::List(items.iter().map(|item| self.value(*item, depth + 1)).collect::<Result<_, _>>()?))
            }
            Content::Map(children, _) => {
                let mut fields = Fields::default();
                self.fill(children, &mut fields, depth)?;
                let mut map = Map::default();
                for (name, value) in fields.map {
                    map.push(&serde_json::Value::from(name).to_string(), value);
                }
                Ok(Value::Map(map))
            }
        }
    }

    fn follow<T>(
        &mut self,
        alias: usize,
        target: usize,
        step: impl FnOnce(&mut Self) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        // The span of an open node ends after the alias.
        if self.node(target).start <= self.node(alias).start && self.node(alias).span.end <= self.node(target).span.end
        {
            return Err(self.error(alias, "an anchor's value contains itself"));
        }
        self.within_alias += 1;
        let result = step(self);
        self.within_alias -= 1;
        result
    }

    /// Adds the fields of a mapping in order: a merge key overrides what precedes it, as in Kubernetes.
    fn fill(&mut self, children: &[usize], fields: &mut Fields, depth: usize) -> Result<(), Unreadable> {
        let mut own = std::collections::HashSet::new();
        for pair in children.chunks_exact(2) {
            let (name, value) = (pair[0], pair[1]);
            if is_merge(self.node(name)) {
                self.merge(value, fields, depth)?;
                continue;
            }
            let text = self.name(name)?;
            if !own.insert(text.clone()) {
                return Err(self.error(name, format!("it names the field {text:?} twice")));
            }
            self.path += text.len();
            if self.path > MAX_PATH_BYTES {
                return Err(self.error(name, LONG_PATH));
            }
            let value = self.value(value, depth + 1)?;
            self.path -= text.len();
            fields.set(text, value);
        }
        Ok(())
    }

    fn name(&mut self, index: usize) -> Result<String, Unreadable> {
        self.count(index)?;
        let tree = self.tree;
        let mut node = &tree.nodes[index];
        if let Content::Alias(target) = node.content {
            self.follow(index, target, |builder| builder.count(target))?;
            node = &tree.nodes[target];
        }
        match node.content {
            Content::Scalar(..) => {
                resolve(node).and_then(|scalar| scalar.name()).map_err(|reason| self.error(index, reason))
            }
            _ => Err(self.error(index, "a list or a mapping cannot be the name of a field")),
        }
    }

    /// Adds the fields of a merge key's mapping or mappings.
    fn merge(&mut self, index: usize, fields: &mut Fields, depth: usize) -> Result<(), Unreadable> {
        let tree = self.tree;
        let sources = match &tree.nodes[index].content {
            // Earlier mappings take precedence.
            Content::List(items, _) => items.iter().rev().copied().collect(),
            _ => vec![index],
        };
        for source in sources {
            if depth > MAX_DEPTH {
                return Err(self.error(index, format!("it is nested deeper than {MAX_DEPTH} levels")));
            }
            self.count(source)?;
            match &tree.nodes[source].content {
                Content::Map(children, _) => self.fill(children, fields, depth + 1)?,
                Content::Alias(target) => {
                    let Content::Map(children, _) = &tree.nodes[*target].content else {
                        return Err(self.error(index, "\"<<\" needs a mapping or a list of mappings"));
                    };
                    self.follow(source, *target, |builder| {
                        builder.count(*target)?;
                        builder.fill(children, fields, depth + 1)
                    })?;
                }
                _ => return Err(self.error(index, "\"<<\" needs a mapping or a list of mappings")),
            }
        }
        Ok(())
    }
}

fn resolve<'n>(node: &'n Node<'_>) -> Result<Scalar<'n>, String> {
    match &node.content {
        Content::Scalar(text, style) => {
            let text = std::borrow::Cow::Borrowed(text.as_ref());
            scalar::resolve(node.tag.as_deref(), &text, *style == ScalarStyle::Plain)
        }
        _ => Err("it is not a scalar".into()),
    }
}

fn is_merge(node: &Node<'_>) -> bool {
    let Content::Scalar(text, style) = &node.content else { return false };
    text == "<<"
        && match node.tag.as_deref() {
            None => *style == ScalarStyle::Plain,
            Some("!") => true,
            Some(tag) => tag.strip_prefix(CORE) == Some("merge"),
        }
}
