//! Authentication and authorization of clients that read secured metrics.
//!
//! As in Kubernetes' own servers (`authentication/token/cache` and `request/bearertoken` of k8s.io/apiserver), answers are kept for a
//! short time, requests with one token share a review, and the scheme is compared without regard to case. Beyond that, the number of
//! reviews at a time is limited: every pod can connect, and each unknown token would cost the apiserver a review.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::chain;

/// How long an answer is kept. controller-runtime keeps all reviews of tokens for a minute; here a refusal is kept for a shorter time,
/// so that a new permission counts soon.
const ALLOWED: Duration = Duration::from_mins(1);
const DENIED: Duration = Duration::from_secs(10);
/// Limits the memory that clients with random tokens can use.
const MOST_ANSWERS: usize = 1_000;
/// Reviews at a time. Scrapers are few, and their tokens are known for a minute.
const AT_ONCE: usize = 4;
/// How long a token may wait for its review to start, and the review for its answer, as in controller-runtime.
const WAIT: Duration = Duration::from_secs(10);

/// Why a token cannot be reviewed.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the apiserver did not answer within {} seconds", WAIT.as_secs())]
    Silent,
    #[error("too many other tokens wait for a review")]
    Busy,
}

/// A review that several requests wait for.
type PendingReview = BoxFuture<'static, Result<StatusCode, Arc<ReviewError>>>;

/// The digest of a token: tokens themselves are not kept.
type Fingerprint = [u8; 32];

/// Checks which tokens may `get` the path `/metrics`.
pub(super) struct TokenReviewer {
    client: Client,
    answers: Mutex<Answers>,
    /// Reviews that are under way. One of which no request waits any more is dropped, and its entry with the next review.
    reviews: Mutex<HashMap<Fingerprint, WeakShared<PendingReview>>>,
    free: Semaphore,
}

/// The latest answers of the apiserver: 200, 401 or 403.
#[derive(Default)]
struct Answers(HashMap<Fingerprint, (Instant, StatusCode)>);

impl Answers {
    fn get(&self, token: &Fingerprint, now: Instant) -> Option<StatusCode> {
        let (at, code) = self.0.get(token)?;
        counts(*at, *code, now).then_some(*code)
    }

    fn keep(&mut self, token: Fingerprint, code: StatusCode, now: Instant) {
        self.0.retain(|_, (at, code)| counts(*at, *code, now));
        if self.0.len() >= MOST_ANSWERS {
            // Random tokens must not displace valid ones.
            self.0.retain(|_, (_, code)| *code == StatusCode::OK);
        }
        if self.0.len() < MOST_ANSWERS {
            self.0.insert(token, (now, code));
        }
    }
}

/// Returns whether an answer from the time `at` is still valid.
fn counts(at: Instant, code: StatusCode, now: Instant) -> bool {
    now.duration_since(at) < if code == StatusCode::OK { ALLOWED } else { DENIED }
}

impl TokenReviewer {
    pub(super) fn new(client: Client) -> Self {
        Self { client, answers: Mutex::default(), reviews: Mutex::default(), free: Semaphore::new(AT_ONCE) }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns 200, 401 or 403 for a token.
    async fn of(self: &Arc<Self>, token: &str) -> Result<StatusCode, Arc<ReviewError>> {
        let fingerprint = Sha256::digest(token).into();
        if let Some(code) = self.answers().get(&fingerprint, Instant::now()) {
            return Ok(code);
        }
        self.review(fingerprint, token).await
    }

    /// Joins the review of a token that is under way, or starts one. Failures are shared, and not kept.
    fn review(self: &Arc<Self>, fingerprint: Fingerprint, token: &str) -> Shared<PendingReview> {
        let mut reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(review) = reviews.get(&fingerprint).and_then(WeakShared::upgrade) {
            return review;
        }
        reviews.retain(|_, review| review.upgrade().is_some());
        let (reviewer, token) = (self.clone(), token.to_owned());
        let review: PendingReview = Box::pin(async move {
            // Another review may have ended since this token was looked up.
            if let Some(code) = reviewer.answers().get(&fingerprint, Instant::now()) {
                return Ok(code);
            }
            let code = reviewer.ask_in_turn(&token).await.map_err(Arc::new)?;
            reviewer.answers().keep(fingerprint, code, Instant::now());
            Ok(code)
        });
        let review = review.shared();
        // It was not polled yet, so it can be downgraded.
        reviews.extend(review.downgrade().map(|weak| (fingerprint, weak)));
        review
    }

    async fn ask_in_turn(&self, token: &str) -> Result<StatusCode, ReviewError> {
        let Ok(Ok(_turn)) = timeout(WAIT, self.free.acquire()).await else { return Err(ReviewError::Busy) };
        timeout(WAIT, self.ask(token)).await.map_err(|_| ReviewError::Silent)?.map_err(ReviewError::Request)
    }

    async fn ask(&self, token: &str) -> kube::Result<StatusCode> {
        let parameters = PostParams::default();
        // The type of the field differs between versions of Kubernetes.
        let review = serde_json::from_value(json!({"metadata": {}, "spec": {"token": token}}));
        let review: TokenReview = review.map_err(kube::Error::SerdeError)?;
        let reviewed = Api::<TokenReview>::all(self.client.clone()).create(&parameters, &review).await?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(StatusCode::UNAUTHORIZED);
        };
        let path = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(path),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::<SubjectAccessReview>::all(self.client.clone()).create(&parameters, &review).await?;
        let is_allowed = reviewed.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }
}

