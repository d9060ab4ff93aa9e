//! Maintenance.

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::downgrade_request::DowngradeAction;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentRequest, DowngradeRequest, HashKvRequest, HashRequest, MoveLeaderRequest,
    StatusRequest,
};
use tonic::Code;

use super::states::in_every_state;
use crate::support::build::{compact, delete, put};
use crate::support::same;

#[tokio::test]
async fn the_status_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            let mut status = client.aside().status(StatusRequest {}).await.ok();
            // In random order in etcd.
            status.errors.sort();
            let header = status.header.unwrap();
            let leads = status.leader == header.member_id;
            // In random order in etcd.
            let mut errors = status.errors.clone();
            errors.sort();
            client.note("status", (header.revision, leads, status.is_learner, errors, status.downgrade_info.clone()));
            client.note("quota", status.db_size_quota);
            // An empty etcd has a database file, too.
            assert!(header.revision == 1 || status.db_size > 0 && status.db_size_in_use > 0, "{status:?}");
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn defragmentation_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| drop(client.defragment(DefragmentRequest {}).await)).await;
    })
    .await;
}

#[tokio::test]
async fn the_hash_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| _ = client.hash(HashRequest {}).await.ok()).await;
    })
    .await;
}

#[tokio::test]
async fn the_hash_of_keys_at_all_kinds_of_revisions() {
    same(async |client| {
        for value in ["1", "2", "3", "4"] {
            client.put(put("/registry/a", value)).await.ok();
        }
        client.delete_range(delete("/registry/a")).await.ok();
        let table = [
            ("the newest", 0),
            ("a negative one", -1),
            ("the most negative one", i64::MIN),
            ("before the first write", 1),
            ("the first write", 2),
            ("a later one", 4),
            ("the last one", 6),
            ("the next one", 7),
            ("a far one", 1000),
            ("the last possible one", i64::MAX),
        ];
        for (name, revision) in table {
            client.note("case", name);
            client.hash_kv(HashKvRequest { revision }).await;
        }
        client.compact(compact(4)).await.ok();
        for (name, revision) in [("below the compaction", 3), ("far below it", 1), ("above it", 5), ("the newest", 0)] {
            client.note("case", name);
            client.hash_kv(HashKvRequest { revision }).await;
        }
    })
    .await;
}

#[tokio::test]
async fn alarms_by_every_action_and_kind() {
    same(async |client| {
        use AlarmAction::{Activate, Deactivate, Get};
        use AlarmType::{Corrupt, None, Nospace};
        let table = [
            ("none yet", Get, None, 0),
            ("none of a kind", Get, Nospace, 7),
            ("clearing what is not raised", Deactivate, Nospace, 7),
            ("raising", Activate, Nospace, 7),
            ("raising again", Activate, Nospace, 7),
            ("raising for another member", Activate, Nospace, 8),
            ("raising another kind", Activate, Corrupt, 7),
            ("all", Get, None, 0),
            ("all, of a member", Get, None, 7),
            ("a kind", Get, Nospace, 0),
            ("another kind", Get, Corrupt, 8),
            ("clearing for a member without it", Deactivate, Corrupt, 8),
            ("clearing", Deactivate, Corrupt, 7),
            ("clearing again", Deactivate, Corrupt, 7),
            ("clearing the last ones", Deactivate, Nospace, 7),
            ("of two members", Deactivate, Nospace, 8),
            ("none any more", Get, None, 0),
        ];
        for (name, action, alarm, member_id) in table {
            client.note("case", name);
            client.alarm(AlarmRequest { action: action.into(), alarm: alarm.into(), member_id }).await;
        }
    })
    .await;
}

#[tokio::test]
async fn leadership_moves_only_to_the_leader() {
    same(async |client| {
        let own = client.aside().status(StatusRequest {}).await.ok().header.unwrap().member_id;
        let aside = client.aside();
        client.note("to itself", aside.move_leader(MoveLeaderRequest { target_id: own }).await.ok());
        for (name, target_id) in [("to no member", 0), ("to an unknown member", 1), ("to the last ID", u64::MAX)] {
            client.note("case", name);
            client.move_leader(MoveLeaderRequest { target_id }).await.refused(Code::FailedPrecondition);
        }
    })
    .await;
}

#[tokio::test]
async fn downgrades_are_checked_and_called_off() {
    same(async |client| {
        let versions = [
            "3.5.0",
            "3.5",
            "3.5.21",
            "3.5.0-rc.0",
            "3.4.0",
            "3.6.0",
            "3.7.0",
            "4.5.0",
            "",
            "x",
            "3",
            "3.5.",
            "v3.5.0",
        ];
        for version in versions {
            let action = DowngradeAction::Validate.into();
            client.downgrade(DowngradeRequest { action, version: version.into() }).await;
        }
        // gitcd refuses valid downgrades, so they are not compared.
        for version in ["3.4.0", "3.6.0", "", "x"] {
            let action = DowngradeAction::Enable.into();
            client.downgrade(DowngradeRequest { action, version: version.into() }).await;
        }
        client
            .downgrade(DowngradeRequest { action: DowngradeAction::Cancel.into(), version: String::new() })
            .await
            .ok();
        client.downgrade(DowngradeRequest { action: 9, version: String::new() }).await;
    })
    .await;
}
