//! Metrics of etcd, compared with a real etcd after the same requests; `docs/etcd.md` lists those that gitcd omits.

use std::collections::{BTreeMap, BTreeSet};

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentRequest, HashKvRequest, HashRequest, SnapshotRequest, TxnRequest,
};
use tonic::Code;

use crate::support::build::{compact, delete, get, grant, put, revoke, watch_prefix};
use crate::support::{Kind, Server, eventually};

/// Names and types of the metric families.
fn families(page: &str) -> BTreeMap<String, String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Returns the samples of a family, by their labels.
fn samples(page: &str, name: &str) -> BTreeMap<BTreeSet<String>, f64> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let samples = lines.filter_map(|line| {
        let (labels, value) = match line.strip_prefix('{') {
            Some(line) => line.split_once("} ")?,
            None => ("", line.strip_prefix(' ')?),
        };
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(ToOwned::to_owned).collect();
        Some((labels, value.parse().ok()?))
    });
    samples.collect()
}

/// The families that, by the documentation, gitcd omits as meaningless.
fn meaningless() -> Vec<String> {
    let page = include_str!("../../../docs/etcd.md");
    let (_, section) = page.split_once("Families of etcd that are not there").expect("the section exists");
    let (section, _) = section.split_once("What is there").expect("another section follows");
    let names = section.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    let names = names.flat_map(|cell| cell.split(',')).map(|name| name.trim().trim_matches('`').to_owned());
    names.filter(|name| name.contains('_')).collect()
}

async fn load(server: &Server) {
    let client = server.client().await;
    let mut watching = client.watch();
    watching.create(watch_prefix("/registry/")).await;
    client.lease_grant(grant(7, 600)).await.ok();
    client.lease_grant(grant(8, 60)).await.ok();
    client.lease_grant(grant(8, 60)).await.refused(Code::FailedPrecondition);
    client.keep_alive(7).await.ok();
    client.put(put("/registry/a", "1")).await.ok();
    client.put(put("/registry/a", "22")).await.ok();
    client.put(put("/registry/b", "1")).await.ok();
    client.put(put("", "1")).await.refused(Code::InvalidArgument);
    client.delete_range(delete("/registry/b")).await.ok();
    client.txn(TxnRequest::default()).await.ok();
    client.range(get("/registry/a")).await.ok();
    client.lease_revoke(revoke(7)).await.ok();
    watching.events(4).await;
    client.compact(compact(4)).await.ok();
    client.hash(HashRequest {}).await.ok();
    client.hash_kv(HashKvRequest::default()).await.ok();
    client.defragment(DefragmentRequest {}).await.ok();
    let mut maintenance = MaintenanceClient::new(server.channel().await);
    let mut snapshot = maintenance.snapshot(SnapshotRequest {}).await.expect("the stream is open").into_inner();
    while snapshot.message().await.expect("the stream is open").is_some() {}
    for page in ["/health", "/livez", "/readyz", "/version"] {
        server.page(page).await;
    }
    // So that the next one counts an earlier request.
    server.page("/metrics").await;
}

#[tokio::test]
async fn all_families_of_etcd_are_there_but_those_that_have_no_meaning() {
    let (etcd, gitcd) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::Gitcd));
    let mut pages = Vec::new();
    for server in [&etcd, &gitcd] {
        load(server).await;
        let alarm = AlarmType::Nospace.into();
        let raise = AlarmRequest { action: AlarmAction::Activate.into(), member_id: 7, alarm };
        server.client().await.alarm(raise).await.ok();
        pages.push(server.page("/metrics").await);
    }
    let (theirs, ours) = (families(&pages[0]), families(&pages[1]));
    assert!(theirs.len() > 100, "{theirs:?}");
    for page in &pages {
        let alarms = samples(page, "etcd_debugging_server_alarms");
        let labels = ["server_id=\"7\"", "alarm_type=\"NOSPACE\""].map(ToOwned::to_owned).into();
        assert_eq!(alarms.get(&labels), Some(&1.0), "{alarms:?}");
    }
    let meaningless = meaningless();
    let is_meaningless = |name: &str| {
        meaningless.iter().any(|known| known.strip_suffix('*').map_or(known == name, |start| name.starts_with(start)))
    };
    for (name, kind) in &theirs {
        assert_eq!(ours.get(name), Some(kind).filter(|_| !is_meaningless(name)), "{name}");
    }
    for name in ours.keys().filter(|name| !name.starts_with("gitcd_")) {
        assert!(theirs.contains_key(name), "{name} is not a metric of etcd");
    }
    for name in &meaningless {
        assert!(name.ends_with('*') || theirs.contains_key(name), "{name} is no longer a metric of etcd");
    }
}

