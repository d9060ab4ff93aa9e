//! Ten states of a server, each derived from the previous one.

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::{AlarmRequest, AlarmType, PutRequest};

use tonic::Code;

use crate::support::Client;
use crate::support::build::{all, compact, delete, grant, put, revoke};

const NAMES: [&str; 10] = [
    "fresh",
    "after a put",
    "after a deletion",
    "after a transaction",
    "with a lease",
    "after its revocation",
    "after a refused put",
    "after a compaction",
    "without space",
    "with corrupt data",
];

fn alarm(action: AlarmAction, alarm: AlarmType) -> AlarmRequest {
    AlarmRequest { action: action.into(), alarm: alarm.into(), member_id: 7 }
}

/// Brings the server into each state and runs `attempt` in it.
pub(super) async fn in_every_state(client: &Client, attempt: impl AsyncFn(&Client)) {
    for (number, name) in NAMES.into_iter().enumerate() {
        client.note("state", name);
        match number {
            0 => {}
            1 => drop(client.put(put("/registry/a", "1")).await.ok()),
            2 => drop(client.delete_range(delete("/registry/a")).await.ok()),
            3 => drop(client.txn(all([put("/registry/a", "2"), put("/registry/b", "2")])).await.ok()),
            4 => {
                client.lease_grant(grant(7, 600)).await.ok();
                client.put(PutRequest { lease: 7, ..put("/registry/c", "1") }).await.ok();
            }
            5 => drop(client.lease_revoke(revoke(7)).await.ok()),
            6 => drop(client.put(PutRequest { lease: 99, ..put("/registry/a", "3") }).await.refused(Code::NotFound)),
            7 => drop(client.compact(compact(4)).await.ok()),
            8 => drop(client.alarm(alarm(AlarmAction::Activate, AlarmType::Nospace)).await.ok()),
            _ => drop(client.alarm(alarm(AlarmAction::Activate, AlarmType::Corrupt)).await.ok()),
        }
        attempt(client).await;
    }
}
