//! Hints for flags of etcd that gitcd does not accept. `docs/etcd.md` lists them for users.

const ONE_MEMBER: &str = "a branch has one member: leave it out; for failover to another server, use --writer-lease";
const NO_DATABASE: &str = "it is about etcd's database file, and gitcd has none: leave it out";
const NO_USERS: &str =
    "users and roles are not supported: leave it out, and use client certificates (--tls-trusted-ca-certs)";
const LOGS: &str = "logs go to standard error: leave it out; --verbosity sets the level";
const LISTEN: &str = "use --listen-urls, with ';' between several URLs: each serves gRPC, JSON and pages";
const NO_VERSION_2: &str = "API version 2 is not supported: leave it out";
const OWN_CHECKS: &str = "corruption is found by Git's and the journal's checksums: leave it out";

/// By the prefix of the flag's name; the first match counts.
const FAMILIES: &[(&str, &str)] = &[
    ("experimental-enable-lease-checkpoint", "leases get their full TTL at a start: leave it out"),
    ("experimental-initial-corrupt", OWN_CHECKS),
    ("experimental-corrupt", OWN_CHECKS),
    ("experimental-compact-hash", OWN_CHECKS),
    ("experimental-peer-", ONE_MEMBER),
    ("experimental-snapshot", ONE_MEMBER),
    ("experimental-", NO_DATABASE),
    ("corrupt-check", OWN_CHECKS),
    ("compact-hash", OWN_CHECKS),
    ("compaction-", "history is compacted in small steps while the server is idle: leave it out"),
    ("initial-", ONE_MEMBER),
    ("peer-", ONE_MEMBER),
    ("discovery", ONE_MEMBER),
    ("raft-", ONE_MEMBER),
    ("listen-peer-urls", ONE_MEMBER),
    ("listen-", LISTEN),
    ("backend-", NO_DATABASE),
    ("bootstrap-", NO_DATABASE),
    ("auth-", NO_USERS),
    ("bcrypt-", NO_USERS),
    ("log", LOGS),
    ("enable-log", LOGS),
    ("socket-", "a restart does not overlap with the previous server: leave it out"),
    ("warning-", "slow requests are counted by etcd_server_slow_apply_total: leave it out"),
    ("enable-v2", NO_VERSION_2),
    ("tls-m", "TLS 1.2 and 1.3 are accepted: leave it out"),
    ("max-snapshots", "use --max-journal-bytes"),
    ("max-wals", "use --max-journal-bytes"),
];

const FLAGS: &[(&str, &str)] = &[
    ("name", "the member is named after its branch: leave it out"),
    ("data-dir", "use --repo with a Git repository, which `gitcd init` creates"),
    ("wal-dir", "the journal is in the repository: leave it out"),
    ("snapshot-count", "use --max-journal-bytes"),
    ("snapshot-catchup-entries", ONE_MEMBER),
    ("heartbeat-interval", ONE_MEMBER),
    ("election-timeout", ONE_MEMBER),
    ("strict-reconfig-check", ONE_MEMBER),
    ("pre-vote", ONE_MEMBER),
    ("max-learners", ONE_MEMBER),
    ("force-new-cluster", "a copy of the repository can be served at once: leave it out"),
    ("memory-mlock", NO_DATABASE),
    ("enable-grpc-gateway", "JSON over HTTP is always served: leave it out"),
    ("feature-gates", "etcd's features have no counterpart: leave it out"),
    ("v2-deprecation", NO_VERSION_2),
    ("downgrade-check-time", "the storage has one version: leave it out"),
    ("cert-file", "use --tls-cert"),
    ("key-file", "use --tls-key"),
    ("trusted-ca-file", "use --tls-trusted-ca-certs"),
    ("client-cert-auth", "leave it out: --tls-trusted-ca-certs requires client certificates"),
    ("client-cert-file", ONE_MEMBER),
    ("client-key-file", ONE_MEMBER),
    (
        "client-crl-file",
        "revocation lists are not supported: issue short-lived certificates; renewed ones need no restart",
    ),
    ("client-cert-allowed-hostname", "use --tls-trusted-ca-certs with a CA that only your clients have"),
    ("auto-tls", "create certificates, and use --tls-cert and --tls-key"),
    ("self-signed-cert-validity", "create certificates, and use --tls-cert and --tls-key"),
    ("cipher-suites", "safe suites are chosen: leave it out"),
    ("host-whitelist", "web pages are refused whatever the host's name; --cors allows some"),
    ("enable-pprof", "it is for Go's runtime: leave it out"),
    ("metrics", "all metrics are always exported: leave it out"),
    ("unsafe-no-fsync", "acknowledged writes are always durable: leave it out"),
];

/// Returns what to do instead of a flag of etcd that gitcd does not accept.
pub(super) fn remedy(flag: &str) -> Option<&'static str> {
    let exact = FLAGS.iter().find(|(name, _)| *name == flag);
    let family = || FAMILIES.iter().find(|(start, _)| flag.starts_with(start));
    exact.or_else(family).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_etcd_have_a_remedy_and_inventions_have_none() {
        assert!(remedy("data-dir").unwrap().contains("--repo"));
        assert!(remedy("listen-client-urls").unwrap().contains("--listen-urls"));
        assert_eq!(remedy("listen-peer-urls"), Some(ONE_MEMBER));
        assert_eq!(remedy("enable-v2"), Some(NO_VERSION_2));
        assert_eq!(remedy("repository"), None);
    }
}
