//! Random values for fields, from the `OpenAPI` of a kube-apiserver.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use serde_json::{Map, Value, json};

use crate::world::World;

/// A stored built-in kind.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

/// Returns the kinds that are stored, and that clients can create and update.
pub(crate) async fn resources(world: &World) -> Vec<Resource> {
    let mut versions = vec!["v1".to_owned()];
    let groups = world.send(Method::GET, "/apis", None).await.expect("groups are served");
    for group in groups["groups"].as_array().into_iter().flatten() {
        // The preferred version comes first.
        let served = group["versions"].as_array().into_iter().flatten();
        versions.extend(served.filter_map(|version| version["groupVersion"].as_str()).map(str::to_owned));
    }
    let mut found: Vec<Resource> = Vec::new();
    let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    for version in versions.into_iter().filter(|version| version != "oracle.example/v1") {
        let root = if version.contains('/') { "apis" } else { "api" };
        let listed = world.send(Method::GET, &format!("/{root}/{version}"), None).await.expect("versions are served");
        for resource in listed["resources"].as_array().into_iter().flatten() {
            let verbs = resource["verbs"].to_string();
            let is_stored = ["\"create\"", "\"get\"", "\"list\"", "\"update\""].iter().all(|verb| verbs.contains(verb));
            let text = |name: &str| resource[name].as_str().unwrap_or_default().to_owned();
            let is_known =
                found.iter().any(|known| known.kind == text("kind") && group(&known.api_version) == group(&version));
            if is_stored && !is_known && !text("name").contains('/') {
                let namespaced = resource["namespaced"] == true;
                found.push(Resource {
                    api_version: version.clone(),
                    kind: text("kind"),
                    plural: text("name"),
                    namespaced,
                });
            }
        }
    }
    found
}

/// The schemas of one group and version.
#[derive(Clone)]
pub(crate) struct Schema {
    all: Arc<HashMap<String, Value>>,
    root: Value,
}

