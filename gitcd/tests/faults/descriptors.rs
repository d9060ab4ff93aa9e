//! More connections than the process may open files.

use tokio::net::TcpStream;

use super::support::build::put;
use super::support::{Kind, Launch, eventually};

#[tokio::test]
async fn a_server_without_free_descriptors_takes_connections_again_when_there_are_some() {
    let server = Launch::new(Kind::Gitcd).wrapper(&["prlimit", "--nofile=64"]).start().await;
    let client = server.client().await;
    let mut crowd = Vec::new();
    eventually("the server to run out of descriptors", async || {
        // The kernel accepts connections for which the server has no descriptor.
        crowd.push(TcpStream::connect(server.address()).await.ok()?);
        server.output().contains("cannot accept connections").then_some(())
    })
    .await;
    client.put(put("/registry/tests/default/a", "1")).await.ok();
    drop(crowd);
    let client = server.client().await;
    client.put(put("/registry/tests/default/a", "2")).await.ok();
    assert_eq!(server.output().matches("cannot accept connections").count(), 1, "{}", server.output());
}