/// Returns the token of a request, in any spelling of its scheme.
fn token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty())
}

/// Passes a request on if its token may read metrics.
pub(super) async fn check(State(reviewer): State<Arc<TokenReviewer>>, request: Request, next: Next) -> Response {
    let Some(token) = token(request.headers()) else {
        return unauthorized("Bearer", "a service account token is required\n");
    };
    match reviewer.of(token).await {
        Ok(StatusCode::OK) => next.run(request).await,
        Ok(StatusCode::FORBIDDEN) => (StatusCode::FORBIDDEN, "forbidden: requires `get` on /metrics\n").into_response(),
        Ok(_) => unauthorized("Bearer error=\"invalid_token\"", "the token is not valid\n"),
        Err(error) if matches!(*error, ReviewError::Busy) => {
            let again = [(header::RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, again, "too many tokens wait for a review: try again\n").into_response()
        }
        Err(error) => {
            tracing::warn!(error = chain(&*error), "cannot authenticate a request for metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The challenge is required by RFC 9110, its parameter by RFC 6750.
fn unauthorized(challenge: &'static str, message: &'static str) -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)], message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: usize) -> Fingerprint {
        Sha256::digest(number.to_string()).into()
    }

    #[test]
    fn answers_are_forgotten_in_time_and_refusals_sooner() {
        let (mut answers, then) = (Answers::default(), Instant::now());
        answers.keep(fingerprint(1), StatusCode::OK, then);
        answers.keep(fingerprint(2), StatusCode::FORBIDDEN, then);
        let at = |seconds| then + Duration::from_secs(seconds);
        assert_eq!(answers.get(&fingerprint(2), at(9)), Some(StatusCode::FORBIDDEN));
        assert_eq!(answers.get(&fingerprint(2), at(10)), None);
        assert_eq!(answers.get(&fingerprint(1), at(59)), Some(StatusCode::OK));
        assert_eq!(answers.get(&fingerprint(1), at(60)), None);
        answers.keep(fingerprint(3), StatusCode::OK, at(60));
        assert_eq!(answers.0.len(), 1);
    }

    #[test]
    fn random_tokens_need_bounded_memory_and_displace_no_valid_one() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.keep(fingerprint(0), StatusCode::OK, now);
        for number in 1..=3 * MOST_ANSWERS {
            answers.keep(fingerprint(number), StatusCode::UNAUTHORIZED, now);
            assert!(answers.0.len() <= MOST_ANSWERS);
        }
        assert_eq!(answers.get(&fingerprint(0), now), Some(StatusCode::OK));
    }

    #[test]
    fn a_token_is_found_whatever_the_case_of_its_scheme() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            super::token(&headers).map(ToOwned::to_owned)
        };
        for value in ["Bearer a.b", "bearer a.b", "BEARER  a.b", " bEaReR a.b "] {
            assert_eq!(of(value).as_deref(), Some("a.b"), "{value}");
        }
        for value in ["Bearer", "Bearer ", "Basic a.b", "Bearera.b", "a.b", ""] {
            assert_eq!(of(value), None, "{value}");
        }
        assert_eq!(super::token(&HeaderMap::new()), None);
    }
}