impl Schema {
    /// Returns the schema of each kind.
    pub(crate) async fn fetch(world: &World, kinds: &[Resource]) -> HashMap<(String, String), Schema> {
        let mut found = HashMap::new();
        for kind in kinds {
            let key = (kind.api_version.clone(), kind.kind.clone());
            if found.contains_key(&key) {
                continue;
            }
            let root = if kind.api_version.contains('/') { "apis" } else { "api" };
            let path = format!("/openapi/v3/{root}/{}", kind.api_version);
            let document = world.send(Method::GET, &path, None).await.expect("OpenAPI is served");
            let Value::Object(schemas) = document["components"]["schemas"].clone() else {
                panic!("{path}: no schemas")
            };
            let all = Arc::new(schemas.into_iter().collect::<HashMap<_, _>>());
            for (name, schema) in &*all {
                for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                    let text = |name: &str| gvk[name].as_str().unwrap_or_default();
                    let version = format!("{}/{}", text("group"), text("version"));
                    let key = (version.trim_start_matches('/').to_owned(), text("kind").to_owned());
                    let root = json!({"$ref": format!("#/components/schemas/{name}")});
                    found.insert(key, Schema { all: all.clone(), root });
                }
            }
        }
        found
    }

    /// Follows references. In Kubernetes, `allOf` has at most one.
    fn resolve<'s>(&'s self, schema: &'s Value) -> &'s Value {
        let mut schema = schema;
        loop {
            let next = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
            let Some(name) = next.and_then(|next| next.rsplit('/').next()) else { return schema };
            let Some(found) = self.all.get(name) else { return schema };
            schema = found;
        }
    }

    /// Changes a random field other than `status`. Returns its path.
    pub(crate) fn mutate(&self, random: &mut StdRng, object: &mut Value) -> String {
        if random.random_bool(0.15) {
            return metadata(random, object);
        }
        let mut path = String::new();
        self.change(random, self.resolve(&self.root), object, &mut path, "");
        path
    }

    fn change(&self, random: &mut StdRng, schema: &Value, at: &mut Value, path: &mut String, name: &str) {
        let properties = schema["properties"].as_object();
        match at {
            Value::Object(map) if properties.is_some() => {
                let properties = properties.expect("the guard checked it");
                let is_root = path.is_empty();
                let fields = properties
                    .keys()
                    .filter(|name| !is_root || !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
                let present: Vec<&String> = fields.clone().filter(|name| map.contains_key(*name)).collect();
                let absent: Vec<&String> = fields.filter(|name| !map.contains_key(*name)).collect();
                let deeper =
                    !present.is_empty() && (absent.is_empty() || random.random_bool(if is_root { 0.85 } else { 0.55 }));
                let Some(chosen) = (if deeper { &present } else { &absent }).choose(random).copied() else { return };
                path.push('.');
                path.push_str(chosen);
                let below = self.resolve(&properties[chosen]);
                let hint = &properties[chosen];
                match map.get_mut(chosen) {
                    Some(_) if random.random_bool(0.12) => drop(map.shift_remove(chosen)),
                    Some(value) => self.change(random, below, value, path, chosen),
                    None => drop(map.insert(chosen.clone(), self.value(random, below, chosen, 0, hint))),
                }
            }
            Value::Object(map) => {
                let chosen = *["a", "b", "c"].choose(random).expect("the list is not empty");
                let below = self.resolve(&schema["additionalProperties"]);
                path.push_str("{}");
                if map.contains_key(chosen) && random.random_bool(0.4) {
                    map.shift_remove(chosen);
                } else {
                    map.insert(chosen.to_owned(), self.value(random, below, name, 0, &Value::Null));
                }
            }
            Value::Array(items) => {
                path.push_str("[]");
                let below = self.resolve(&schema["items"]);
                match random.random_range(0..10) {
                    0..2 if !items.is_empty() => drop(items.remove(random.random_range(0..items.len()))),
                    2..7 if !items.is_empty() => {
                        let index = random.random_range(0..items.len());
                        self.change(random, below, &mut items[index], path, name);
                    }
                    _ => {
                        let at = random.random_range(0..=items.len());
                        items.insert(at, self.value(random, below, name, 0, &schema["items"]));
                    }
                }
            }
            scalar => *scalar = self.value(random, schema, name, 0, &Value::Null),
        }
    }

    /// Returns a random value. `name` is that of the field, and `hint` the schema beside a reference.
    fn value(&self, random: &mut StdRng, schema: &Value, name: &str, depth: usize, hint: &Value) -> Value {
        if let Some(values) = schema["enum"].as_array().or_else(|| hint["enum"].as_array()) {
            return values.choose(random).cloned().unwrap_or_default();
        }
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("boolean"), _) => json!(random.random_bool(0.5)),
            (Some("integer" | "number"), _) => number(random, name),
            (Some("array"), _) => {
                let below = self.resolve(&schema["items"]);
                let count = if depth > 3 { 1 } else { random.random_range(1..=2) };
                (0..count).map(|_| self.value(random, below, name, depth + 1, &schema["items"])).collect()
            }
            (Some("string"), format) => text(random, name, format),
            (Some("object"), _) if schema["properties"].is_object() => {
                let properties = schema["properties"].as_object().expect("the guard checked it");
                let required: Vec<&str> =
                    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let mut map = Map::new();
                let chance = if depth == 0 { 0.25 } else { 0.1 };
                for (name, property) in properties {
                    if required.contains(&name.as_str()) || (depth < 4 && random.random_bool(chance)) {
                        map.insert(name.clone(), self.value(random, self.resolve(property), name, depth + 1, property));
                    }
                }
                if map.is_empty()
                    && random.random_bool(0.7)
                    && let Some((name, property)) = properties.iter().choose(random)
                    && depth < 5
                {
                    map.insert(name.clone(), self.value(random, self.resolve(property), name, depth + 1, property));
                }
                Value::Object(map)
            }
            (Some("object"), _) => {
                let below = self.resolve(&schema["additionalProperties"]);
                let key = if name == "limits" || name == "requests" || name == "capacity" { "cpu" } else { "a" };
                json!({key: if below.is_object() { self.value(random, below, name, depth + 1, &Value::Null) } else { json!("1") }})
            }
            // A quantity, or a number or string.
            _ if schema["oneOf"].is_array() => {
                [json!("1"), json!("2"), json!(1), json!(80)].choose(random).cloned().unwrap_or_default()
            }
            _ => json!({"a": random.random_range(0..3)}),
        }
    }
}

