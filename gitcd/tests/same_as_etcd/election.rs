//! Elections.

use gitcd::proto::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};
use tonic::Code;

use crate::support::build::{get, grant, list, revoke};
use crate::support::{Client, eventually, same};

fn campaign(lease: i64, value: &'static str) -> CampaignRequest {
    CampaignRequest { name: "/e".into(), lease, value: value.into() }
}

fn leader() -> LeaderRequest {
    LeaderRequest { name: "/e".into() }
}

async fn candidates(client: &Client, number: i64) {
    let aside = client.aside();
    eventually("the candidates", async || (aside.range(list("/e")).await.ok().count == number).then_some(())).await;
}

#[tokio::test]
async fn the_first_candidate_leads() {
    same(async |client| {
        client.lease_grant(grant(10, 600)).await.ok();
        client.leader(leader()).await.refused(Code::Unknown);
        let key = client.campaign(campaign(10, "one")).await.ok().leader.unwrap();
        assert_eq!((key.key.as_ref(), key.rev, key.lease), (&b"/e/a"[..], 2, 10));
        client.leader(leader()).await.ok();
        client.range(get("/e/a")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_leader_that_campaigns_again_says_its_new_word() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.campaign(campaign(1, "one")).await.ok();
        client.campaign(campaign(1, "one")).await.ok();
        client.campaign(campaign(1, "two")).await.ok();
        client.range(list("/e")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_leader_proclaims_until_it_resigns() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        let key = client.campaign(campaign(1, "one")).await.ok().leader;
        let proclaim = |value: &'static str| ProclaimRequest { leader: key.clone(), value: value.into() };
        client.proclaim(proclaim("two")).await.ok();
        client.leader(leader()).await.ok();
        client.resign(ResignRequest { leader: key.clone() }).await.ok();
        client.proclaim(proclaim("three")).await.refused(Code::Unknown);
        client.resign(ResignRequest { leader: key.clone() }).await.ok();
        client.leader(leader()).await.refused(Code::Unknown);
    })
    .await;
}

#[tokio::test]
async fn requests_without_a_leader_are_refused() {
    same(async |client| {
        client.proclaim(ProclaimRequest { leader: None, value: "x".into() }).await.refused(Code::Unknown);
        client.resign(ResignRequest { leader: None }).await.refused(Code::Unknown);
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_is_not_there_cannot_campaign() {
    same(async |client| {
        client.campaign(campaign(99, "one")).await.refused(Code::Unknown);
        client.range(list("/e")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn somebody_elses_key_cannot_be_proclaimed_for() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        let key = client.campaign(campaign(1, "one")).await.ok().leader.unwrap();
        let stale = LeaderKey { rev: key.rev - 1, ..key };
        client
            .proclaim(ProclaimRequest { leader: Some(stale.clone()), value: "x".into() })
            .await
            .refused(Code::Unknown);
        client.resign(ResignRequest { leader: Some(stale) }).await.ok();
        client.leader(leader()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_next_candidate_leads_when_the_leader_resigns() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        let key = client.campaign(campaign(1, "one")).await.ok().leader;
        let aside = client.aside();
        let resign = async {
            candidates(&client, 2).await;
            client.resign(ResignRequest { leader: key }).await.ok();
        };
        let (won, ()) = tokio::join!(aside.campaign(campaign(2, "two")), resign);
        let won = won.ok();
        client.note("won", (won.header.unwrap().revision, won.leader));
        client.leader(leader()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_next_candidate_leads_when_the_leaders_lease_ends() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.campaign(campaign(1, "one")).await.ok();
        let aside = client.aside();
        let revoke = async {
            candidates(&client, 2).await;
            client.lease_revoke(revoke(1)).await.ok();
        };
        let (won, ()) = tokio::join!(aside.campaign(campaign(2, "two")), revoke);
        client.note("won", won.ok().leader);
        client.leader(leader()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_candidate_that_goes_away_is_no_candidate_any_more() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        client.campaign(campaign(1, "one")).await.ok();
        let aside = client.aside();
        tokio::select! {
            _ = aside.campaign(campaign(2, "two")) => panic!("another candidate leads"),
            () = candidates(&client, 2) => {}
        }
        candidates(&client, 1).await;
        client.leader(leader()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn observers_hear_every_new_leader_and_the_last_word() {
    same(async |client| {
        client.lease_grant(grant(1, 600)).await.ok();
        client.lease_grant(grant(2, 600)).await.ok();
        let first = client.campaign(campaign(1, "one")).await.ok().leader;
        // etcd answers the call only with the first value.
        let mut words = client.observe("/e").await;
        let mut next = async || {
            let word = words.message().await.expect("the stream is open").expect("another message follows");
            word.kv.map(|kv| (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease))
        };
        client.note("first", next().await);
        client.proclaim(ProclaimRequest { leader: first.clone(), value: "uno".into() }).await.ok();
        client.note("proclaimed", next().await);
        client.resign(ResignRequest { leader: first }).await.ok();
        client.campaign(campaign(2, "two")).await.ok();
        client.note("second", next().await);
    })
    .await;
}
