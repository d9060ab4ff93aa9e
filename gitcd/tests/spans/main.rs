//! Without tracing, requests create no spans: those would be a third of the cost of a read.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gitcd::config::Listen;
use gitcd::git::branch;
use gitcd::keyspace::KeySpace;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::{PutRequest, RangeRequest, TxnRequest};
use gitcd::recovery::{self, Beginning};
use gitcd::server::{Config, Server};
use tracing::span::{Attributes, Id};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Counts all spans at the levels of a usual server.
#[derive(Clone, Default)]
struct Spans(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn config(repository: &std::path::Path) -> Config {
    let branch = branch::Config {
        repository: repository.to_owned(),
        name: "default".into(),
        data_reference: "refs/heads/main".into(),
        metadata_reference: "refs/gitcd/metadata/main".into(),
        keys: KeySpace::new("/registry", std::iter::empty::<&str>()),
        committer_name: "gitcd".into(),
        committer_email: "gitcd@localhost".into(),
    };
    Config {
        listen: vec![Listen { flag: "listen-urls", address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls: false }],
        progress_interval: Duration::from_hours(1),
        ..Config::new(branch)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_make_no_spans_unless_somebody_asks_for_traces() {
    let spans = Spans::default();
    tracing_subscriber::registry().with(spans.clone().with_filter(LevelFilter::INFO)).init();
    tracing::info_span!("counted").in_scope(|| ());
    assert_eq!(spans.0.swap(0, Ordering::Relaxed), 1, "the counter must see spans");

    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let config = config(&folder.path().join("repo.git"));
    let beginning = Beginning::default();
    recovery::init(&config.branch, beginning).expect("the branch is new");
    let server = Server::start(config).await.expect("the branch exists");
    let url = format!("http://{}", server.addresses()[0]);
    let mut kv = KvClient::connect(url).await.expect("the server is listening");
    for _ in 0..3 {
        let put = PutRequest { key: "/registry/a".into(), value: "1".into(), ..PutRequest::default() };
        kv.put(put).await.expect("the put succeeds");
        let get = RangeRequest { key: "/registry/a".into(), ..RangeRequest::default() };
        assert_eq!(kv.range(get.clone()).await.expect("the range succeeds").into_inner().count, 1);
        let list = RangeRequest { range_end: "/registry0".into(), ..get };
        assert_eq!(kv.range(list).await.expect("the range succeeds").into_inner().count, 1);
        kv.txn(TxnRequest::default()).await.expect("an empty transaction succeeds");
    }
    server.stop().await.expect("a graceful stop succeeds");
    assert_eq!(spans.0.load(Ordering::Relaxed), 0);
}
