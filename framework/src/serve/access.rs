//! Authentication and authorization of clients that read secured metrics.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::chain;

/// How long an answer is kept, as in controller-runtime.
const ALLOWED: Duration = Duration::from_mins(1);
const DENIED: Duration = Duration::from_secs(10);
/// Limits the memory that clients with random tokens can use.
const MOST_ANSWERS: usize = 1_000;

/// The digest of a token: tokens themselves are not kept.
type Fingerprint = [u8; 32];

/// Checks which tokens may `get` the path `/metrics`.
pub(super) struct Access {
    client: Client,
    answers: Mutex<Answers>,
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

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self { client, answers: Mutex::default() }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn of(&self, token: &str) -> kube::Result<StatusCode> {
        let fingerprint = Sha256::digest(token).into();
        if let Some(code) = self.answers().get(&fingerprint, Instant::now()) {
            return Ok(code);
        }
        let code = self.ask(token).await?;
        self.answers().keep(fingerprint, code, Instant::now());
        Ok(code)
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

/// Passes a request on if its token may read metrics.
pub(super) async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let token =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else {
        let how = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, how, "a service account token is required\n").into_response();
    };
    match access.of(token).await {
        Ok(StatusCode::OK) => next.run(request).await,
        Ok(StatusCode::FORBIDDEN) => (StatusCode::FORBIDDEN, "forbidden: requires `get` on /metrics\n").into_response(),
        Ok(code) => (code, "the token is not valid\n").into_response(),
        Err(error) => {
            tracing::warn!(error = chain(&error), "cannot authenticate a request for metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> Fingerprint {
        Sha256::digest(number.to_string()).into()
    }

    #[test]
    fn answers_are_forgotten_in_time_and_refusals_sooner() {
        let (mut answers, then) = (Answers::default(), Instant::now());
        answers.keep(token(1), StatusCode::OK, then);
        answers.keep(token(2), StatusCode::FORBIDDEN, then);
        let at = |seconds| then + Duration::from_secs(seconds);
        assert_eq!(answers.get(&token(2), at(9)), Some(StatusCode::FORBIDDEN));
        assert_eq!(answers.get(&token(2), at(10)), None);
        assert_eq!(answers.get(&token(1), at(59)), Some(StatusCode::OK));
        assert_eq!(answers.get(&token(1), at(60)), None);
        answers.keep(token(3), StatusCode::OK, at(60));
        assert_eq!(answers.0.len(), 1);
    }

    #[test]
    fn random_tokens_need_bounded_memory_and_displace_no_valid_one() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.keep(token(0), StatusCode::OK, now);
        for number in 1..=3 * MOST_ANSWERS {
            answers.keep(token(number), StatusCode::UNAUTHORIZED, now);
            assert!(answers.0.len() <= MOST_ANSWERS);
        }
        assert_eq!(answers.get(&token(0), now), Some(StatusCode::OK));
    }
}
