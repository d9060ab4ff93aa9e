//! A heaven on a full disk.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use trishanku_e2e::wait::until_within;

use super::Deadline;
use crate::world::Heaven;

/// A label of all objects created here.
const LABEL: &str = "chaos";
/// Nearly the size limit of a `ConfigMap`.
const BYTES: usize = 900 << 10;
/// Objects per kubectl call: starting kubectl takes longer than creating an object.
const TOGETHER: usize = 8;
/// The maximum number of calls: together over 80 MiB, more than the 32 MiB that a journal preallocates.
const TIMES: usize = 12;
/// etcd's error when the disk is full.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";

/// Writes until the disk is full: a write must be refused with this reason, and `known` must be readable.
pub(super) fn refuses(heaven: &Heaven<'_>, known: &str) -> anyhow::Result<()> {
    let refusal = (0..TIMES).find_map(|time| create(heaven, &format!("large-{time:02}"), TOGETHER).err());
    let taken = TIMES * TOGETHER;
    let refusal =
        refusal.with_context(|| format!("{} takes {taken} times {BYTES} bytes on a full disk", heaven.name()))?;
    let refusal = format!("{refusal:#}");
    ensure!(refusal.contains(NO_SPACE), "{} refused a write, but not with {NO_SPACE:?}: {refusal}", heaven.name());
    reads(heaven, known)
}

/// Asserts that an existing object can be read.
pub(super) fn reads(heaven: &Heaven<'_>, known: &str) -> anyhow::Result<()> {
    let read = heaven.object(&format!("configmap {known} --request-timeout=10s"))?;
    ensure!(read["metadata"]["name"] == known, "{} reads {read}", heaven.name());
    Ok(())
}

/// With free space, a write like the refused ones succeeds. Then all of them are deleted, as they would slow down later lists.
pub(super) fn recovers(heaven: &Heaven<'_>, deadline: Deadline) -> anyhow::Result<()> {
    let mut tries = 0;
    until_within(&format!("{} to accept a write again", heaven.name()), deadline.left(), || {
        tries += 1;
        // A refused object may exist anyway.
        create(heaven, &format!("large-again-{tries}"), 1).map(Some)
    })?;
    until_within("the large objects to be deleted", deadline.left(), || {
        let words = format!("delete configmaps --selector={LABEL}=large --wait=false --request-timeout=30s");
        heaven.kubectl(&words).map(Some)
    })
    .map(drop)
}

/// Creates large objects; fails if any is refused.
fn create(heaven: &Heaven<'_>, name: &str, how_many: usize) -> anyhow::Result<()> {
    let items: Vec<Value> = (0..how_many)
        .map(|number| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("{name}-{number}"), "namespace": "default", "labels": {LABEL: "large"}},
                // Hardly anything in a Git pack.
                "data": {"large": "x".repeat(BYTES)},
            })
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    heaven.kubectl_with("create --request-timeout=30s --filename=-", &list.to_string()).map(drop)
}
