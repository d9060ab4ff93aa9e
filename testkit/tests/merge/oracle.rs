//! Merges random requests on two branches, and compares them with the same requests in sequence on one kube-apiserver.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use gitcd::merge::schema::Schemas;
use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::case::{Case, Verdict};
use crate::kinds::{Kind, definition, kinds};
use crate::report::Fault;
use crate::requests::{self, Request, Target};
use crate::world::{World, body};

/// Number of concurrent cases.
const AT_ONCE: usize = 8;
/// Namespace of the base objects.
pub(crate) const BASE: &str = "oracle-base";
/// Base objects of each kind.
const VARIANTS: usize = 8;
/// Maximum number of orders of the requests to try.
pub(crate) const ORDERS: usize = 20;

/// A kind, and the objects that its cases start from.
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    /// Key of an object, with `NAMESPACE` and `NAME` as placeholders.
    pub(crate) key: String,
    bases: Vec<Base>,
}

/// An object that cases start from.
struct Base {
    name: String,
    stored: Bytes,
    shown: String,
}

pub(crate) struct Oracle {
    pub(crate) world: World,
    prepared: Vec<Prepared>,
    pub(crate) schemas: Schemas,
}

/// The results of a run.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) counts: BTreeMap<String, usize>,
    pub(crate) faults: Vec<Fault>,
}

impl Oracle {
    pub(crate) async fn prepare() -> Self {
        let world = World::connect().await;
        let orders = (0..ORDERS).map(|order| format!("oracle-{order:02}"));
        for name in [BASE, "oracle-xa", "oracle-xb"].map(str::to_owned).into_iter().chain(orders) {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let made = world.send(Method::POST, "/api/v1/namespaces", Some((body::JSON, &namespace))).await;
            made.unwrap_or_else(|refusal| panic!("namespace {name}: {}", refusal.message));
        }
        install(&world).await;
        let mut prepared = Vec::new();
        for (index, kind) in kinds().into_iter().enumerate() {
            prepared.push(prepare(&world, kind, index).await);
        }
        let (schemas, problems) = Schemas::builtin().with_crds([&definition()]);
        assert!(problems.is_empty(), "{problems:?}");
        Self { world, prepared, schemas }
    }

    /// Runs cases with consecutive seeds from `first`.
    pub(crate) async fn run(&self, first: u64, cases: usize) -> Totals {
        let mut totals = Totals::default();
        let seeds = (0..cases as u64).map(|index| first.wrapping_add(index));
        let mut verdicts = futures::stream::iter(seeds.map(|seed| self.case(seed))).buffer_unordered(AT_ONCE);
        while let Some((kind, verdict)) = verdicts.next().await {
            let what = match verdict {
                Verdict::Nothing => "nothing to merge".to_owned(),
                Verdict::Order(order) => order.to_owned(),
                Verdict::Documented(documented) => format!("documented: {}", documented.name()),
                Verdict::Fault(fault) => {
                    totals.faults.push(fault);
                    "FAULT".to_owned()
                }
            };
            *totals.counts.entry(format!("{what} ({kind})")).or_default() += 1;
            *totals.counts.entry(what).or_default() += 1;
        }
        totals
    }

    async fn case(&self, seed: u64) -> (&'static str, Verdict) {
        let mut random = StdRng::seed_from_u64(seed);
        let prepared = self.prepared.choose(&mut random).expect("there are kinds");
        let name = format!("case-{seed}");
        let base = random.random_bool(0.93).then(|| {
            let base = prepared.bases.choose(&mut random).expect("there are base objects");
            let stored = std::str::from_utf8(&base.stored).expect("JSON is text");
            [stored, &base.shown].map(|text| base_of(text, &base.name, &name, seed))
        });
        let (base, shown) = base.map_or((None, None), |[base, shown]| (Some(base), Some(shown)));
        let case = Case { oracle: self, prepared, name, base, shown };
        (prepared.kind.kind, case.run(seed).await)
    }
}

/// Copies a base object, with another name and uid.
fn base_of(text: &str, old: &str, name: &str, seed: u64) -> String {
    let text = text.replace(old, name);
    let object: Value = serde_json::from_str(&text).expect("what is stored is JSON");
    let uid = object["metadata"]["uid"].as_str().expect("every object has a uid");
    text.replace(uid, &format!("00000000-0000-4000-9000-{seed:012x}"))
}

async fn install(world: &World) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = world.send(Method::POST, definitions, Some((body::JSON, &definition()))).await;
    made.unwrap_or_else(|refusal| panic!("the definition: {}", refusal.message));
    let deadline = Instant::now() + Duration::from_mins(1);
    let things = "/apis/oracle.example/v1/namespaces/default/things";
    while world.send(Method::GET, things, None).await.is_err() {
        assert!(Instant::now() < deadline, "the defined kind is not served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn prepare(world: &World, kind: Kind, index: usize) -> Prepared {
    let mut random = StdRng::seed_from_u64(index as u64);
    let (mut key, mut bases) = (String::new(), Vec::new());
    while bases.len() < VARIANTS {
        let name = format!("pool-{index:02}-{:02}", bases.len());
        let mut target = Target { namespace: BASE.to_owned(), name: name.clone(), uids: [None, None], seen: None };
        let most = bases.len().min(4);
        let edits = match most {
            0 => Vec::new(),
            most => requests::edits(&mut random, &kind.fields, &kind.object("", &[]), most, false),
        };
        let create = Request { side: 0, manager: "base", action: requests::Action::Create(kind.object("", &edits)) };
        if let Err(refusal) = create.send(world, &kind, &mut target).await {
            assert!(most > 0, "{}: {}", kind.kind, refusal.message);
            continue;
        }
        // Earlier changes by controllers and users.
        for _ in 0..most {
            target.seen = None;
            let now = target.look(world, &kind).await.ok();
            if now.is_some()
                && let Some(mut request) = requests::random(&mut random, &kind, 0, now.as_ref())
                && !matches!(request.action, requests::Action::Delete { .. } if bases.len() + 1 < VARIANTS)
            {
                request.manager = "base";
                let _refused = request.send(world, &kind, &mut target).await;
            }
        }
        if key.is_empty() {
            let keys = world.keys_of(&name).await;
            let [found] = &keys[..] else { panic!("{}: {keys:?}", kind.kind) };
            key = found.replace(&name, "NAME").replace(BASE, "NAMESPACE");
        }
        if let Some(stored) = world.read(&key.replace("NAMESPACE", BASE).replace("NAME", &name)).await {
            let shown = world.send(Method::GET, &kind.path(BASE, &name), None).await.expect("the object is stored");
            bases.push(Base { name, stored, shown: shown.to_string() });
        }
    }
    Prepared { kind, key, bases }
}
