//! Commits name the client that made the change.

use gitcd::proto::etcdserverpb::PutRequest;
use gitcd::proto::v3lockpb::{LockRequest, UnlockRequest};

use super::support::build::{grant, put, revoke};
use super::support::{DATA, Kind, METADATA, Server, eventually};

#[tokio::test]
async fn who_revokes_a_lease_locks_or_unlocks_is_named_and_only_expiry_is_called_so() {
    let server = Server::start(Kind::Gitcd).await;
    let (client, repository) = (server.client().await, server.repository());
    let commits = async |revision: i64| {
        eventually("the commit", async || (repository.committed_revision() >= revision).then_some(())).await;
        let all = [DATA, METADATA].map(|reference| repository.git(&["log", "--format=%B", reference]));
        all.concat()
    };
    client.lease_grant(grant(1, 600)).await.ok();
    client.put(PutRequest { lease: 1, ..put("/registry/a", "1") }).await.ok();
    let revoked = client.lease_revoke(revoke(1)).await.ok().header.unwrap().revision;
    client.lease_grant(grant(2, 600)).await.ok();
    let key = client.lock(LockRequest { name: "/registry/l".into(), lease: 2 }).await.ok().key;
    let unlocked = client.unlock(UnlockRequest { key }).await.ok().header.unwrap().revision;
    assert_eq!((revoked, unlocked), (3, 5));
    let text = commits(unlocked).await;
    let clients: Vec<_> = text.lines().filter(|line| line.starts_with("Client: ")).collect();
    assert!(!clients.is_empty() && clients.iter().all(|line| line.contains("tonic/")), "{text}");
    assert!(!text.contains("lease expiry"), "{text}");

    client.lease_grant(grant(3, 1)).await.ok();
    client.put(PutRequest { lease: 3, ..put("/registry/a", "1") }).await.ok();
    assert!(commits(unlocked + 2).await.contains("Client: lease expiry"));
}
