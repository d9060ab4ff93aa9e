//! Common part of the client's layers.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Request;
use tower::{BoxError, Service};

/// What a layer does before a request is sent, while it is in flight, or when it is answered.
pub trait Around<S: Service<Request<B>>, B> {
    /// Sends `request` through `inner`, which is ready.
    fn around(&self, inner: &mut S, request: Request<B>) -> BoxFuture<'static, Result<S::Response, BoxError>>;
}

/// A service that passes each request through an [`Around`].
#[derive(Clone, Debug)]
pub struct Surrounded<S, A> {
    inner: S,
    around: A,
}

impl<S, A: Clone> Surrounded<S, A> {
    pub(crate) fn new(inner: S, around: &A) -> Self {
        Self { inner, around: around.clone() }
    }
}

impl<S, A, B> Service<Request<B>> for Surrounded<S, A>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
    A: Around<S, B>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.around.around(&mut self.inner, request)
    }
}
