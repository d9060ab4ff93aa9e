//! Random requests on two branches, merged, beside the same requests one after the other on one kube-apiserver.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use gitcd::merge::schema::Schemas;
use gitcd::merge::{Merged, Outcome, Policy, Side, merge};
use http::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::compare::{Difference, differences, normal};
use crate::documented::{self, Documented};
use crate::kinds::{Kind, definition, kinds};
use crate::requests::{self, Request, Target};
use crate::world::{World, body};

/// Cases that are under way at once.
const AT_ONCE: usize = 8;
/// Where the base objects are made.
const BASE: &str = "oracle-base";
/// Base objects of each kind.
const VARIANTS: usize = 8;
/// More orders of the requests than this are not tried.
const ORDERS: usize = 20;

/// A kind with the objects that cases begin with.
struct Prepared {
    kind: Kind,
    /// With the name and namespace of a base object.
    key: String,
    bases: Vec<Base>,
}

/// An object that cases begin with.
struct Base {
    name: String,
    stored: Bytes,
    shown: String,
}

/// A case that no order of its requests explains.
pub(crate) struct Fault {
    pub(crate) seed: u64,
    pub(crate) signature: String,
    pub(crate) report: String,
}

/// How a case ended.
enum Verdict {
    /// Neither side changed anything that the other did not.
    Nothing,
    /// The order of requests that gives what the merge made.
    Order(&'static str),
    Documented(Documented),
    Fault(Fault),
}

pub(crate) struct Oracle {
    world: World,
    prepared: Vec<Prepared>,
    schemas: Schemas,
}

/// What a run came to.
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

    /// Runs cases, the first of which has this seed.
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
        (prepared.kind.kind, case.run(seed, &mut random).await)
    }
}

/// A copy of a base object with another name and uid.
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
        // What controllers and people did to it before.
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
            let shown = world.send(Method::GET, &kind.path(BASE, &name), None).await.expect("it is stored");
            bases.push(Base { name, stored, shown: shown.to_string() });
        }
    }
    Prepared { kind, key, bases }
}

/// One pair of branches.
struct Case<'o> {
    oracle: &'o Oracle,
    prepared: &'o Prepared,
    name: String,
    base: Option<String>,
    /// The same as kube-apiserver shows it.
    shown: Option<String>,
}

