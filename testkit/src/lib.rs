//! A real kube-apiserver for tests: no cluster, no containers, no etcd.
//!
//! [`TestCluster::start`] runs kube-apiserver on a [gitcd](gitcd::server::Server) in this process, with ports and folders of
//! its own, so tests can run in parallel. [`TestCluster::shared`] starts one for all tests of a binary; each uses a
//! [namespace](TestCluster::namespace) of its own. [`wait`] waits for a condition, and reports the last state if it is never
//! met. [`Proxy`] sits in front of the apiserver, and makes requests fail, hang and lose their watches.
//! [`Audit`](audit::Entry) shows who did what, as recorded by the apiserver. A [`Collector`] collects traces of the test and,
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
mod collector;
mod error;
mod garbage;
mod guard;
mod programs;
mod proxy;
mod store;
pub mod wait;

pub use self::cluster::TestCluster;
pub use self::collector::{Collector, Span};
pub use self::error::StartError;
pub use self::programs::ProgramsError;
pub use self::proxy::{Fault, Proxy, Rule, Seen};
