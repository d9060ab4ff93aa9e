//! etcd's plain HTTP endpoints: health checks and metrics.

use gitcd::proto::etcdserverpb::alarm_request::AlarmAction;
use gitcd::proto::etcdserverpb::{AlarmRequest, AlarmType, PutRequest};
use tonic::Code;

use crate::support::build::{compact, delete, get, grant, put, revoke, watch_prefix};
use crate::support::{Kind, Launch, Server, eventually};

fn alarm(action: AlarmAction, kind: AlarmType) -> AlarmRequest {
    AlarmRequest { action: action.into(), alarm: kind.into(), member_id: 7 }
}

/// Compares these pages of both servers, one after the other.
async fn same_pages(servers: &[Server; 2], paths: &[&str]) {
    for path in paths {
        let (etcd, other) = (servers[0].answer(path).await, servers[1].answer(path).await);
        // In random order in etcd.
        let lines = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(ToOwned::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!((etcd.0, lines(&etcd.1)), (other.0, lines(&other.1)), "{path}");
    }
}

#[tokio::test]
async fn health_pages_say_what_etcds_say() {
    let servers = [Server::start(Kind::Etcd).await, Server::start(Kind::under_test()).await];
    let paths = [
        "/health",
        "/health?serializable=true",
        "/health?exclude=NOSPACE",
        "/health?exclude=NOSPACE&exclude=CORRUPT",
        "/livez",
        "/livez?verbose",
        "/livez/serializable_read",
        "/livez/none",
        "/readyz",
        "/readyz?verbose",
        "/readyz?verbose&exclude=data_corruption",
        "/readyz/data_corruption",
        "/readyz/linearizable_read",
        "/readyz/non_learner?verbose",
    ];
    same_pages(&servers, &paths).await;
    for kind in [AlarmType::Nospace, AlarmType::Corrupt] {
        for server in &servers {
            server.client().await.alarm(alarm(AlarmAction::Activate, kind)).await.ok();
        }
        same_pages(&servers, &paths).await;
        for server in &servers {
            server.client().await.alarm(alarm(AlarmAction::Deactivate, kind)).await.ok();
        }
    }
    same_pages(&servers, &paths).await;
}

/// Returns the value of a metric; `name` includes its labels as printed.
async fn figure(server: &Server, name: &str) -> Option<f64> {
    let page = server.page("/metrics").await;
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn figures_have_the_names_and_values_that_etcds_have() {
    let servers = [Server::start(Kind::Etcd).await, Server::start(Kind::under_test()).await];
    let mut figures = Vec::new();
    for server in &servers {
        let client = server.client().await;
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        client.lease_grant(grant(7, 600)).await.ok();
        client.put(PutRequest { lease: 7, ..put("/registry/a", "1") }).await.ok();
        client.put(put("/registry/b", "1")).await.ok();
        client.put(put("", "1")).await.refused(Code::InvalidArgument);
        client.delete_range(delete("/registry/b")).await.ok();
        client.range(get("/registry/a")).await.ok();
        client.lease_revoke(revoke(7)).await.ok();
        watching.events(4).await;
        client.compact(compact(4)).await.ok();
        let names = [
            "etcd_server_has_leader",
            "etcd_server_is_leader",
            "etcd_server_leader_changes_seen_total",
            "etcd_server_proposals_pending",
            "etcd_server_proposals_failed_total",
            "etcd_server_quota_backend_bytes",
            "etcd_mvcc_put_total",
            "etcd_mvcc_delete_total",
            "etcd_debugging_mvcc_current_revision",
            "etcd_debugging_mvcc_compact_revision",
            "etcd_debugging_mvcc_watcher_total",
            "etcd_debugging_mvcc_watch_stream_total",
            "etcd_debugging_mvcc_slow_watcher_total",
            "etcd_debugging_mvcc_events_total",
            "etcd_debugging_lease_granted_total",
            "etcd_debugging_lease_revoked_total",
        ];
        let mut values = Vec::new();
        for name in names {
            values.push((name, figure(server, name).await));
        }
        for (kind, service, method, code) in [
            ("unary", "KV", "Put", "OK"),
            ("unary", "KV", "Put", "InvalidArgument"),
            ("unary", "KV", "Range", "OK"),
            ("unary", "Lease", "LeaseGrant", "OK"),
        ] {
            let page = server.page("/metrics").await;
            let wanted = [
                format!("grpc_type=\"{kind}\""),
                format!("grpc_service=\"etcdserverpb.{service}\""),
                format!("grpc_method=\"{method}\""),
                format!("grpc_code=\"{code}\""),
            ];
            let mut handled = page.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
            let line = handled.find(|line| wanted.iter().all(|label| line.contains(label)));
            let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
            values.push((method, value));
        }
        for name in ["etcd_disk_wal_fsync_duration_seconds_count", "etcd_network_client_grpc_received_bytes_total"] {
            assert!(figure(server, name).await.is_some_and(|value| value > 0.0), "{name}");
        }
        for name in ["process_resident_memory_bytes", "process_open_fds", "etcd_mvcc_db_total_size_in_bytes"] {
            assert!(figure(server, name).await.is_some_and(|value| value > 0.0), "{name}");
        }
        figures.push(values);
    }
    assert_eq!(figures[0], figures[1]);
}

#[tokio::test]
async fn a_stream_is_counted_when_it_ends() {
    let server = Server::start(Kind::Gitcd).await;
    let watches = async |code: &str| {
        let page = server.page("/metrics").await;
        let mut lines = page.lines().filter(|line| line.starts_with("grpc_server_handled_total{"));
        let line = lines.find(|line| {
            line.contains("grpc_method=\"Watch\"") && line.contains("etcdserverpb") && line.contains(code)
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    {
        let client = server.client().await;
        let mut watching = client.watch();
        watching.create(watch_prefix("/registry/")).await;
        assert_eq!(watches("\"Canceled\"").await, Some(0));
    }
    eventually("the ended stream to be counted", async || watches("\"Canceled\"").await.filter(|count| *count == 1))
        .await;
}

#[tokio::test]
async fn a_quota_raises_the_alarm_and_compaction_makes_room() {
    let quota = |kind, bytes: usize| Launch::new(kind).argument(format!("--quota-backend-bytes={bytes}"));
    let server = quota(Kind::Gitcd, 1 << 20).start().await;
    let client = server.client().await;
    let value = "x".repeat(100_000);
    let mut refusal = None;
    for _ in 0..20 {
        if let Err(status) = client.put(put("/registry/a", &value)).await.result() {
            refusal = Some(status);
            break;
        }
    }
    let refusal = refusal.expect("twenty values of 100 KB do not fit into 1 MiB");
    assert_eq!(
        (refusal.code(), refusal.message()),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded")
    );
    client.put(put("/registry/small", "1")).await.refused(Code::ResourceExhausted);
    client.lease_grant(grant(7, 600)).await.refused(Code::ResourceExhausted);
    let alarms = client.alarm(AlarmRequest::default()).await.ok().alarms;
    assert_eq!((alarms.len(), alarms[0].alarm()), (1, AlarmType::Nospace));
    assert_eq!(server.answer("/health").await.0, 503);

    // As with etcd: compact, then disarm the alarm.
    let revision = client.range(get("/registry/a")).await.ok().header.expect("a response has a header").revision;
    client.compact(compact(revision)).await.ok();
    eventually("the old versions to be removed", async || {
        figure(&server, "etcd_mvcc_db_total_size_in_bytes").await.filter(|bytes| *bytes < 200_000.0)
    })
    .await;
    let disarm = AlarmRequest { action: AlarmAction::Deactivate.into(), ..alarm(AlarmAction::Get, AlarmType::Nospace) };
    client.alarm(AlarmRequest { member_id: alarms[0].member_id, ..disarm }).await.ok();
    client.put(put("/registry/small", "1")).await.ok();
    assert_eq!(server.answer("/health").await.0, 200);
}
