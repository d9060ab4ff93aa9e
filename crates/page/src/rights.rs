//! Which objects the user may read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

/// How long an answer of kube-apiserver is used.
const FRESH: Duration = Duration::from_mins(1);
/// Concurrent requests.
const AT_A_TIME: usize = 8;
/// How long the requests for a page may take together.
const LIMIT: Duration = Duration::from_secs(15);
/// Requests about all objects of a resource in a namespace, for one page.
const MAX_NAMESPACES: usize = 300;
/// Requests about single objects for one page. Further objects are not checked, and not shown; known answers do not count, so that
/// the next reload checks more.
const MAX_NAMED: usize = 200;
/// Known answers; all are dropped when there are more.
const MAX_KNOWN: usize = 10_000;

/// An object of Kubernetes, as RBAC names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its API group; empty for the core group.
    pub group: String,
    /// The plural, such as `configmaps`.
    pub resource: String,
    /// Its namespace; empty for an object of the cluster.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Why rights cannot be checked.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot check access rights: {0}; start kube-apiserver, or run `trishanku ui --no-review` to see all that the files of the repository show you"
)]
pub struct RightsError(pub String);

/// Whether the user may read an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The user may read it.
    Allowed,
    /// The user may not read it.
    Denied,
    /// kube-apiserver was not asked, because the page has too many objects. It is not shown.
    Unchecked,
}

/// The objects that the user may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    is_everything: bool,
    objects: BTreeSet<ObjectRef>,
    unchecked: BTreeSet<ObjectRef>,
}

impl Granted {
    /// Returns the right to read everything, including keys that are no objects.
    pub fn everything() -> Self {
        Self { is_everything: true, ..Self::default() }
    }

    /// Returns the right to read these objects.
    pub fn only(objects: BTreeSet<ObjectRef>) -> Self {
        Self { objects, ..Self::default() }
    }

    /// Adds objects whose rights were not checked.
    #[must_use]
    pub fn with_unchecked(self, unchecked: BTreeSet<ObjectRef>) -> Self {
        Self { unchecked, ..self }
    }

    /// Returns whether everything may be read.
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Returns whether an object may be read. A key that is no object needs the right to everything.
    pub fn allows(&self, object: Option<&ObjectRef>) -> bool {
        self.right(object) == Right::Allowed
    }

    /// Returns the right to an object.
    pub fn right(&self, object: Option<&ObjectRef>) -> Right {
        let is_in = |objects: &BTreeSet<ObjectRef>| object.is_some_and(|object| objects.contains(object));
        if self.is_everything || is_in(&self.objects) {
            Right::Allowed
        } else if is_in(&self.unchecked) {
            Right::Unchecked
        } else {
            Right::Denied
        }
    }
}

/// Decides which objects the user may read.
pub trait Rights: Send + Sync {
    /// Returns which of the objects may be read, or that everything may be. Takes bounded time.
    fn review(&self, objects: BTreeSet<ObjectRef>) -> BoxFuture<'_, Result<Granted, RightsError>>;
}

/// The user may read everything: without a kube-apiserver, the files of the repository are the boundary.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnrestrictedRights;

impl Rights for UnrestrictedRights {
    fn review(&self, _objects: BTreeSet<ObjectRef>) -> BoxFuture<'_, Result<Granted, RightsError>> {
        std::future::ready(Ok(Granted::everything())).boxed()
    }
}

/// Asks kube-apiserver, as the user of a kubeconfig (`SelfSubjectAccessReview`, verb `get`). Answers are used for a minute.
pub struct AccessReviews {
    reviews: Api<SelfSubjectAccessReview>,
    known: Mutex<HashMap<ObjectRef, (Instant, bool)>>,
    limit: Duration,
}

type Answers = BTreeMap<ObjectRef, bool>;
/// Makes the question about an object that covers more than it.
type Scope = fn(&ObjectRef) -> ObjectRef;

impl AccessReviews {
    /// Creates it with the client of the user.
    pub fn new(client: Client) -> Self {
        Self { reviews: Api::all(client), known: Mutex::default(), limit: LIMIT }
    }

