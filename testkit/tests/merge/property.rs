//! Merges random objects of every built-in kind that were edited on two branches. kube-apiserver must accept the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use futures::StreamExt;
use gitcd::merge::schema::Schemas;
use gitcd::merge::{Merged, Outcome, Policy, Side, merge};
use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::compare::differences;
use crate::edits::{json_patch, merge_patch};
use crate::openapi::{Resource, Schema, resources};
use crate::world::{Refusal, World, body};

const AT_ONCE: usize = 8;
const NAMESPACE: &str = "property";
/// Base objects of each kind.
const VARIANTS: usize = 10;
/// Number of cases after which the merged objects are listed and removed.
const LISTED_AFTER: usize = 500;
/// Kinds whose objects change what kube-apiserver serves, which is slow. They are used in one of `SLOW_ONCE_IN` cases.
const SLOW: [&str; 2] = ["CustomResourceDefinition", "APIService"];
const SLOW_ONCE_IN: u32 = 20;

/// Kinds that clients do not edit.
const LEFT_OUT: [(&str, &str); 1] = [("ComponentStatus", "is not stored")];

struct Prepared {
    resource: Resource,
    schema: Schema,
    key: String,
    bases: Vec<Bytes>,
}

/// A merge that kube-apiserver rejects.
pub(crate) struct Rejected {
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) report: String,
}

#[derive(Default)]
pub(crate) struct Totals {
    /// By kind: number of cases, and of those in which both sides changed the object.
    pub(crate) kinds: BTreeMap<String, (usize, usize)>,
    pub(crate) rejected: Vec<Rejected>,
}

pub(crate) struct Property {
    world: World,
    prepared: Vec<Prepared>,
    schemas: Schemas,
}

impl Prepared {
    fn path(&self, name: &str) -> String {
        let Resource { api_version, plural, namespaced, .. } = &self.resource;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let namespace = if *namespaced { format!("namespaces/{NAMESPACE}/") } else { String::new() };
        format!("/{root}/{api_version}/{namespace}{plural}/{name}").trim_end_matches('/').to_owned()
    }
}

/// Returns the name of a base object, which each case replaces with its own.
fn pool_name(kind: &Resource, index: usize) -> String {
    match &*kind.kind {
        "IPAddress" => format!("10.250.0.{index}"),
        _ => format!("pool{index:04}"),
    }
}

fn case_name(kind: &Resource, seed: u64) -> String {
    match &*kind.kind {
        "IPAddress" => format!("10.{}.{}.{}", 128 + seed / 65_536 % 64, seed / 256 % 256, seed % 256),
        _ => format!("case{seed}"),
    }
}

impl Property {
    pub(crate) async fn prepare() -> Self {
        let world = World::connect().await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let made = world.send(Method::POST, "/api/v1/namespaces", Some((body::JSON, &namespace))).await;
        made.unwrap_or_else(|refusal| panic!("{}", refusal.message));
        let found = resources(&world).await;
        let schemas = Schema::fetch(&world, &found).await;
        let seeds: Vec<Value> = serde_json::from_str(include_str!("seeds.json")).expect("the seeds are JSON");
        let mut prepared = Vec::new();
        let mut missing = Vec::new();
        for (index, resource) in found.into_iter().enumerate() {
            let is_of = |seed: &&Value| seed["apiVersion"] == resource.api_version && seed["kind"] == resource.kind;
            match (seeds.iter().find(is_of), schemas.get(&(resource.api_version.clone(), resource.kind.clone()))) {
                (Some(seed), Some(schema)) => {
                    prepared.push(prepare(&world, resource, schema.clone(), seed, index).await);
                }
                _ if LEFT_OUT.iter().any(|(kind, _)| *kind == resource.kind) => {}
                _ => missing.push(format!("{} {}", resource.api_version, resource.kind)),
            }
        }
        assert!(missing.is_empty(), "seeds.json has no object of {}", missing.join(", "));
        Self { world, prepared, schemas: Schemas::builtin() }
    }