#[tokio::test]
async fn figures_count_the_same_things() {
    let (etcd, gitcd) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::under_test()));
    let mut said = Vec::new();
    for server in [&etcd, &gitcd] {
        load(server).await;
        // Compaction removes versions a little later, and gitcd defragments after it has answered.
        let page = eventually("compaction and defragmentation", async || {
            let page = server.page("/metrics").await;
            let last = samples(&page, "etcd_debugging_mvcc_db_compaction_last");
            let defragments = samples(&page, "etcd_disk_defrag_inflight");
            let is_over = last.values().any(|last| *last > 1e9) && defragments.values().all(|running| *running == 0.0);
            is_over.then_some(page)
        })
        .await;
        let exactly = [
            "etcd_debugging_lease_renewed_total",
            "etcd_debugging_lease_ttl_total_count",
            "etcd_debugging_lease_ttl_total_sum",
            "etcd_debugging_lease_ttl_total_bucket{le=\"64\"}",
            "etcd_debugging_mvcc_db_compaction_keys_total",
            "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds_count",
            "etcd_debugging_mvcc_total_put_size_in_bytes",
            "etcd_debugging_mvcc_pending_events_total",
            "etcd_debugging_server_lease_expired_total",
            "etcd_debugging_auth_revision",
            "etcd_disk_backend_defrag_duration_seconds_count",
            "etcd_disk_defrag_inflight",
            "etcd_mvcc_hash_duration_seconds_count",
            "etcd_mvcc_hash_rev_duration_seconds_count",
            "etcd_server_health_failures",
            "etcd_server_healthcheck",
            "etcd_server_healthchecks_total",
            "etcd_server_read_indexes_failed_total",
            "promhttp_metric_handler_requests_in_flight",
            "os_fd_limit",
            "process_max_fds",
            "process_virtual_memory_max_bytes",
        ];
        let mut figures: Vec<_> = exactly.iter().map(|name| (*name, samples(&page, name))).collect();
        for name in
            ["grpc_server_msg_received_total", "grpc_server_msg_sent_total", "etcd_server_apply_duration_seconds_count"]
        {
            let mut methods = samples(&page, name);
            methods.retain(|labels, number| {
                let has = |part: &str| labels.iter().any(|label| label.contains(part));
                let by_itself = ["Cluster", "Merge", "op=\"unknown\"", "LeaseRevoke", "Snapshot"];
                // etcd counts the end of a client's stream as a received message.
                let ends = name == "grpc_server_msg_received_total" && has("_stream");
                // The number of snapshot messages depends on the store's size; etcd does not apply read-only transactions.
                let differs = ends || by_itself.iter().any(|part| has(part)) || name.starts_with("etcd") && has("Txn");
                *number > 0.0 && !differs
            });
            assert!(methods.len() > 3, "{name}: {methods:?}");
            figures.push((name, methods));
        }
        said.push(figures);
        for name in [
            "os_fd_used",
            "etcd_disk_wal_write_bytes_total",
            "etcd_disk_wal_write_duration_seconds_count",
            "etcd_server_health_success",
            "etcd_server_range_duration_seconds_count",
            "etcd_server_client_requests_total",
            "etcd_disk_backend_snapshot_duration_seconds_count",
            "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds_count",
            "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds_count",
            "process_network_receive_bytes_total",
            "process_network_transmit_bytes_total",
            "promhttp_metric_handler_requests_total",
        ] {
            assert!(samples(&page, name).values().any(|value| *value > 0.0), "{name}");
        }
    }
    let (etcd, gitcd) = (&said[0], &said[1]);
    for (theirs, ours) in etcd.iter().zip(gitcd) {
        assert_eq!(theirs, ours);
    }
}