    /// Changes how long the requests for a page may take together.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    fn known(&self, object: &ObjectRef) -> Option<bool> {
        let known = self.known.lock().get(object).copied();
        known.filter(|(asked, _)| asked.elapsed() < FRESH).map(|(_, answer)| answer)
    }

    /// Asks about an object; without a name, about all of the namespace; without a namespace, about all of the cluster.
    async fn may_get(&self, object: ObjectRef) -> Result<(ObjectRef, bool), RightsError> {
        if let Some(answer) = self.known(&object) {
            return Ok((object, answer));
        }
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        // A request for a Namespace has that namespace, so that a role in it can allow it.
        let is_namespace = object.group.is_empty() && object.resource == "namespaces";
        let namespace = if is_namespace { &object.name } else { &object.namespace };
        let attributes = ResourceAttributes {
            verb: Some("get".to_owned()),
            group: text(&object.group),
            resource: text(&object.resource),
            namespace: text(namespace),
            name: text(&object.name),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let done = self.reviews.create(&PostParams::default(), &review).await;
        let status = done.map_err(|error| RightsError(error.to_string()))?.status;
        let answer = status.is_some_and(|status| status.allowed);
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(object.clone(), (Instant::now(), answer));
        Ok((object, answer))
    }

    /// Asks questions, of those without a known answer at most `limit`. Returns the answers; the other questions have none.
    async fn ask(&self, questions: BTreeSet<ObjectRef>, limit: usize) -> Result<Answers, RightsError> {
        let mut answers = Answers::new();
        let mut open = Vec::new();
        for question in questions {
            match self.known(&question) {
                Some(answer) => drop(answers.insert(question, answer)),
                None => open.push(question),
            }
        }
        let asked = open.into_iter().take(limit).map(|question| self.may_get(question));
        let asked: Answers = futures::stream::iter(asked).buffer_unordered(AT_A_TIME).try_collect().await?;
        answers.extend(asked);
        Ok(answers)
    }

    /// Asks from the largest right to the smallest: most rights are for all objects of a namespace, or of the cluster.
    async fn granted(&self, objects: BTreeSet<ObjectRef>) -> Result<Granted, RightsError> {
        let star = || "*".to_owned();
        let everything = ObjectRef { group: star(), resource: star(), namespace: String::new(), name: String::new() };
        if self.may_get(everything).await?.1 {
            return Ok(Granted::everything());
        }
        let (mut granted, mut rest) = (BTreeSet::new(), objects);
        let scopes: [(Scope, usize); 3] = [
            (|object| ObjectRef { namespace: String::new(), ..in_namespace(object) }, MAX_NAMESPACES),
            (in_namespace, MAX_NAMESPACES),
            (ObjectRef::clone, MAX_NAMED),
        ];
        let mut unchecked = BTreeSet::new();
        for (scope, limit) in scopes {
            let answers = self.ask(rest.iter().map(scope).collect(), limit).await?;
            // An object without an answer here may have one in the next, smaller scope.
            unchecked = rest.iter().filter(|object| !answers.contains_key(&scope(object))).cloned().collect();
            let (allowed, open): (BTreeSet<_>, BTreeSet<_>) =
                rest.into_iter().partition(|object| answers.get(&scope(object)) == Some(&true));
            granted.extend(allowed);
            rest = open;
        }
        Ok(Granted::only(granted).with_unchecked(unchecked))
    }
}

fn in_namespace(object: &ObjectRef) -> ObjectRef {
    ObjectRef { name: String::new(), ..object.clone() }
}

impl Rights for AccessReviews {
    fn review(&self, objects: BTreeSet<ObjectRef>) -> BoxFuture<'_, Result<Granted, RightsError>> {
        async move {
            let late = |_| {
                let limit = self.limit;
                RightsError(format!("kube-apiserver has not answered the access reviews of this page within {limit:?}"))
            };
            tokio::time::timeout(self.limit, self.granted(objects)).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
        }
        .boxed()
    }
}
