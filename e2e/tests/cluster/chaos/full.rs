//! A heaven on a full disk.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use trishanku_e2e::wait::until_within;

use super::Deadline;
use crate::world::Heaven;

/// By which all that is made here is found again.
const LABEL: &str = "chaos";
/// Nearly as much as a `ConfigMap` takes.
const BYTES: usize = 900 << 10;
/// How many are made by one kubectl: what it costs to begin is more than what one of them takes.
const TOGETHER: usize = 8;
/// So often at most. These are more than 80 MiB; a journal has set 32 MiB aside, and what it took before.
const TIMES: usize = 12;
/// What etcd says when there is no room.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// Writes until there is no room any more: what is too much is refused with the reason, and `known` can be read all the same.
pub(super) fn refuses(heaven: &Heaven<'_>, known: &str) -> anyhow::Result<()> {
    let refusal = (0..TIMES).find_map(|time| create(heaven, &format!("large-{time:02}"), TOGETHER).err());
    let taken = TIMES * TOGETHER;
    let refusal =
        refusal.with_context(|| format!("{} takes {taken} times {BYTES} bytes on a full disk", heaven.name()))?;
    let refusal = format!("{refusal:#}");
    ensure!(refusal.contains(NO_SPACE), "{} refuses for another reason than {NO_SPACE:?}: {refusal}", heaven.name());
    reads(heaven, known)
}

/// What is there can be read.
pub(super) fn reads(heaven: &Heaven<'_>, known: &str) -> anyhow::Result<()> {
    let read = heaven.object(&format!("configmap {known} --request-timeout=10s"))?;
    ensure!(read["metadata"]["name"] == known, "{} reads {read}", heaven.name());
    Ok(())
}

/// With room, it takes as much as it has refused before. Then all of it is taken away: what is left is listed again and again.
pub(super) fn recovers(heaven: &Heaven<'_>, deadline: Deadline) -> anyhow::Result<()> {
    let mut tries = 0;
    until_within(&format!("{} to have room again", heaven.name()), deadline.left(), || {
        tries += 1;
        // One that was refused may be there all the same.
        create(heaven, &format!("large-again-{tries}"), 1).map(Some)
    })?;
    until_within("what is large to be gone", deadline.left(), || {
        let words = format!("delete configmaps --selector={LABEL}=large --wait=false --request-timeout=30s");
        heaven.kubectl(&words).map(Some)
    })
    .map(drop)
}

/// Fails if one of them is refused.
fn create(heaven: &Heaven<'_>, name: &str, how_many: usize) -> anyhow::Result<()> {
    let items: Vec<Value> = (0..how_many)
        .map(|number| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("{name}-{number}"), "namespace": "default", "labels": {LABEL: "large"}},
                // Git makes little of it.
                "data": {"large": "x".repeat(BYTES)},
            })
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    heaven.kubectl_with("create --request-timeout=30s --filename=-", &list.to_string()).map(drop)
}
