//! The gRPC health service. As in etcd, it knows one service, the empty name, which stands for the whole server.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, stream};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Backend;

/// Poll interval for watchers of the health.
const LOOK: Duration = Duration::from_millis(500);
/// The name of the only service.
const WHOLE_SERVER: &str = "";

impl Backend {
    fn health(&self, service: &str) -> HealthCheckResponse {
        let status = match self.store.unavailable() {
            _ if service != WHOLE_SERVER => ServingStatus::ServiceUnknown,
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        HealthCheckResponse { status: status as i32 }
    }
}

#[tonic::async_trait]
impl Health for Backend {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if service != WHOLE_SERVER {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(self.health(&service)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// As the protocol requires, an unknown service is an answer, not an error: a server may learn of it later.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let start = (self.clone(), request.into_inner().service, None);
        let changes = stream::unfold(start, |(backend, service, last)| async move {
            let mut looks = tokio::time::interval(LOOK);
            loop {
                looks.tick().await;
                let health = backend.health(&service);
                if Some(health.status) != last {
                    return Some((Ok(health), (backend, service, Some(health.status))));
                }
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
