//! The etcd v3 API as Rust types, generated from `proto/` at build time.

/// Key-value pairs and events.
#[expect(missing_docs, clippy::pedantic, reason = "generated code")]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Requests, responses, clients and servers.
#[expect(missing_docs, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// Parts of the Auth service's requests.
#[expect(missing_docs, clippy::pedantic, reason = "generated code")]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// The Lock service.
#[expect(missing_docs, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// The Election service.
#[expect(missing_docs, clippy::pedantic, clippy::allow_attributes_without_reason, reason = "generated code")]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// Encoded file descriptors of all of them, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
