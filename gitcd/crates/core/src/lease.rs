//! Limits of leases.

/// The longest time to live that etcd grants, in seconds (`server/lease/lessor.go`).
pub const MAX_TTL: i64 = 9_000_000_000;