    pub(crate) async fn run(&self, first: u64, cases: usize) -> Totals {
        let mut totals = Totals::default();
        for start in (0..cases).step_by(LISTED_AFTER) {
            let seeds = (start..cases.min(start + LISTED_AFTER)).map(|index| first.wrapping_add(index as u64));
            let mut done = futures::stream::iter(seeds.map(|seed| self.case(seed))).buffer_unordered(AT_ONCE);
            let mut stored: BTreeMap<usize, Vec<String>> = BTreeMap::new();
            while let Some((kind, name, result)) = done.next().await {
                let counts = totals.kinds.entry(self.prepared[kind].resource.kind.clone()).or_default();
                counts.0 += 1;
                match result {
                    Ok(false) => {}
                    Ok(true) => {
                        counts.1 += 1;
                        stored.entry(kind).or_default().push(name);
                    }
                    Err(rejected) => {
                        counts.1 += 1;
                        totals.rejected.push(rejected);
                    }
                }
            }
            for (kind, names) in stored {
                totals.rejected.extend(self.list(&self.prepared[kind], &names).await);
            }
        }
        totals
    }

    /// Lists a kind, which must contain all these objects, and removes them.
    async fn list(&self, prepared: &Prepared, names: &[String]) -> Option<Rejected> {
        let kind = prepared.resource.kind.clone();
        let rejected = |reason: String| Some(Rejected { kind: kind.clone(), report: reason.clone(), reason });
        let listed = match self.world.send(Method::GET, &prepared.path(""), None).await {
            Ok(listed) => listed,
            Err(refusal) => return rejected(format!("list: {}", refusal.message)),
        };
        let found: Vec<&str> = listed["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .collect();
        let object_name = |name: &str| prepared.key.rsplit('/').next().unwrap_or_default().replace("NAME", name);
        let missing: Vec<_> = names.iter().filter(|name| !found.contains(&&*object_name(name))).collect();
        for name in names {
            self.world.remove(&prepared.key.replace("NAME", name)).await;
        }
        if missing.is_empty() { None } else { rejected(format!("list: {missing:?} are missing")) }
    }

    /// Returns whether both sides changed the object, differently.
    async fn case(&self, seed: u64) -> (usize, String, Result<bool, Rejected>) {
        let mut random = StdRng::seed_from_u64(seed);
        let kind = loop {
            let kind = random.random_range(0..self.prepared.len());
            if !SLOW.contains(&&*self.prepared[kind].resource.kind) || random.random_ratio(1, SLOW_ONCE_IN) {
                break kind;
            }
        };
        let prepared = &self.prepared[kind];
        let name = case_name(&prepared.resource, seed);
        let result = self.try_case(prepared, seed, &name, &mut random).await;
        if !matches!(result, Ok(true)) {
            self.world.remove(&prepared.key.replace("NAME", &name)).await;
        }
        (kind, name, result)
    }

    async fn try_case(
        &self,
        prepared: &Prepared,
        seed: u64,
        name: &str,
        random: &mut StdRng,
    ) -> Result<bool, Rejected> {
        let index = random.random_range(0..prepared.bases.len());
        let base = std::str::from_utf8(&prepared.bases[index]).expect("JSON is text");
        let base = base.replace(&pool_name(&prepared.resource, index), name);
        let uid: Value = serde_json::from_str(&base).expect("what is stored is JSON");
        let uid = uid["metadata"]["uid"].as_str().expect("every object has a uid").to_owned();
        let base = base.replace(&uid, &format!("00000000-0000-4000-a000-{seed:012x}"));
        let key = prepared.key.replace("NAME", name);
        let mut sides = Vec::new();
        let mut log = String::new();
        for side in ["A", "B"] {
            self.world.write(&key, base.as_bytes()).await;
            if !self.edit(prepared, name, side, random, &mut log).await {
                return Ok(false);
            }
            let Some(value) = self.world.read(&key).await else { return Ok(false) };
            sides.push(value);
        }
        if sides[0] == sides[1] || sides.iter().any(|side| *side == base) {
            return Ok(false);
        }
        let Some(merged) = self.merged(&base, &sides) else { return Ok(false) };
        let object = |value: &[u8]| serde_json::from_slice::<Value>(value).expect("what is stored is JSON");
        match self.accepts(prepared, name, &merged).await {
            Ok(()) => Ok(true),
            Err(refusal) => {
                for side in &sides {
                    if self.accepts(prepared, name, side).await.is_err() {
                        // A side is rejected, too, so the merge is not the cause.
                        return Ok(false);
                    }
                }
                let reason = refusal.message.lines().next().unwrap_or_default().replace(name, "NAME");
                let mut report = format!("seed {seed}, {}: {reason}\n", prepared.resource.kind);
                let _ = writeln!(
                    report,
                    "  TRISHANKU_MERGE_SEED={seed} TRISHANKU_MERGE_OBJECTS=1 cargo test -p trishanku-testkit --test merge accepts"
                );
                report.push_str(&log);
                let before = object(base.as_bytes());
                for (name, value) in [("A", &*sides[0]), ("B", &*sides[1]), ("merged", &*merged)] {
                    let _ = writeln!(report, "  base to {name}:");
                    for found in differences(Some(&before), Some(&object(value))) {
                        if !found.path.contains("managedFields") {
                            let show = |value: Option<Value>| {
                                value.map_or_else(|| "(none)".to_owned(), |value| value.to_string())
                            };
                            let _ = writeln!(
                                report,
                                "      {}: {} -> {}",
                                found.path,
                                show(found.merged),
                                show(found.serial)
                            );
                        }
                    }
                }
                Err(Rejected { kind: prepared.resource.kind.clone(), reason, report })
            }
        }
    }

    /// Makes edits of one side that kube-apiserver accepts. Returns `false` if it accepted none.
    async fn edit(&self, prepared: &Prepared, name: &str, side: &str, random: &mut StdRng, log: &mut String) -> bool {
        let path = prepared.path(&object_name(prepared, name));
        let Ok(mut now) = self.world.send(Method::GET, &path, None).await else { return false };
        let (wanted, mut done) = (random.random_range(1..=3), 0);
        for _ in 0..wanted * 3 {
            let mut after = now.clone();
            let changed = prepared.schema.mutate(random, &mut after);
            if after == now {
                continue;
            }
            let as_side = format!("?fieldManager={side}");
            let sent = match random.random_range(0..4) {
                0 => {
                    let patch = merge_patch(&now, &after);
                    self.world.send(Method::PATCH, &(path.clone() + &as_side), Some((body::MERGE_PATCH, &patch))).await
                }
                1 => {
                    let patch = json!(json_patch(&now, &after));
                    self.world.send(Method::PATCH, &(path.clone() + &as_side), Some((body::JSON_PATCH, &patch))).await
                }
                2 => {
                    let mut applied = after.clone();
                    if let Some(metadata) = applied["metadata"].as_object_mut() {
                        for name in ["managedFields", "creationTimestamp", "generation", "resourceVersion"] {
                            metadata.shift_remove(name);
                        }
                    }
                    applied.as_object_mut().map(|object| object.shift_remove("status"));
                    let path = format!("{path}{as_side}&force=true");
                    self.world.send(Method::PATCH, &path, Some((body::APPLY_PATCH, &applied))).await
                }
                _ => self.world.send(Method::PUT, &(path.clone() + &as_side), Some((body::JSON, &after))).await,
            };
            if let Ok(answer) = sent {
                let _ = writeln!(log, "    {side}: {changed}");
                now = answer;
                done += 1;
            }
            if done == wanted {
                break;
            }
        }
        done > 0
    }

    /// Returns the merged value, which does not depend on the order of the sides; `None` if the object is deleted.
    fn merged(&self, base: &str, sides: &[Bytes]) -> Option<Vec<u8>> {
        let once = |ours: &Bytes, theirs: &Bytes| {
            let [of_ours, of_theirs] = [ours, theirs].map(|value| Some(Side::of(value)));
            let Merged { outcome, .. } = merge(&self.schemas, Policy::Later, Some(base.as_bytes()), of_ours, of_theirs);
            match outcome {
                Outcome::Ours => Some(ours.to_vec()),
                Outcome::Theirs => Some(theirs.to_vec()),
                Outcome::Deleted => None,
                Outcome::New(value) => Some(value),
            }
        };
        let (one, again, swapped) =
            (once(&sides[0], &sides[1]), once(&sides[0], &sides[1]), once(&sides[1], &sides[0]));
        assert_eq!(one, again, "a merge is deterministic");
        assert_eq!(one, swapped, "the order of the sides makes no difference");
        one
    }

    /// Checks that kube-apiserver reads the object, accepts it as an update, and would create it.
    async fn accepts(&self, prepared: &Prepared, name: &str, value: &[u8]) -> Result<(), Refusal> {
        let key = prepared.key.replace("NAME", name);
        let path = prepared.path(&object_name(prepared, name));
        self.world.write(&key, value).await;
        let dry_run = format!("{path}?dryRun=All");
        let mut tries = 0;
        let read = loop {
            let read = self.world.send(Method::GET, &path, None).await?;
            match self.world.send(Method::PUT, &dry_run, Some((body::JSON, &read))).await {
                Ok(_) => break read,
                // Controllers in kube-apiserver write to some kinds.
                Err(refusal) if refusal.message.contains("the object has been modified") && tries < 20 => tries += 1,
                Err(refusal) => return Err(refusal),
            }
        };
        // An update may keep an invalid field; a creation may not.
        let mut new = read;
        if let Some(metadata) = new["metadata"].as_object_mut() {
            for name in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
                metadata.shift_remove(name);
            }
        }
        if prepared.resource.kind == "Service" {
            without_allocations(&mut new);
        }
        self.world.remove(&key).await;
        let created =
            self.world.send(Method::POST, &format!("{}?dryRun=All", prepared.path("")), Some((body::JSON, &new))).await;
        self.world.write(&key, value).await;
        created.map(drop)
    }
}

