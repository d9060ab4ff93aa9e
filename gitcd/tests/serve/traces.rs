//! Traces of requests, journal writes, commits and merges.

use gitcd::proto::etcdserverpb::RangeRequest;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::authority::Authority;
use super::collector::{Collector, Span};
use super::support::build::{compact, get, put, watch};
use super::support::{Kind, Launch, Repository, Server, eventually};

/// A server that exports spans at once instead of every five seconds.
fn launch(variables: &[&str]) -> Launch {
    Launch::new(Kind::Gitcd).wrapper(&[&["env", "OTEL_BSP_SCHEDULE_DELAY=50"], variables].concat())
}

/// Configures tracing by etcd's flags.
async fn by_flags(collector: &Collector) -> Server {
    let address = format!("--distributed-tracing-address={}", collector.address());
    launch(&[]).argument("--experimental-enable-distributed-tracing=true").argument(address).start().await
}

/// Configures tracing by OpenTelemetry's environment variables.
async fn by_variables(collector: &Collector, more: &[&str]) -> Server {
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT=http://{}", collector.address());
    launch(&[&[endpoint.as_str()], more].concat()).start().await
}

/// Adds a client's trace context, identified by a number, to a request.
fn parent<T>(trace: u8, sampled: bool, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let context = format!("00-{trace:032x}-{:016x}-0{}", u64::from(trace) + 1000, u8::from(sampled));
    request.metadata_mut().insert("traceparent", context.parse().expect("the header is ASCII"));
    request.metadata_mut().insert("tracestate", "vendor=value".parse().expect("the header is ASCII"));
    request
}

fn is_of(trace: u8) -> impl Fn(&Span) -> bool {
    move |span| span.span.trace_id == u128::from(trace).to_be_bytes()
}

async fn client(server: &Server) -> KvClient<Channel> {
    KvClient::new(server.channel().await)
}

#[tokio::test]
async fn a_request_continues_the_trace_of_its_client_down_to_the_journal() {
    let collector = Collector::start().await;
    let server = by_flags(&collector).await;
    let mut client = client(&server).await;
    client.put(parent(7, true, put("/registry/a", "1"))).await.unwrap();

    let request = collector.span("the request", |span| is_of(7)(span) && span.name() == "etcdserverpb.KV/Put").await;
    assert_eq!(request.span.parent_span_id, 1007_u64.to_be_bytes());
    assert_eq!(request.span.trace_state, "vendor=value");
    assert_eq!(request.span.kind, SpanKind::Server as i32);
    let attributes = ["rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code", "gitcd.branch"];
    assert_eq!(attributes.map(|key| request.attribute(key)), ["grpc", "etcdserverpb.KV", "Put", "0", "default"]);
    assert_eq!(request.span.status.clone().unwrap_or_default().code, StatusCode::Unset as i32);
    assert_eq!(request.service("service.name"), "gitcd");

    let write = collector.span("the journal write", |span| is_of(7)(span) && span.name() == "journal.write").await;
    assert!(write.is_child_of(&request), "{write:?}");
    assert_eq!((write.attribute("gitcd.answers").as_str(), write.span.links.len()), ("1", 0));
    let inside = request.span.start_time_unix_nano..=request.span.end_time_unix_nano;
    assert!(inside.contains(&write.span.start_time_unix_nano) && inside.contains(&write.span.end_time_unix_nano));

    // A client's error does not set the span's error status.
    client.range(parent(8, true, RangeRequest { revision: 99, ..get("/registry/a") })).await.unwrap_err();
    let refused = collector.span("the refused request", is_of(8)).await;
    assert_eq!(refused.attribute("rpc.grpc.status_code"), (Code::OutOfRange as i32).to_string());
    assert_eq!(refused.span.status.unwrap_or_default().code, StatusCode::Unset as i32);
    client.compact(parent(9, true, compact(2))).await.unwrap();
    let compaction = collector.span("the compaction", |span| is_of(9)(span) && span.name().ends_with("/Compact")).await;
    collector.span("its journal write", |span| span.name() == "journal.write" && span.is_child_of(&compaction)).await;
}

#[tokio::test]
async fn with_etcds_flag_clients_choose_what_is_traced() {
    let collector = Collector::start().await;
    let mut server = by_flags(&collector).await;
    let mut client = client(&server).await;
    client.put(put("/registry/a", "1")).await.unwrap();
    client.put(parent(1, false, put("/registry/a", "2"))).await.unwrap();
    client.put(parent(2, true, put("/registry/a", "3"))).await.unwrap();
    // Stopping exports all remaining spans.
    server.terminate().await;
    let spans = collector.spans();
    assert!(spans.iter().all(is_of(2)), "{spans:?}");
    assert_eq!(spans.len(), 2, "{spans:?}");
}

#[tokio::test]
async fn every_journal_write_is_linked_to_all_requests_that_wait_for_it() {
    let collector = Collector::start().await;
    let mut server = by_flags(&collector).await;
    let mut tasks = JoinSet::new();
    let mut channels = Vec::new();
    for _ in 0..20 {
        channels.push(client(&server).await);
    }
    for (number, mut client) in channels.into_iter().enumerate() {
        tasks.spawn(async move {
            let trace = number as u8 + 1;
            client.put(parent(trace, true, put(&format!("/registry/{trace}"), "1"))).await.unwrap();
        });
    }
    tasks.join_all().await;
    server.terminate().await;

    let spans = collector.spans();
    let (writes, requests): (Vec<_>, Vec<_>) = spans.into_iter().partition(|span| span.name() == "journal.write");
    assert_eq!(requests.len(), 20);
    let mut waited: Vec<_> = writes.iter().map(|write| write.span.parent_span_id.clone()).collect();
    waited.extend(writes.iter().flat_map(|write| &write.span.links).map(|link| link.span_id.clone()));
    let mut ids: Vec<_> = requests.iter().map(|request| request.span.span_id.clone()).collect();
    waited.sort();
    ids.sort();
    assert_eq!(waited, ids, "every request must wait for exactly one write");
    for write in &writes {
        assert_eq!(write.attribute("gitcd.answers"), (write.span.links.len() + 1).to_string());
    }
}

