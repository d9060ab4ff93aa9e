//! `/debug/vars`: Go's published variables (`expvar`), without the memory statistics of Go's runtime.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::member::RAFT_TERM;
use crate::metrics::{Source, file_descriptor_limit};

pub(super) async fn vars(State(source): State<Arc<Source>>) -> impl IntoResponse {
    let arguments: Vec<_> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let member = format!("{:x}", source.member.member_id);
    let revision = source.store.revision().get();
    // A write is proposed, committed and applied in one step, so the revision is also the Raft index.
    let raft = json!({
        "id": member,
        "term": RAFT_TERM,
        "vote": member,
        "commit": revision,
        "lead": member,
        "raftState": "StateLeader",
        "applied": revision,
        "progress": { member.clone(): { "match": revision, "next": revision + 1, "state": "StateReplicate" } },
        "leadtransferee": "0",
    });
    let variables = [
        ("cmdline", json!(arguments)),
        ("file_descriptor_limit", file_descriptor_limit().map_or(Value::Null, |limit| json!(limit))),
        ("raft.status", raft),
    ];
    let lines: Vec<_> = variables.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], format!("{{\n{}\n}}\n", lines.join(",\n")))
}
