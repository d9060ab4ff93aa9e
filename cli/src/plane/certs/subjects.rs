//! The certificates of a control plane: subject, issuer and use.

/// kube-apiserver's address inside the cluster: the first one of [`SERVICE_RANGE`].
const SERVICE_ADDRESS: &str = "10.32.0.1";
/// The cluster's service addresses.
pub const SERVICE_RANGE: &str = "10.32.0.0/24";
/// The client name of kube-apiserver at aggregated API servers.
pub const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// A certificate authority.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Authority {
    /// File name without extension.
    pub(super) file: &'static str,
    pub(super) common_name: &'static str,
}

/// Authority for clients and servers of the cluster.
pub(super) const CLUSTER: Authority = Authority { file: "ca", common_name: "trishanku-ca" };
/// Authority for kube-apiserver as a front proxy. It is separate because its clients may impersonate any user at
/// aggregated API servers.
pub(super) const FRONT_PROXY: Authority = Authority { file: "front-proxy-ca", common_name: "trishanku-front-proxy-ca" };

/// Authority for stores and their clients only: its certificates give full access to all data, bypassing kube-apiserver's
/// checks.
pub(super) const STORE: Authority = Authority { file: "store-ca", common_name: "trishanku-store-ca" };

/// A certificate to issue.
pub(super) struct Subject {
    pub(super) authority: Authority,
    /// File name without extension.
    pub(super) file: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    pub(super) names: &'static [&'static str],
    pub(super) server: bool,
    pub(super) client: bool,
}

const LOOPBACK: &[&str] = &["localhost", "127.0.0.1", "::1"];

pub(super) const SUBJECTS: [Subject; 7] = [
    Subject {
        authority: CLUSTER,
        file: "kube-apiserver",
        common_name: "kube-apiserver",
        organization: None,
        names: &[
            "localhost",
            "127.0.0.1",
            "::1",
            SERVICE_ADDRESS,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ],
        server: true,
        client: false,
    },
    Subject {
        authority: CLUSTER,
        file: "admin",
        common_name: "trishanku-admin",
        organization: Some("system:masters"),
        names: &[],
        server: false,
        client: true,
    },
    Subject {
        authority: CLUSTER,
        file: "kube-controller-manager",
        common_name: "system:kube-controller-manager",
        organization: None,
        names: LOOPBACK,
        server: true,
        client: true,
    },
    Subject {
        authority: CLUSTER,
        file: "kube-scheduler",
        common_name: "system:kube-scheduler",
        organization: None,
        names: LOOPBACK,
        server: true,
        client: true,
    },
    Subject {
        authority: FRONT_PROXY,
        file: "front-proxy-client",
        common_name: FRONT_PROXY_CLIENT,
        organization: None,
        names: &[],
        server: false,
        client: true,
    },
    Subject {
        authority: STORE,
        file: "store",
        common_name: "store",
        organization: None,
        names: LOOPBACK,
        server: true,
        // etcd presents it to itself as well.
        client: true,
    },
    Subject {
        authority: STORE,
        file: "store-client",
        // Commits record this name.
        common_name: "kube-apiserver",
        organization: None,
        names: &[],
        server: false,
        client: true,
    },
];
