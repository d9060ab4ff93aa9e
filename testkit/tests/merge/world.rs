//! A kube-apiserver, and the etcd API of the gitcd below it.

use bytes::Bytes;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::{PutRequest, RangeRequest};
use http::Method;
use kube::Client;
use serde_json::Value;
use tokio::sync::OnceCell;
use tonic::transport::Channel;
use trishanku_testkit::TestCluster;

/// A request that kube-apiserver rejected.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
}

/// Body types of requests.
pub(crate) mod body {
    pub(crate) const JSON: &str = "application/json";
    pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
    pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
    pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
    pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";
}

/// Random objects would configure admission (webhooks, policies, quotas), which would then reject others.
const FLAGS: [&str; 2] = [
    "--disable-admission-plugins=ServiceAccount,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,MutatingAdmissionPolicy,ValidatingAdmissionPolicy,ResourceQuota,LimitRanger,PodSecurity,Priority,RuntimeClass",
    "--runtime-config=api/all=true",
];

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

#[derive(Clone)]
pub(crate) struct World {
    client: Client,
    store: KvClient<Channel>,
}

impl World {
    /// Connects to the cluster that the tests of this binary share.
    pub(crate) async fn connect() -> Self {
        let started = CLUSTER.get_or_try_init(|| TestCluster::with_flags(FLAGS.map(str::to_owned))).await;
        let cluster = started.unwrap_or_else(|error| panic!("no test cluster: {error:?}"));
        let store = KvClient::connect(cluster.store_url().to_owned()).await.expect("gitcd serves in this process");
        Self { client: cluster.client(), store: store.max_decoding_message_size(64 << 20) }
    }

    /// Sends a request to kube-apiserver.
    ///
    /// # Panics
    /// If there is no response, or one that cannot be decoded.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content: Option<(&str, &Value)>,
    ) -> Result<Value, Refusal> {
        let mut request = http::Request::builder().method(method.clone()).uri(path);
        if let Some((kind, _)) = content {
            request = request.header(http::header::CONTENT_TYPE, kind);
        }
        let text = content.map(|(_, body)| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(text).expect("the parts of a request are well-formed");
        match self.client.request(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(Refusal { message: status.message }),
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// Returns the stored value of a key.
    pub(crate) async fn read(&self, key: &str) -> Option<Bytes> {
        let request = RangeRequest { key: Bytes::copy_from_slice(key.as_bytes()), ..RangeRequest::default() };
        let answer = self.store.clone().range(request).await.expect("gitcd answers").into_inner();
        answer.kvs.into_iter().next().map(|found| found.value)
    }

    /// Stores a value directly. Returns its resource version.
    pub(crate) async fn write(&self, key: &str, value: &[u8]) -> i64 {
        let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value));
        let put = PutRequest { key, value, ..PutRequest::default() };
        let stored = self.store.clone().put(put).await.expect("gitcd stores it").into_inner();
        stored.header.expect("every answer has a header").revision
    }

    /// Removes a key directly.
    pub(crate) async fn remove(&self, key: &str) {
        let request = gitcd::proto::etcdserverpb::DeleteRangeRequest {
            key: Bytes::copy_from_slice(key.as_bytes()),
            ..Default::default()
        };
        self.store.clone().delete_range(request).await.expect("gitcd removes it");
    }

    /// Returns the keys that end with `/name`.
    pub(crate) async fn keys_of(&self, name: &str) -> Vec<String> {
        let request = RangeRequest {
            key: Bytes::from_static(b"/registry/"),
            range_end: Bytes::from_static(b"/registry0"),
            keys_only: true,
            ..RangeRequest::default()
        };
        let answer = self.store.clone().range(request).await.expect("gitcd answers").into_inner();
        let keys = answer.kvs.into_iter().map(|found| String::from_utf8_lossy(&found.key).into_owned());
        keys.filter(|key| key.ends_with(&format!("/{name}"))).collect()
    }
}
