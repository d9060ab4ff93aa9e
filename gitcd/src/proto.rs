//! The etcd v3 API as Rust types, generated from `proto/` at build time.

/// Stored pairs and their changes.
#[expect(missing_docs, clippy::pedantic, reason = "generated code")]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests, responses, clients and servers.
#[expect(missing_docs, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
