//! The gRPC health service.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::same;

#[tokio::test]
async fn only_the_whole_server_is_a_known_service() {
    same(async |client| {
        let mut health = HealthClient::new(client.channel());
        for service in ["", "etcdserverpb.KV", "grpc.health.v1.Health", "liveness"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = health.check(request.clone()).await;
            assert_eq!(answer.is_ok(), service.is_empty(), "{service:?}: {answer:?}");
            let answer = answer.map(|answer| answer.into_inner().status);
            client.note(service, answer.map_err(|status| (status.code(), status.message().to_owned())));
            let mut watching = health.watch(request).await.expect("the health can be watched").into_inner();
            let first = watching.message().await.expect("the stream is open").expect("the first answer is immediate");
            client.note(service, first.status);
        }
    })
    .await;
}
