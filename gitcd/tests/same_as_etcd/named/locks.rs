//! Locks with all kinds of names.

use gitcd::proto::v3lockpb::{LockRequest, UnlockRequest};

use crate::support::build::{get, grant, list, put};
use crate::support::same;

#[tokio::test]
async fn locking() {
    same(async |client| {
        for lease in [1, -5, i64::MAX] {
            client.lease_grant(grant(lease, 600)).await.ok();
        }
        client.put(put("held", "by a plain put")).await.ok();
        let table = [
            // First, as it competes with all keys that start with a slash.
            ("no name", "", 1),
            ("a name", "/l", 1),
            ("the same", "/l", 1),
            ("a slash", "/", 1),
            ("a slash at the end", "/l/", 1),
            ("a name below another", "/l/1", 1),
            ("an existing key", "held", 1),
            ("spaces and more", " \t\u{e4}\u{1f512}", 1),
            ("a negative lease", "/m", -5),
            ("the last lease", "/n", i64::MAX),
            ("an unknown lease", "/o", 99),
            ("an unknown negative lease", "/o", -99),
        ];
        for (name, lock, lease) in table {
            client.note("case", name);
            client.lock(LockRequest { name: lock.into(), lease }).await;
        }
        client.range(list("/")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn unlocking() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.put(put("/plain", "1")).await.ok();
        for name in ["/l", "/m", "/n"] {
            client.lock(LockRequest { name: name.into(), lease: 1 }).await.ok();
        }
        let table = [
            ("the key", "/l/1"),
            ("again", "/l/1"),
            ("the name", "/m"),
            ("the prefix", "/m/"),
            ("another lease's key", "/m/2"),
            ("another spelling of it", "/m/01"),
            ("a key that is no lock", "/plain"),
            ("a key that never was", "/never"),
            ("no key", ""),
            ("a slash", "/"),
            ("the last one", "/n/1"),
        ];
        for (name, key) in table {
            client.note("case", name);
            client.unlock(UnlockRequest { key: key.into() }).await;
            client.range(get("/m/1")).await.ok();
        }
        client.range(list("/")).await.ok();
    })
    .await;
}
