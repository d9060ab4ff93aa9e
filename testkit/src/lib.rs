//! A real kube-apiserver for tests: no cluster, no containers.
//!
//! [`TestCluster::start`] runs kube-apiserver on a store of its own, with ports and folders of its own, so tests can run in
//! parallel. [`TestCluster::shared`] starts one for all tests of a binary; each uses a [namespace](TestCluster::namespace) of
//! its own. The store is a gitcd in this process or an [etcd](Storage::Etcd); instead of a new cluster, an
//! [existing](TestCluster::existing) one can be used. [`wait`] waits for a condition, and reports the last state if it is never
//! met. [`Proxy`] sits in front of the apiserver, and makes requests fail, hang and lose their watches.
//! [`Audit`](audit::Entry) shows who did what, as recorded by the apiserver. A `Collector` (feature `traces`) collects traces of the test and,
//! with [`TestCluster::traced`], of the apiserver and its store.
//!
//! The programs are those that envtest uses: in `$KUBEBUILDER_ASSETS` (or `$TRISHANKU_ASSETS`), or in the cache that `make
//! assets` fills. As with envtest, there are no controllers: namespaces are never finalized, no pods are created, and garbage
//! is collected only on request ([`TestCluster::collect_garbage`]).
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use kube::api::PostParams;
//! use trishanku_testkit::{TestCluster, wait};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = TestCluster::shared().await;
//! let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &cluster.namespace("example").await);
//! maps.create(&PostParams::default(), &serde_json::from_str(r#"{"metadata": {"name": "a"}}"#)?).await?;
//! wait::until_object(&maps, "a", "it has data", |map: &ConfigMap| map.data.is_some()).await?;
//! # Ok(())
//! # }
//! ```

mod apiserver;
pub mod audit;
mod certs;
mod cluster;
#[cfg(feature = "traces")]
mod collector;
mod environment;
mod error;
mod garbage;
mod guard;
mod process;
mod programs;
mod proxy;
mod store;
pub mod wait;

pub use self::cluster::{TestCluster, TestClusterBuilder};
#[cfg(feature = "traces")]
pub use self::collector::{Collector, Span};
pub use self::error::StartError;
pub use self::programs::ProgramsError;
pub use self::proxy::{Fault, Proxy, Rule, Seen};
pub use self::store::Storage;
