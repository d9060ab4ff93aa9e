//! Volumes and resource claims of a pod that its containers refer to by name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Fields;
use crate::owners::Step;
use crate::schema::Node;
use crate::value::{Map, Value};

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Lists of a pod's spec, and the fields of containers that refer to their items.
const REFERRED: [(&str, &[&[&str]]); 2] =
    [("volumes", &[&["volumeMounts"], &["volumeDevices"]]), ("resourceClaims", &[&["resources", "claims"]])];

impl Fields<'_> {
    /// Keeps a volume or resource claim that one side removed if a container of the merged pod uses it: kube-apiserver rejects a
    /// pod spec without it (`pkg/apis/core/validation`: `ValidateVolumeMounts`, `validateContainerResourceClaims`).
    pub(super) fn mounted(&mut self, merged: &mut Map, sides: [&Map; 2], node: Node<'_>) {
        if node.type_name() != Some("core.v1.PodSpec") {
            return;
        }
        for (list, places) in REFERRED {
            let there: BTreeSet<Cow<'_, str>> = names(items(merged, list)).collect();
            let missing: BTreeSet<String> =
                used(merged, places).filter(|name| !there.contains(name)).map(Cow::into_owned).collect();
            if missing.is_empty() {
                continue;
            }
            let mut defined: BTreeMap<Cow<'_, str>, &Value> = BTreeMap::new();
            for item in sides.iter().flat_map(|side| items(side, list)) {
                if let Some(name) = item.at(&["name"]).and_then(Value::as_text) {
                    // The first one counts.
                    defined.entry(name).or_insert(item);
                }
            }
            for name in missing {
                let Some(item) = defined.get(&*name).copied() else { continue };
                let depth = self.path.len();
                let key = serde_json::Value::from(&*name).to_string();
                self.path.extend([Step::Field(list.to_owned()), Step::Item(vec![("name".to_owned(), key)])]);
                self.report(Some(item), None);
                self.path.truncate(depth);
                match merged.get_mut(list) {
                    Some(Value::List(items)) => items.push(item.clone()),
                    _ => merged.set(list, Value::List(vec![item.clone()])),
                }
            }
        }
    }
}

fn items<'v>(map: &'v Map, list: &str) -> &'v [Value] {
    map.get(list).and_then(Value::as_list).unwrap_or_default()
}

fn names(items: &[Value]) -> impl Iterator<Item = Cow<'_, str>> {
    items.iter().filter_map(|item| item.at(&["name"])?.as_text())
}

/// Returns the names that containers refer to in these fields.
fn used<'v>(spec: &'v Map, places: &'static [&'static [&'static str]]) -> impl Iterator<Item = Cow<'v, str>> {
    let containers = CONTAINERS.iter().flat_map(|list| items(spec, list));
    let lists = containers.flat_map(|container| places.iter().filter_map(|place| container.at(place)?.as_list()));
    lists.flat_map(names)
}