impl Case<'_> {
    async fn begin(&self, namespace: &str) -> Target {
        let (mut uids, mut seen) = ([None, None], None);
        if let (Some(base), Some(shown)) = (&self.base, &self.shown) {
            let value = base.replace(BASE, namespace);
            let version = self.oracle.world.write(&self.key(namespace), value.as_bytes()).await;
            let mut object: Value = serde_json::from_str(&shown.replace(BASE, namespace)).expect("it was JSON");
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            let uid = object["metadata"]["uid"].as_str().map(str::to_owned);
            (uids, seen) = ([uid.clone(), uid], Some(object));
        }
        Target { namespace: namespace.to_owned(), name: self.name.clone(), uids, seen }
    }

    fn key(&self, namespace: &str) -> String {
        self.prepared.key.replace("NAMESPACE", namespace).replace("NAME", &self.name)
    }

    /// What is stored in the end, as if it were in the namespace of the base.
    async fn end(&self, namespace: &str) -> Option<String> {
        let value = self.oracle.world.read(&self.key(namespace)).await?;
        Some(std::str::from_utf8(&value).expect("JSON is text").replace(namespace, BASE))
    }

    /// One side alone: its requests, without those that were refused, and what they lead to.
    async fn branch(&self, side: usize, seed: u64) -> (Vec<Request>, Option<String>) {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(2).wrapping_add(side as u64 + 1));
        let namespace = ["oracle-xa", "oracle-xb"][side];
        let mut target = self.begin(namespace).await;
        let (world, kind) = (&self.oracle.world, &self.prepared.kind);
        let wanted = *[1, 1, 1, 2, 2, 3].choose(&mut random).expect("there are some");
        let mut done = Vec::new();
        for _ in 0..wanted * 2 {
            let now = target.look(world, kind).await.ok();
            let Some(request) = requests::random(&mut random, kind, side, now.as_ref()) else { continue };
            let before = target.clone();
            match request.send(world, kind, &mut target).await {
                Ok(()) => done.push(request),
                Err(_) => target = before,
            }
            if done.len() == wanted {
                break;
            }
        }
        (done, self.end(namespace).await)
    }

    async fn serial(&self, order: usize, requests: &[&Request]) -> (Option<String>, String) {
        let namespace = format!("oracle-{order:02}");
        let mut target = self.begin(&namespace).await;
        let mut log = String::new();
        for request in requests {
            let sent = request.send(&self.oracle.world, &self.prepared.kind, &mut target).await;
            if let Err(refusal) = sent {
                let _ = writeln!(log, "      refused: {request}: {}", refusal.message.lines().next().unwrap_or_default());
            }
        }
        (self.end(&namespace).await, log)
    }

    async fn run(&self, seed: u64, _random: &mut StdRng) -> Verdict {
        let ((of_a, a), (of_b, b)) = tokio::join!(self.branch(0, seed), self.branch(1, seed));
        if a == self.base || b == self.base || of_a.is_empty() || of_b.is_empty() {
            return Verdict::Nothing;
        }
        let merged = self.merged(a.as_ref(), b.as_ref());
        let base: Value = self.base.as_ref().map_or(Value::Null, |base| serde_json::from_str(base).expect("JSON"));
        let result = normal(merged.as_deref(), &base);
        let mut serials = Vec::new();
        for (index, order) in orders(of_a.len(), of_b.len()).into_iter().enumerate().take(ORDERS) {
            let (serial, log) = self.serial(index, &in_order(&order, [&of_a, &of_b])).await;
            let serial_value = normal(serial.as_deref().map(str::as_bytes), &base);
            if serial_value == result {
                return Verdict::Order(["A, then B", "B, then A"].get(index).unwrap_or(&"interleaved"));
            }
            serials.push((order, serial_value, log));
        }
        let requests: [&[Request]; 2] = [&of_a, &of_b];
        let any = |is: fn(&Request) -> bool| requests.iter().any(|requests| requests.iter().any(is));
        let (result_ref, base_ref) = (result.as_ref(), &base);
        let otherwise = async |send: &dyn Fn(&Request) -> Vec<Request>| {
            self.sent_otherwise(requests, send, result_ref, base_ref).await
        };
        if any(Request::is_unforced) && otherwise(&|request| vec![request.forced()]).await {
            return Verdict::Documented(Documented::UnforcedApply);
        }
        if serials.iter().any(|(_, _, log)| !log.is_empty()) && otherwise(&Request::one_by_one).await {
            return Verdict::Documented(Documented::RefusedBeside);
        }
        if any(Request::is_upsert) && otherwise(&Request::one_by_one).await {
            return Verdict::Documented(Documented::SameValue);
        }
        // What a side did before it deleted the object.
        let is_gone = [a.is_none(), b.is_none()];
        let deletion_only = |request: &Request| match request.is_deletion() || !is_gone[request.side] {
            true => request.one_by_one(),
            false => Vec::new(),
        };
        if is_gone.contains(&true) && otherwise(&deletion_only).await {
            return Verdict::Documented(Documented::BeforeDeletion);
        }
        let values: Vec<_> = serials.iter().map(|(_, value, _)| value.as_ref()).collect();
        let facts = documented::Facts {
            base: self.base.as_deref(),
            sides: [a.as_deref(), b.as_deref()],
            schemas: &self.oracle.schemas,
            merged: result.as_ref(),
            shown: [&a, &b].map(|side| normal(side.as_deref().map(str::as_bytes), &base)),
            serials: &values,
        };
        if let Some(documented) = documented::find(&facts) {
            return Verdict::Documented(documented);
        }
        let nearest = serials.iter().map(|(order, value, log)| {
            (differences(result.as_ref(), value.as_ref()), order, log)
        });
        let (found, order, log) = nearest.min_by_key(|(found, ..)| found.len()).expect("there are two orders at least");
        Verdict::Fault(self.fault(seed, [&of_a, &of_b], [a.as_deref(), b.as_deref()], merged.as_deref(), &found, order, log, &serials))
    }

    /// Whether some order gives the result if the requests are sent otherwise.
    async fn sent_otherwise(
        &self,
        requests: [&[Request]; 2],
        otherwise: impl Fn(&Request) -> Vec<Request>,
        result: Option<&Value>,
        base: &Value,
    ) -> bool {
        for (index, order) in orders(requests[0].len(), requests[1].len()).into_iter().enumerate().take(ORDERS) {
            let sent: Vec<Request> = in_order(&order, requests).into_iter().flat_map(&otherwise).collect();
            let (serial, _) = self.serial(index, &sent.iter().collect::<Vec<_>>()).await;
            if normal(serial.as_deref().map(str::as_bytes), base).as_ref() == result {
                return true;
            }
        }
        false
    }

    fn merged(&self, a: Option<&String>, b: Option<&String>) -> Option<Vec<u8>> {
        let base = self.base.as_ref().map(String::as_bytes);
        let once = |ours: Option<&String>, theirs: Option<&String>| {
            let side = |value: Option<&String>| value.cloned();
            let (ours, theirs) = (side(ours), side(theirs));
            let sides = [&ours, &theirs].map(|side| side.as_ref().map(|side| Side::of(side.as_bytes())));
            let Merged { outcome, .. } = merge(&self.oracle.schemas, Policy::Later, base, sides[0], sides[1]);
            match outcome {
                Outcome::Ours => ours.map(String::into_bytes),
                Outcome::Theirs => theirs.map(String::into_bytes),
                Outcome::Deleted => None,
                Outcome::New(value) => Some(value),
            }
        };
        let (one, other) = (once(a, b), once(b, a));
        assert_eq!(one, other, "a merge does not depend on whose side is ours");
        one
    }

    #[expect(clippy::too_many_arguments, reason = "a report has all that a case had")]
    fn fault(
        &self,
        seed: u64,
        requests: [&Vec<Request>; 2],
        sides: [Option<&str>; 2],
        merged: Option<&[u8]>,
        found: &[Difference],
        order: &[bool],
        log: &str,
        serials: &[(Vec<bool>, Option<Value>, String)],
    ) -> Fault {
        let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "(none)".to_owned(), Value::to_string);
        let mut report = format!("seed {seed}, {}\n", self.prepared.kind.kind);
        let _ = writeln!(report, "  TRISHANKU_MERGE_SEED={seed} TRISHANKU_MERGE_CASES=1 cargo test -p trishanku-testkit --test merge order");
        for request in requests.into_iter().flatten() {
            let _ = writeln!(report, "    {request}");
        }
        let names: String = order.iter().map(|of_b| if *of_b { 'B' } else { 'A' }).collect();
        let _ = writeln!(report, "  the nearest order is {names}:");
        report.push_str(log);
        for difference in found {
            let _ = writeln!(
                report,
                "      {}: merged {}, {names} {}",
                difference.path,
                show(&difference.merged),
                show(&difference.serial)
            );
        }
        let base = self.base.as_deref().map(str::as_bytes);
        let whole: Value = base.map_or(Value::Null, |base| serde_json::from_slice(base).expect("JSON"));
        let before = normal(base, &whole);
        let _ = writeln!(report, "  base: {}", show(&before));
        for (name, value) in [("A", sides[0].map(str::as_bytes)), ("B", sides[1].map(str::as_bytes)), ("merged", merged)] {
            let _ = writeln!(report, "  base to {name}:");
            for difference in differences(before.as_ref(), normal(value, &whole).as_ref()) {
                let _ = writeln!(report, "      {}: {} -> {}", difference.path, show(&difference.merged), show(&difference.serial));
            }
        }
        for (order, value, _) in serials.iter().take(2) {
            let names: String = order.iter().map(|of_b| if *of_b { 'B' } else { 'A' }).collect();
            let _ = writeln!(report, "  base to {names}:");
            for difference in differences(before.as_ref(), value.as_ref()) {
                let _ = writeln!(report, "      {}: {} -> {}", difference.path, show(&difference.merged), show(&difference.serial));
            }
        }
        if std::env::var_os("TRISHANKU_MERGE_VALUES").is_some() {
            let text = |value: Option<&[u8]>| value.map_or("(none)".into(), |value| String::from_utf8_lossy(value).into_owned());
            let values = [base, sides[0].map(str::as_bytes), sides[1].map(str::as_bytes), merged].map(text);
            let _ = writeln!(report, "  stored: {}", values.join("\n  "));
        }
        let paths: Vec<_> = found
            .iter()
            .map(|difference| {
                let side = |value: &Option<Value>| if value.is_some() { "x" } else { "-" };
                format!("{} {}/{}", difference.path, side(&difference.merged), side(&difference.serial))
            })
            .collect();
        Fault { seed, signature: format!("{}: {}", self.prepared.kind.kind, paths.join(", ")), report }
    }
}

fn in_order<'r>(order: &[bool], sides: [&'r [Request]; 2]) -> Vec<&'r Request> {
    let [mut from_a, mut from_b] = sides.map(<[Request]>::iter);
    let next = |of_b: &bool| if *of_b { from_b.next() } else { from_a.next() };
    order.iter().map(next).map(|request| request.expect("each is in the order once")).collect()
}

/// All orders of two sides' requests, each side's own in their order: `true` is one of B's. First A then B, then B then A.
fn orders(of_a: usize, of_b: usize) -> Vec<Vec<bool>> {
    fn all(of_a: usize, of_b: usize) -> Vec<Vec<bool>> {
        if of_a == 0 || of_b == 0 {
            return vec![[vec![false; of_a], vec![true; of_b]].concat()];
        }
        let begin = |first: bool, rest: Vec<Vec<bool>>| {
            rest.into_iter().map(move |rest| [vec![first], rest].concat())
        };
        begin(false, all(of_a - 1, of_b)).chain(begin(true, all(of_a, of_b - 1))).collect()
    }
    let mut orders = all(of_a, of_b);
    let last = orders.pop().expect("there is at least one order");
    if !orders.is_empty() {
        orders.insert(1, last);
    } else {
        orders.push(last);
    }
    orders
}
