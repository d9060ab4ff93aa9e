//! Locks.

use gitcd::proto::v3lockpb::{LockRequest, UnlockRequest};
use tonic::Code;

use crate::support::build::{delete, get, grant, list, revoke};
use crate::support::{eventually, same};

fn lock(name: &'static str, lease: i64) -> LockRequest {
    LockRequest { name: name.into(), lease }
}

#[tokio::test]
async fn a_lock_is_a_key_with_the_lease_in_its_name() {
    same(async |client| {
        client.lease_grant(grant(0x1234, 600)).await.ok();
        let key = client.lock(lock("/l", 0x1234)).await.ok().key;
        assert_eq!(key, "/l/1234");
        client.range(get("/l/1234")).await.ok();
        client.unlock(UnlockRequest { key }).await.ok();
        client.range(list("/l")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_same_lease_gets_the_same_lock_again() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        client.lock(lock("/l", 7)).await.ok();
        client.lock(lock("/l", 7)).await.ok();
        client.range(list("/l")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_lock_without_a_lease_gets_one_of_a_minute() {
    same(async |client| {
        let aside = client.aside();
        let key = aside.lock(lock("/l", 0)).await.ok().key;
        let pair = aside.range(get(std::str::from_utf8(&key).unwrap())).await.ok().kvs.remove(0);
        assert_eq!(key, format!("/l/{:x}", pair.lease));
        let lease = aside.lease_time_to_live(crate::support::build::time_to_live(pair.lease)).await.ok();
        client.note("lease", (lease.granted_ttl, pair.version));
    })
    .await;
}

#[tokio::test]
async fn a_lock_with_a_lease_that_is_not_there_is_refused() {
    same(async |client| {
        client.lock(lock("/l", 99)).await.refused(Code::Unknown);
        client.range(list("/l")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn unlocking_needs_a_key_and_forgives_one_that_is_gone() {
    same(async |client| {
        client.unlock(UnlockRequest { key: "".into() }).await.refused(Code::Unknown);
        client.unlock(UnlockRequest { key: "/l/1".into() }).await.ok();
    })
    .await;
}

#[tokio::test]
async fn those_who_wait_get_the_lock_in_their_order() {
    same(async |client| {
        for lease in 1..4 {
            client.lease_grant(grant(lease, 600)).await.ok();
        }
        client.lock(lock("/l", 1)).await.ok();
        let (second, third) = (client.aside(), client.aside());
        let waiting = async {
            let second = async {
                let held = second.lock(lock("/l", 2)).await.ok();
                (
                    held.key.clone(),
                    held.header.unwrap().revision,
                    second.unlock(UnlockRequest { key: held.key }).await.ok().header.unwrap().revision,
                )
            };
            let third = async {
                // Queues behind the second client.
                eventually("the second client to queue", async || {
                    (third.range(list("/l")).await.ok().count == 2).then_some(())
                })
                .await;
                let held = third.lock(lock("/l", 3)).await.ok();
                (held.key, held.header.unwrap().revision)
            };
            tokio::join!(second, third)
        };
        let release = async {
            let aside = client.aside();
            eventually("all waiters", async || (aside.range(list("/l")).await.ok().count == 3).then_some(())).await;
            client.unlock(UnlockRequest { key: "/l/1".into() }).await.ok();
        };
        let ((second, third), ()) = tokio::join!(waiting, release);
        client.note("second", second);
        client.note("third", third);
        client.range(list("/l")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_lease_passes_the_lock_on() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.lock(lock("/l", 1)).await.ok();
        let aside = client.aside();
        let release = async {
            let looking = client.aside();
            eventually("two waiters", async || (looking.range(list("/l")).await.ok().count == 2).then_some(())).await;
            client.lease_revoke(revoke(1)).await.ok();
        };
        let (held, ()) = tokio::join!(aside.lock(lock("/l", 2)), release);
        client.note("held", held.ok().key);
    })
    .await;
}

#[tokio::test]
async fn whoever_loses_the_key_while_waiting_does_not_get_the_lock() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.lock(lock("/l", 1)).await.ok();
        let aside = client.aside();
        let release = async {
            let looking = client.aside();
            eventually("two waiters", async || (looking.range(list("/l")).await.ok().count == 2).then_some(())).await;
            client.delete_range(delete("/l/2")).await.ok();
            client.unlock(UnlockRequest { key: "/l/1".into() }).await.ok();
        };
        let (held, ()) = tokio::join!(aside.lock(lock("/l", 2)), release);
        client.note("refused", held.refused(Code::Unknown));
    })
    .await;
}

#[tokio::test]
async fn a_client_that_stops_waiting_leaves_the_line() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.lock(lock("/l", 1)).await.ok();
        let (aside, looking) = (client.aside(), client.aside());
        tokio::select! {
            _ = aside.lock(lock("/l", 2)) => panic!("another client holds the lock"),
            () = eventually("two in line", async || (looking.range(list("/l")).await.ok().count == 2).then_some(())) => {}
        }
        eventually("one waiter", async || (looking.range(list("/l")).await.ok().count == 1).then_some(())).await;
        client.range(list("/l")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn locks_of_other_names_are_independent() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.lock(lock("/l", 1)).await.ok();
        client.lock(lock("/m", 2)).await.ok();
        client.range(list("/")).await.ok();
    })
    .await;
}
