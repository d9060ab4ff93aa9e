//! Elections with all kinds of names and keys.

use gitcd::proto::etcdserverpb::PutRequest;
use gitcd::proto::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};

use crate::support::build::{delete, grant, list, put, revoke, time_to_live};
use crate::support::{Client, PATIENCE, same};

async fn elect(client: &Client) -> LeaderKey {
    client.lease_grant(grant(1, 600)).await.ok();
    let request = CampaignRequest { name: "/e".into(), lease: 1, value: "one".into() };
    client.campaign(request).await.ok().leader.expect("a campaign returns the leader")
}

/// The leader's key and variations of it, each with the name of its case.
fn keys(leader: &LeaderKey) -> Vec<(&'static str, Option<LeaderKey>)> {
    let other = |change: fn(&mut LeaderKey)| {
        let mut other = leader.clone();
        change(&mut other);
        Some(other)
    };
    vec![
        ("the leader's", Some(leader.clone())),
        ("none", None),
        ("an empty one", Some(LeaderKey::default())),
        ("of another revision", other(|key| key.rev += 1)),
        ("of an older revision", other(|key| key.rev = 1)),
        ("of another lease", other(|key| key.lease = 2)),
        ("of another name", other(|key| key.name = "/f".into())),
        ("without a name", other(|key| key.name = "".into())),
        ("another key", other(|key| key.key = "/e/2".into())),
        ("no key", other(|key| key.key = "".into())),
    ]
}

#[tokio::test]
async fn proclaiming() {
    same(async |client| {
        let leader = elect(&client).await;
        for (name, leader) in keys(&leader) {
            client.note("a key", name);
            client.proclaim(ProclaimRequest { leader, value: name.into() }).await;
            client.range(list("/e")).await.ok();
        }
        client.lease_revoke(revoke(1)).await.ok();
        client.proclaim(ProclaimRequest { leader: Some(leader), value: "too late".into() }).await;
    })
    .await;
}

#[tokio::test]
async fn proclaiming_without_a_lease_gets_one_of_a_minute() {
    same(async |client| {
        let leader = LeaderKey { lease: 0, ..elect(&client).await };
        client.proclaim(ProclaimRequest { leader: Some(leader), value: "two".into() }).await.ok();
        let aside = client.aside();
        let pair = aside.range(list("/e")).await.ok().kvs.remove(0);
        let lease = aside.lease_time_to_live(time_to_live(pair.lease)).await.ok();
        client.note("lease", (pair.value, pair.lease > 1, lease.granted_ttl));
    })
    .await;
}

#[tokio::test]
async fn resigning() {
    same(async |client| {
        let leader = elect(&client).await;
        // The leader's own key comes last.
        for (name, leader) in keys(&leader).into_iter().rev() {
            client.note("a key", name);
            client.resign(ResignRequest { leader }).await;
            client.range(list("/e")).await.ok();
        }
        client.resign(ResignRequest { leader: Some(leader) }).await;
    })
    .await;
}

#[tokio::test]
async fn campaigning() {
    same(async |client| {
        for lease in [1, -5, i64::MAX] {
            client.lease_grant(grant(lease, 600)).await.ok();
        }
        let table = [
            // First, as it competes with all keys that start with a slash.
            ("no name", "", 1, "one"),
            ("a name", "/e", 1, "one"),
            ("the same", "/e", 1, "one"),
            ("with another value", "/e", 1, "two"),
            ("without a value", "/e", 1, ""),
            ("a slash", "/", 1, "one"),
            ("a slash at the end", "/e/", 1, "one"),
            ("a name below another", "/e/1", 1, "one"),
            ("a negative lease", "/f", -5, "one"),
            ("the last lease", "/g", i64::MAX, "one"),
            ("an unknown lease", "/h", 99, "one"),
            ("an unknown negative lease", "/h", -99, "one"),
        ];
        for (name, election, lease, value) in table {
            client.note("case", name);
            client.campaign(CampaignRequest { name: election.into(), lease, value: value.into() }).await;
        }
        client.range(list("/")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn asking_who_leads() {
    same(async |client| {
        let leader = elect(&client).await;
        client.put(put("/plain/1", "no candidate")).await.ok();
        client.put(put("/deep/1/2", "no candidate")).await.ok();
        client.put(put("/gone/1", "1")).await.ok();
        client.delete_range(delete("/gone/1")).await.ok();
        let table = [
            ("an election", "/e"),
            ("an election without candidates", "/none"),
            ("no name", ""),
            ("a slash", "/"),
            ("a slash at the end", "/e/"),
            ("a name without its slash", "e"),
            ("the leader's key", "/e/1"),
            ("keys of plain puts", "/plain"),
            ("keys further below", "/deep"),
            ("deleted keys", "/gone"),
        ];
        for (name, election) in table {
            client.note("case", name);
            client.leader(LeaderRequest { name: election.into() }).await;
        }
        client.resign(ResignRequest { leader: Some(leader) }).await.ok();
        client.leader(LeaderRequest { name: "/e".into() }).await;
    })
    .await;
}

#[tokio::test]
async fn observing() {
    same(async |client| {
        let mut leader = elect(&client).await;
        let mut words = client.observe("/e").await;
        let mut next = async || {
            let word = tokio::time::timeout(PATIENCE, words.message()).await.expect("a value arrives in time");
            let word = word.expect("the stream is open").expect("another message follows");
            let revision = word.header.expect("a response has a header").revision;
            (revision, word.kv.map(|kv| (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)))
        };
        client.note("at first", next().await.1);
        for word in ["two", "two", "", "\0", "five"] {
            client.proclaim(ProclaimRequest { leader: Some(leader.clone()), value: word.into() }).await.ok();
            client.note("a value", next().await.1);
        }
        client.lease_grant(grant(2, 600)).await.ok();
        for lease in [2, 1, 2, 1] {
            client.resign(ResignRequest { leader: Some(leader) }).await.ok();
            let request = CampaignRequest { name: "/e".into(), lease, value: "mine".into() };
            leader = client.campaign(request).await.ok().leader.expect("a campaign returns the leader");
            client.note("a new leader", next().await.1);
        }
        // A plain put to the leader's key.
        client.put(PutRequest { lease: 1, ..put("/e/1", "by hand") }).await.ok();
        client.note("a value of a plain put", next().await.1);
        client.lease_revoke(revoke(1)).await.ok();
        let request = CampaignRequest { name: "/e".into(), lease: 2, value: "last".into() };
        client.campaign(request).await.ok();
        client.note("after a lease was revoked", next().await.1);
    })
    .await;
}