fn metadata(random: &mut StdRng, object: &mut Value) -> String {
    let fields = crate::kinds::metadata();
    let (path, values) = fields.choose(random).expect("the list is not empty");
    let value = random.random_bool(0.7).then(|| values.choose(random).cloned()).flatten();
    crate::edits::Edit::new(path, value).apply(object);
    format!(".{}", path.split(' ').take(2).collect::<Vec<_>>().join("."))
}

fn number(random: &mut StdRng, name: &str) -> Value {
    let values: &[i64] = match name {
        "port" | "containerPort" | "targetPort" | "number" => &[80, 443, 8080],
        "hostPort" | "nodePort" => &[30080, 30443],
        "mode" | "defaultMode" => &[256, 420],
        _ => &[0, 1, 2, 3, 10, 100],
    };
    json!(values.choose(random).expect("the list is not empty"))
}

fn text(random: &mut StdRng, name: &str, format: Option<&str>) -> Value {
    let values: &[&str] = match (format, name) {
        (Some("byte"), _) => &["AQ==", "Ag=="],
        (Some("date-time"), "eventTime" | "acquireTime" | "renewTime" | "lastObservedTime") => {
            &["2001-01-01T00:00:01.000000Z", "2001-01-01T00:00:02.000000Z"]
        }
        (Some("date-time"), _) => &["2001-01-01T00:00:01Z", "2001-01-01T00:00:02Z"],
        (_, "path" | "mountPath" | "devicePath") => &["/a", "/b", "/c"],
        (_, "name") => &["a", "b", "web", "side"],
        (_, "ip" | "podIP" | "hostIP" | "addresses" | "externalIPs" | "loadBalancerIP" | "clusterIP") => {
            &["192.0.2.1", "192.0.2.2"]
        }
        (_, "cidr" | "podCIDR" | "cidrs" | "loadBalancerSourceRanges") => &["192.0.2.0/24", "198.51.100.0/24"],
        (_, "protocol") => &["TCP", "UDP"],
        (_, "operator") => &["In", "NotIn", "Exists", "DoesNotExist", "Equal"],
        (_, "effect") => &["NoSchedule", "NoExecute", "PreferNoSchedule"],
        (_, "verbs") => &["get", "list", "*"],
        (_, "apiGroups" | "apiGroup" | "group") => &["", "apps", "rbac.authorization.k8s.io"],
        (_, "apiVersion" | "apiVersions" | "version") => &["v1", "apps/v1"],
        (_, "resources" | "resource") => &["pods", "services", "limits.cpu"],
        (_, "kind") => &["Pod", "Secret", "User", "Role", "ConfigMap"],
        (_, "operations") => &["CREATE", "UPDATE", "*"],
        (_, "accessModes") => &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
        (_, "type") => &["A", "B", "Pods", "Container", "RollingUpdate", "NodePort", "ClusterIP"],
        (_, "hostname" | "subdomain" | "host" | "hosts" | "hostnames" | "externalName") => {
            &["a.example", "b.example", "a", "b"]
        }
        (_, "driver" | "provisioner" | "controller" | "driverName" | "attacher") => &["a.example", "b.example"],
        (_, "schedule") => &["1 1 1 1 *", "2 2 2 2 *"],
        (_, "expression") => &["true", "1 == 1", "false"],
        (_, "uid") => &["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"],
        (_, "url") => &["https://a.example/", "https://b.example/"],
        _ => &["a", "b", "c", "1", "true"],
    };
    json!(values.choose(random).expect("the list is not empty"))
}
