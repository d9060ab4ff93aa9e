//! A case: the requests of two branches, and their merge.

use std::fmt::Write as _;

use gitcd::merge::{Merged, Outcome, Policy, Side, merge};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use crate::compare::{sorted, wrong_generation};
use crate::documented::{self, Documented};
use crate::oracle::{BASE, ORDERS, Oracle, Prepared};
use crate::report::{Fault, Report, Serial};
use crate::requests::{self, Request, Target};

/// Result of a case.
pub(crate) enum Verdict {
    /// At most one side changed the object.
    Nothing,
    /// An order of the requests has the same result as the merge.
    Order(&'static str),
    Documented(Documented),
    Fault(Fault),
}

/// A case in progress.
pub(crate) struct Case<'o> {
    pub(crate) oracle: &'o Oracle,
    pub(crate) prepared: &'o Prepared,
    pub(crate) name: String,
    pub(crate) base: Option<String>,
    /// The base as kube-apiserver returns it.
    pub(crate) shown: Option<String>,
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

    /// Returns the stored value, as if it were in the namespace of the base.
    async fn end(&self, namespace: &str) -> Option<String> {
        let value = self.oracle.world.read(&self.key(namespace)).await?;
        Some(std::str::from_utf8(&value).expect("JSON is text").replace(namespace, BASE))
    }

