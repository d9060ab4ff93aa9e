//! Alarms, and the requests refused while one is raised.

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::compare::{CompareResult, TargetUnion};
use gitcd::proto::etcdserverpb::{AlarmRequest, AlarmType, LeaseLeasesRequest, StatusRequest, TxnRequest};
use tonic::Code;

use crate::support::build::{all, compact, compare, delete, get, grant, list, ops, put, revoke, watch_prefix};
use crate::support::{Client, same};

fn alarm(action: AlarmAction, alarm: AlarmType, member_id: u64) -> AlarmRequest {
    AlarmRequest { action: action.into(), alarm: alarm.into(), member_id }
}

#[tokio::test]
async fn there_are_no_alarms() {
    same(async |client| {
        client.alarm(AlarmRequest::default()).await.ok();
    })
    .await;
}

#[tokio::test]
async fn alarms_are_raised_listed_and_cleared_by_member_and_kind() {
    same(async |client| {
        for (kind, member) in [(AlarmType::Nospace, 7), (AlarmType::Nospace, 8), (AlarmType::Corrupt, 7)] {
            client.alarm(alarm(AlarmAction::Activate, kind, member)).await.ok();
        }
        client.alarm(alarm(AlarmAction::Activate, AlarmType::Nospace, 7)).await.ok();
        client.alarm(alarm(AlarmAction::Get, AlarmType::None, 0)).await.ok();
        client.alarm(alarm(AlarmAction::Get, AlarmType::Nospace, 0)).await.ok();
        client.alarm(alarm(AlarmAction::Get, AlarmType::Corrupt, 0)).await.ok();
        client.alarm(alarm(AlarmAction::Deactivate, AlarmType::Nospace, 9)).await.ok();
        client.alarm(alarm(AlarmAction::Deactivate, AlarmType::Nospace, 7)).await.ok();
        client.alarm(alarm(AlarmAction::Deactivate, AlarmType::None, 7)).await.ok();
        client.alarm(alarm(AlarmAction::Get, AlarmType::None, 0)).await.ok();
    })
    .await;
}

#[tokio::test]
async fn the_status_names_raised_alarms() {
    same(async |client| {
        client.alarm(alarm(AlarmAction::Activate, AlarmType::Nospace, 7)).await.ok();
        let errors = client.aside().status(StatusRequest {}).await.ok().errors;
        client.note("errors", errors);
    })
    .await;
}

/// Sends every kind of request that changes something, and some that do not.
async fn try_all(client: &Client) {
    client.put(put("/registry/a", "2")).await;
    client.range(get("/registry/a")).await;
    client.range(list("/registry/")).await;
    client.txn(all([get("/registry/a")])).await;
    client.txn(all([put("/registry/a", "3")])).await;
    client.txn(all([delete("/registry/a")])).await;
    client
        .txn(TxnRequest {
            compare: vec![compare("/registry/a", CompareResult::Equal, TargetUnion::Version(77))],
            success: ops([put("/registry/b", "1")]),
            failure: ops([get("/registry/b")]),
        })
        .await;
    client.delete_range(delete("/registry/b")).await;
    client.lease_grant(grant(8, 600)).await;
    client.lease_revoke(revoke(7)).await;
    client.lease_leases(LeaseLeasesRequest {}).await;
    client.compact(compact(3)).await;
}

#[tokio::test]
async fn without_space_only_what_makes_room_is_taken() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        for key in ["/registry/a", "/registry/b", "/registry/c"] {
            client.put(put(key, "1")).await.ok();
        }
        client.alarm(alarm(AlarmAction::Activate, AlarmType::Nospace, 7)).await.ok();
        client.aside().put(put("/registry/a", "2")).await.refused(Code::ResourceExhausted);
        try_all(&client).await;
        client.alarm(alarm(AlarmAction::Deactivate, AlarmType::Nospace, 7)).await.ok();
        client.put(put("/registry/a", "4")).await.ok();
    })
    .await;
}

#[tokio::test]
async fn corrupt_data_is_not_changed() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        for key in ["/registry/a", "/registry/b", "/registry/c"] {
            client.put(put(key, "1")).await.ok();
        }
        client.alarm(alarm(AlarmAction::Activate, AlarmType::Corrupt, 7)).await.ok();
        try_all(&client).await;
        client.alarm(alarm(AlarmAction::Deactivate, AlarmType::Corrupt, 7)).await.ok();
        try_all(&client).await;
    })
    .await;
}

#[tokio::test]
async fn watches_go_on_while_an_alarm_is_raised() {
    same(async |client| {
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        client.put(put("/registry/a", "1")).await.ok();
        client.alarm(alarm(AlarmAction::Activate, AlarmType::Nospace, 7)).await.ok();
        client.put(put("/registry/a", "2")).await.refused(Code::ResourceExhausted);
        client.delete_range(delete("/registry/a")).await.ok();
        watching.events(2).await;
    })
    .await;
}
