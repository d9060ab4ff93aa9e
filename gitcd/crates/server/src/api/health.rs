//! The gRPC health service, as in etcd: the same answer for every service name.

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

impl Backend {
    fn health(&self) -> HealthCheckResponse {
        let status = match self.store.unavailable() {
            None => ServingStatus::Serving,
            Some(_) => ServingStatus::NotServing,
        };
        HealthCheckResponse { status: status as i32 }
    }
}

#[tonic::async_trait]
impl Health for Backend {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(self.health()))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let changes = stream::unfold((self.clone(), None), |(backend, last)| async move {
            let mut looks = tokio::time::interval(LOOK);
            loop {
                looks.tick().await;
                let health = backend.health();
                if Some(health.status) != last {
                    return Some((Ok(health), (backend, Some(health.status))));
                }
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
