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
/// Questions about single objects for one page; further objects are not shown.
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

/// The objects that the user may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    is_everything: bool,
    objects: BTreeSet<ObjectRef>,
}

impl Granted {
    /// Returns the right to read everything, including keys that are no objects.
    pub fn everything() -> Self {
        Self { is_everything: true, objects: BTreeSet::new() }
    }

    /// Returns the right to read these objects.
    pub fn only(objects: BTreeSet<ObjectRef>) -> Self {
        Self { is_everything: false, objects }
    }

    /// Returns whether everything may be read.
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Returns whether an object may be read. A key that is no object needs the right to everything.
    pub fn allows(&self, object: Option<&ObjectRef>) -> bool {
        self.is_everything || object.is_some_and(|object| self.objects.contains(object))
    }
}

/// Decides which objects the user may read.
pub trait Rights: Send + Sync {
    /// Returns which of the objects may be read, or that everything may be.
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
}

impl AccessReviews {
    /// Creates it with the client of the user.
    pub fn new(client: Client) -> Self {
        Self { reviews: Api::all(client), known: Mutex::default() }
    }

    /// Asks about an object; without a name, about all of the namespace.
    async fn may_get(&self, object: ObjectRef) -> Result<(ObjectRef, bool), RightsError> {
        let known = self.known.lock().get(&object).copied();
        if let Some((_, answer)) = known.filter(|(asked, _)| asked.elapsed() < FRESH) {
            return Ok((object, answer));
        }
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let attributes = ResourceAttributes {
            verb: Some("get".to_owned()),
            group: text(&object.group),
            resource: text(&object.resource),
            namespace: text(&object.namespace),
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

    async fn ask(&self, questions: BTreeSet<ObjectRef>) -> Result<BTreeMap<ObjectRef, bool>, RightsError> {
        let questions = questions.into_iter().map(|question| self.may_get(question));
        futures::stream::iter(questions).buffer_unordered(AT_A_TIME).try_collect().await
    }
}

impl Rights for AccessReviews {
    fn review(&self, objects: BTreeSet<ObjectRef>) -> BoxFuture<'_, Result<Granted, RightsError>> {
        async move {
            let star = || "*".to_owned();
            let everything =
                ObjectRef { group: star(), resource: star(), namespace: String::new(), name: String::new() };
            if self.may_get(everything).await?.1 {
                return Ok(Granted::everything());
            }
            // Most rights are for all objects of a namespace.
            let all = |object: &ObjectRef| ObjectRef { name: String::new(), ..object.clone() };
            let of_all = self.ask(objects.iter().map(all).collect()).await?;
            let (mut granted, rest): (BTreeSet<_>, BTreeSet<_>) =
                objects.into_iter().partition(|object| of_all.get(&all(object)) == Some(&true));
            let named = self.ask(rest.into_iter().take(MAX_NAMED).collect()).await?;
            granted.extend(named.into_iter().filter(|(_, answer)| *answer).map(|(object, _)| object));
            Ok(Granted::only(granted))
        }
        .boxed()
    }
}