/// Removes the addresses and ports of a Service, which are already allocated.
fn without_allocations(service: &mut Value) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.shift_remove("clusterIP");
        spec.shift_remove("clusterIPs");
    }
    spec.shift_remove("healthCheckNodePort");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        port.as_object_mut().map(|port| port.shift_remove("nodePort"));
    }
}

/// Returns the object's name in the API, which may be longer than that of the case.
fn object_name(prepared: &Prepared, name: &str) -> String {
    prepared.key.rsplit('/').next().unwrap_or_default().replace("NAME", name)
}

/// Creates the base objects: the seed, and objects with more fields that kube-apiserver accepts.
async fn prepare(world: &World, resource: Resource, schema: Schema, seed: &Value, index: usize) -> Prepared {
    let mut random = StdRng::seed_from_u64(index as u64);
    let mut prepared = Prepared { resource, schema, key: String::new(), bases: Vec::new() };
    let collection = prepared.path("");
    while prepared.bases.len() < VARIANTS {
        let name = pool_name(&prepared.resource, prepared.bases.len());
        let text =
            seed.to_string().replace("NAMESPACE", NAMESPACE).replace("NAME", &name).replace("REQUEST", request());
        let mut object: Value = serde_json::from_str(&text).expect("a seed is JSON");
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!(name);
        }
        for _ in 0..prepared.bases.len() * 3 {
            let mut grown = object.clone();
            prepared.schema.mutate(&mut random, &mut grown);
            let dry_run = format!("{collection}?dryRun=All");
            if grown != object && world.send(Method::POST, &dry_run, Some((body::JSON, &grown))).await.is_ok() {
                object = grown;
            }
        }
        let made = world.send(Method::POST, &collection, Some((body::JSON, &object))).await;
        made.unwrap_or_else(|refusal| panic!("{}: {}", prepared.resource.kind, refusal.message));
        let object_name = object["metadata"]["name"].as_str().expect("the object has a name").to_owned();
        if prepared.key.is_empty() {
            let keys = world.keys_of(&object_name).await;
            let plural = format!("/{}/", prepared.resource.plural);
            let [key] = &keys.iter().filter(|key| keys.len() == 1 || key.contains(&plural)).collect::<Vec<_>>()[..]
            else {
                panic!("{}: {keys:?}", prepared.resource.kind)
            };
            prepared.key = key.replace(&name, "NAME");
        }
        let key = prepared.key.replace("NAME", &name);
        prepared.bases.push(world.read(&key).await.expect("the object was created"));
        world.remove(&key).await;
    }
    prepared
}

/// Returns a certificate signing request.
fn request() -> &'static str {
    static REQUEST: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    REQUEST.get_or_init(|| {
        let pair = rcgen::KeyPair::generate().expect("a key can be made");
        let request = rcgen::CertificateParams::default().serialize_request(&pair).expect("the request can be signed");
        base64(request.pem().expect("the request can be encoded as PEM").as_bytes())
    })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = (number >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= chunk.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}