    /// Runs one side alone. Returns its accepted requests, and the resulting value.
    async fn branch(&self, side: usize, seed: u64) -> (Vec<Request>, Option<String>) {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(2).wrapping_add(side as u64 + 1));
        let namespace = ["oracle-xa", "oracle-xb"][side];
        let mut target = self.begin(namespace).await;
        let (world, kind) = (&self.oracle.world, &self.prepared.kind);
        let wanted = *[1, 1, 1, 2, 2, 3].choose(&mut random).expect("the list is not empty");
        let mut done = Vec::new();
        for _ in 0..wanted * 2 {
            let now = target.look(world, kind).await.ok();
            let Some(request) = requests::random(&mut random, kind, side, now.as_ref()) else { continue };
            let before = target.clone();
            match request.send(world, kind, &mut target).await {
                Ok(()) => done.push(request.effective(before.seen.as_ref(), target.seen.as_ref())),
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
                let _ =
                    writeln!(log, "      refused: {request}: {}", refusal.message.lines().next().unwrap_or_default());
            }
        }
        (self.end(&namespace).await, log)
    }

    pub(crate) async fn run(&self, seed: u64) -> Verdict {
        let ((of_a, a), (of_b, b)) = tokio::join!(self.branch(0, seed), self.branch(1, seed));
        if a == self.base || b == self.base || of_a.is_empty() || of_b.is_empty() {
            return Verdict::Nothing;
        }
        let merged = self.merged(a.as_ref(), b.as_ref());
        let mut report = Report {
            seed,
            kind: self.prepared.kind.kind,
            requests: [&of_a, &of_b],
            base: self.base.as_deref(),
            sides: [a.as_deref(), b.as_deref()],
            merged: merged.as_deref(),
            serials: Vec::new(),
        };
        let result = report.normal(report.merged);
        for (index, order) in orders(of_a.len(), of_b.len()).into_iter().enumerate().take(ORDERS) {
            let (value, refused) = self.serial(index, &in_order(&order, report.requests)).await;
            let shown = report.normal(value.as_deref().map(str::as_bytes));
            if shown == result {
                return match wrong_generation(report.merged, report.sides) {
                    Some(reason) => Verdict::Fault(report.of_generation(&reason)),
                    None => Verdict::Order(["A, then B", "B, then A"].get(index).unwrap_or(&"interleaved")),
                };
            }
            report.serials.push(Serial { order, shown, refused });
        }
        match self.documented(&report, result.as_ref()).await {
            Some(documented) => Verdict::Documented(documented),
            None => Verdict::Fault(report.fault(result.as_ref())),
        }
    }

    /// Returns the intended difference that explains a result which no order of the requests has.
    async fn documented(&self, report: &Report<'_>, result: Option<&Value>) -> Option<Documented> {
        // Results of equivalent requests: several differences may apply to one case.
        let mut others = Vec::new();
        let any = |is: fn(&Request) -> bool| report.requests.iter().any(|requests| requests.iter().any(is));
        let mut otherwise = async |send: &dyn Fn(&Request) -> Vec<Request>| {
            let sent = self.sent_otherwise(report, send).await;
            let is_found = sent.iter().any(|value| value.as_ref().map(sorted) == result.map(sorted));
            others.extend(sent);
            is_found
        };
        if any(Request::is_unforced) && otherwise(&|request| vec![request.forced()]).await {
            return Some(Documented::UnforcedApply);
        }
        if report.serials.iter().any(|serial| !serial.refused.is_empty()) {
            // An apply also changes fields that its edits do not name, so the requests of one side may have to stay.
            let of_side = |side: usize| move |request: &Request| request.one_by_one_if(request.side == side);
            if otherwise(&Request::one_by_one).await || otherwise(&of_side(0)).await || otherwise(&of_side(1)).await {
                return Some(Documented::RefusedBeside);
            }
        }
        if any(Request::is_upsert) && otherwise(&Request::one_by_one).await {
            return Some(Documented::SameValue);
        }
        let is_gone = report.sides.map(|side| side.is_none());
        // Edits of finalizers stay: the deletion depends on them.
        let without_edits = |request: &Request, is_one_by_one: bool| {
            let is_kept =
                |one: &Request| one.is_deletion() || !is_gone[one.side] || one.edits_at("metadata.finalizers");
            let requests = request.one_by_one_if(is_one_by_one || is_gone[request.side]);
            requests.into_iter().filter(is_kept).collect::<Vec<_>>()
        };
        if is_gone.contains(&true)
            && (otherwise(&|request| without_edits(request, true)).await
                || otherwise(&|request| without_edits(request, false)).await)
        {
            return Some(Documented::BeforeDeletion);
        }
        documented::find(&documented::Facts {
            base: report.base,
            sides: report.sides,
            schemas: &self.oracle.schemas,
            requests: report.requests,
            before: report.normal(report.base.map(str::as_bytes)).as_ref(),
            merged: result,
            shown: report.sides.map(|side| report.normal(side.map(str::as_bytes))),
            serials: &report
                .serials
                .iter()
                .map(|serial| &serial.shown)
                .chain(&others)
                .map(Option::as_ref)
                .collect::<Vec<_>>(),
        })
    }

    /// Returns the results of all orders if each request is replaced.
    async fn sent_otherwise(
        &self,
        report: &Report<'_>,
        otherwise: impl Fn(&Request) -> Vec<Request>,
    ) -> Vec<Option<Value>> {
        let mut found = Vec::new();
        for (index, serial) in report.serials.iter().enumerate() {
            let requests = in_order(&serial.order, report.requests);
            let mut sent: Vec<Request> = requests.into_iter().flat_map(&otherwise).collect();
            let mut send = async |sent: &[Request]| {
                let (value, refused) = self.serial(index, &sent.iter().collect::<Vec<_>>()).await;
                found.push(report.normal(value.as_deref().map(str::as_bytes)));
                !refused.is_empty()
            };
            if send(&sent).await {
                sent.sort_by_key(Request::turn);
                send(&sent).await;
            }
        }
        found
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
        assert_eq!(one, other, "the order of the sides makes no difference");
        one
    }
}

fn in_order<'r>(order: &[bool], sides: [&'r [Request]; 2]) -> Vec<&'r Request> {
    let [mut from_a, mut from_b] = sides.map(<[Request]>::iter);
    let next = |of_b: &bool| if *of_b { from_b.next() } else { from_a.next() };
    order.iter().map(next).map(|request| request.expect("the order contains each request once")).collect()
}

/// Returns all interleavings of two sides' requests; `true` is a request of B. Starts with A before B, and B before A.
fn orders(of_a: usize, of_b: usize) -> Vec<Vec<bool>> {
    fn all(of_a: usize, of_b: usize) -> Vec<Vec<bool>> {
        if of_a == 0 || of_b == 0 {
            return vec![[vec![false; of_a], vec![true; of_b]].concat()];
        }
        let begin = |first: bool, rest: Vec<Vec<bool>>| rest.into_iter().map(move |rest| [vec![first], rest].concat());
        begin(false, all(of_a - 1, of_b)).chain(begin(true, all(of_a, of_b - 1))).collect()
    }
    let mut orders = all(of_a, of_b);
    let last = orders.pop().expect("there is at least one order");
    orders.insert(orders.len().min(1), last);
    orders
}