#[tokio::test]
async fn with_opentelemetrys_variables_everything_is_traced_commits_too() {
    let collector = Collector::start().await;
    let server = by_variables(&collector, &["OTEL_SERVICE_NAME=store", "OTEL_RESOURCE_ATTRIBUTES=zone=here"]).await;
    let client = server.client().await;
    client.put(put("/registry/a", "1")).await.ok();

    let flush = collector.span("a flush", |span| span.name() == "git.flush").await;
    assert_eq!(["service.name", "zone"].map(|key| flush.service(key)), ["store", "here"]);
    assert_eq!(["gitcd.revision.last", "gitcd.commits"].map(|key| flush.attribute(key)), ["2", "1"]);
    let pack = collector.span("its pack", |span| flush.is_child_of(span)).await;
    assert_eq!((pack.name(), pack.span.parent_span_id.len()), ("git.pack", 0));
    let commit = collector.span("its commit", |span| span.name() == "git.commit").await;
    assert!(commit.is_child_of(&pack));
    let attributes = ["gitcd.revision.first", "gitcd.revision.last", "gitcd.changes"];
    assert_eq!(attributes.map(|key| commit.attribute(key)), ["2", "2", "1"]);

    let request = collector.span("the request", |span| span.name() == "etcdserverpb.KV/Put").await;
    assert_eq!(request.span.parent_span_id.len(), 0);
    assert!(!server.output().contains("git.commit"), "spans must not be logged: {}", server.output());
}

#[tokio::test]
async fn a_merge_is_a_trace_of_its_own() {
    let collector = Collector::start().await;
    let server = by_variables(&collector, &[]).await;
    server.client().await.put(put("/registry/a", "1")).await.ok();
    collector.span("a flush", |span| span.name() == "git.flush").await;
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let clone = folder.path().join("clone");
    server.repository().git(&["clone", "-q", "-b", "main", ".", &clone.display().to_string()]);
    let person = Repository::at(&clone);
    std::fs::write(clone.join("b"), "2").expect("the temporary folder is writable");
    person.git(&["add", "b"]);
    person.git(&["commit", "-qm", "by hand"]);
    person.git(&["push", "-q", "origin", "main"]);
    let merge = collector.span("a merge", |span| span.name() == "merge").await;
    assert_eq!(merge.span.parent_span_id.len(), 0);
    let attributes = ["gitcd.branch", "gitcd.keys", "gitcd.conflicts"];
    assert_eq!(attributes.map(|key| merge.attribute(key)), ["default", "1", "0"]);
}

#[tokio::test]
async fn a_collector_with_tls_gets_spans_if_its_authority_is_trusted() {
    let authority = Authority::new("collectors");
    let collector = Collector::secure(&authority.issue("collector")).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT=https://localhost:{}", collector.address().port());
    let certificate = format!("OTEL_EXPORTER_OTLP_CERTIFICATE={}", file.display());
    let server = launch(&[&endpoint, &certificate]).start().await;
    client(&server).await.put(parent(1, true, put("/registry/a", "1"))).await.unwrap();
    collector.span("the request", is_of(1)).await;
}

#[tokio::test]
async fn nothing_is_traced_if_a_variable_says_so() {
    let collector = Collector::start().await;
    let mut server = by_variables(&collector, &["OTEL_TRACES_EXPORTER=none"]).await;
    client(&server).await.put(parent(1, true, put("/registry/a", "1"))).await.unwrap();
    server.terminate().await;
    assert!(collector.spans().is_empty());

    let exit = launch(&["OTEL_TRACES_EXPORTER=zipkin"]).spawn().exit().await;
    assert!(!exit.status.success() && exit.output.contains("OTEL_TRACES_EXPORTER=zipkin"), "{}", exit.output);
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_ends_as_cancelled() {
    let collector = Collector::start().await;
    let server = by_variables(&collector, &[]).await;
    let client = server.client().await;
    let mut watching = client.watch();
    watching.create(watch("/registry/a")).await;
    drop(watching);
    let watch = collector.span("the watch", |span| span.name() == "etcdserverpb.Watch/Watch").await;
    assert_eq!(watch.attribute("rpc.grpc.status_code"), (Code::Cancelled as i32).to_string());
}

#[tokio::test]
async fn a_collector_that_is_away_is_warned_of_once_and_holds_up_nobody() {
    let mut server =
        launch(&["OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT=200"]).start().await;
    let client = server.client().await;
    let mut number = 0;
    eventually("a warning", async || {
        number += 1;
        client.put(put("/registry/a", &number.to_string())).await.ok();
        server.output().contains("cannot export traces").then_some(())
    })
    .await;
    for number in 0..200 {
        client.put(put("/registry/a", &number.to_string())).await.ok();
    }
    let exit = server.terminate().await;
    assert_eq!(exit.output.matches("cannot export traces").count(), 1, "{}", exit.output);
    assert!(exit.output.contains("http://127.0.0.1:1"), "{}", exit.output);
}
