//! Locks and elections write like clients: what is refused to clients is refused to them, too.

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::{AlarmRequest, AlarmType, LeaseLeasesRequest};
use gitcd::proto::v3electionpb::{CampaignRequest, LeaderKey, ProclaimRequest, ResignRequest};
use gitcd::proto::v3lockpb::{LockRequest, UnlockRequest};
use tonic::Code;

use crate::support::build::{grant, list};
use crate::support::{Client, Reply, same, same_with};

const KIB: usize = 1 << 10;

fn lock(name: &str, lease: i64) -> LockRequest {
    LockRequest { name: name.to_owned().into(), lease }
}

fn campaign(name: &str, lease: i64, value: &str) -> CampaignRequest {
    CampaignRequest { name: name.to_owned().into(), lease, value: value.to_owned().into() }
}

/// Notes the number of leases: IDs chosen by the server are random.
async fn note_leases(client: &Client) {
    let leases = client.aside().lease_leases(LeaseLeasesRequest {}).await.ok().leases.len();
    client.note("leases", leases);
}

/// Notes only the error: names of locks without a lease are random.
fn refusal<T: std::fmt::Debug>(reply: Reply<T>) -> Option<(Code, String)> {
    reply.result().err().map(|status| (status.code(), status.message().to_owned()))
}

async fn try_all(client: &Client, leader: &LeaderKey) {
    let aside = client.aside();
    for lease in [1, 0] {
        client.note("lock", refusal(aside.lock(lock(&format!("/l{lease}"), lease)).await));
        note_leases(client).await;
    }
    client.lock(lock("/held", 1)).await;
    client.campaign(campaign("/f", 1, "one")).await;
    client.note("campaign without a lease", refusal(aside.campaign(campaign("/g", 0, "one")).await));
    // Already a candidate, now with another value.
    client.campaign(campaign("/e", 1, "another word")).await;
    client.proclaim(ProclaimRequest { leader: Some(leader.clone()), value: "two".into() }).await;
    let unleased = LeaderKey { lease: 0, ..leader.clone() };
    client.proclaim(ProclaimRequest { leader: Some(unleased.clone()), value: "three".into() }).await;
    client.resign(ResignRequest { leader: Some(unleased) }).await;
    note_leases(client).await;
    client.unlock(UnlockRequest { key: "/held/1".into() }).await;
    client.resign(ResignRequest { leader: Some(leader.clone()) }).await;
    let keys = aside.range(list("/")).await.ok().kvs;
    let own = keys.iter().filter(|pair| pair.lease == 1).map(|pair| (&pair.key, &pair.value));
    client.note("keys", (keys.len(), own.collect::<Vec<_>>()));
    note_leases(client).await;
}

#[tokio::test]
async fn alarms_hold_for_locks_and_elections() {
    for kind in [AlarmType::Nospace, AlarmType::Corrupt] {
        same(async |client| {
            client.lease_grant(grant(1, 600)).await.ok();
            client.lock(lock("/held", 1)).await.ok();
            let leader = client.campaign(campaign("/e", 1, "one")).await.ok().leader.unwrap();
            let alarm = AlarmRequest { action: AlarmAction::Activate.into(), alarm: kind.into(), member_id: 7 };
            client.alarm(alarm).await.ok();
            client.aside().lock(lock("/l", 1)).await.refused(Code::Unknown);
            try_all(&client, &leader).await;
            client.alarm(AlarmRequest { action: AlarmAction::Deactivate.into(), ..alarm }).await.ok();
            try_all(&client, &leader).await;
        })
        .await;
    }
}

#[tokio::test]
async fn locks_and_elections_count_for_the_quota() {
    same_with(&["--quota-backend-bytes=1"], async |client| {
        client.lock(lock("/l", 0)).await.refused(Code::Unknown);
        note_leases(&client).await;
        client.campaign(campaign("/e", 1, "one")).await.refused(Code::Unknown);
        let alarms = client.aside().alarm(AlarmRequest::default()).await.ok().alarms;
        client.note("alarms", alarms.iter().map(|alarm| alarm.alarm).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn locks_and_elections_are_bounded_as_requests_are() {
    same_with(&["--max-request-bytes=4096"], async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        let leader = client.campaign(campaign("/e", 1, "one")).await.ok().leader.unwrap();
        let long = "x".repeat(5 * KIB);
        client.lock(lock(&long, 1)).await.refused(Code::Unknown);
        client.unlock(UnlockRequest { key: long.clone().into() }).await.refused(Code::Unknown);
        client.campaign(campaign("/f", 1, &long)).await.refused(Code::Unknown);
        client.campaign(campaign("/e", 1, &long)).await.refused(Code::Unknown);
        let again = ProclaimRequest { leader: Some(leader.clone()), value: long.clone().into() };
        client.proclaim(again).await.refused(Code::Unknown);
        let other = LeaderKey { key: long.into(), ..leader };
        client.resign(ResignRequest { leader: Some(other) }).await.refused(Code::Unknown);
        client.range(list("/")).await.ok();
    })
    .await;
}
