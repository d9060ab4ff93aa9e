//! The table of the errors that etcd's clients expect (etcd: `api/v3rpc/rpctypes/error.go`).

use tonic::{Code, Status};

use gitcd_mvcc::Error;

macro_rules! statuses {
    ($($name:ident = $code:ident $text:literal;)*) => {
        $(pub(super) fn $name() -> Status { Status::new(Code::$code, $text) })*
    };
}

statuses! {
    empty_key = InvalidArgument "etcdserver: key is not provided";
    key_not_found = InvalidArgument "etcdserver: key not found";
    value_provided = InvalidArgument "etcdserver: value is provided";
    lease_provided = InvalidArgument "etcdserver: lease is provided";
    too_many_ops = InvalidArgument "etcdserver: too many operations in txn request";
    duplicate_key = InvalidArgument "etcdserver: duplicate key given in txn request";
    invalid_sort = InvalidArgument "etcdserver: invalid sort option";
    too_large = InvalidArgument "etcdserver: request is too large";
    compacted = OutOfRange "etcdserver: mvcc: required revision has been compacted";
    future = OutOfRange "etcdserver: mvcc: required revision is a future revision";
    no_space = ResourceExhausted "etcdserver: mvcc: database space exceeded";
    lease_not_found = NotFound "etcdserver: requested lease not found";
    lease_exists = FailedPrecondition "etcdserver: lease already exists";
    lease_ttl_too_large = OutOfRange "etcdserver: too large lease TTL";
    too_deep = InvalidArgument "gitcd: the key is too long for a path in Git, which has at most 1024 names: each part between \
        slashes takes one for every 240 bytes of it, or 80 that need escapes, so that a key without slashes may have 245760 \
        bytes; shorten the key, or move a part of it into the value";
    stopped = Unavailable "etcdserver: server stopped";
    no_writer_lease = Unavailable "etcdserver: no leader";
    standby = Unavailable "gitcd: another server has the writer lease, and this one is its hot standby: it serves reads as of the \
        last push; write to the other server, or wait until this one has the lease";
    in_doubt = Unavailable "etcdserver: request timed out, possibly due to previous leader failure";
    bad_leader_transferee = FailedPrecondition "etcdserver: bad leader transferee";
    corrupt = DataLoss "etcdserver: corrupt cluster";
    not_leader = Unknown "election: not leader";
    no_leader = Unknown "election: no leader";
    missing_leader = Unknown "\"leader\" field must be provided";
    session_expired = Unknown "mutex: session is expired";
    auth_not_enabled = FailedPrecondition "etcdserver: authentication is not enabled";
    user_not_found = FailedPrecondition "etcdserver: user name not found";
    role_not_found = FailedPrecondition "etcdserver: role name not found";
    permission_not_given = InvalidArgument "etcdserver: permission not given";
    invalid_auth_management = InvalidArgument "etcdserver: invalid auth management";
    root_user_not_found = FailedPrecondition "etcdserver: root user does not exist";
    user_empty = InvalidArgument "etcdserver: user name is empty";
    role_empty = InvalidArgument "etcdserver: role name is empty";
    member_not_found = NotFound "etcdserver: member not found";
    // etcd's error table has no code for this one.
    not_enough_started = Unknown "etcdserver: re-configuration failed due to not enough started members";
    not_a_learner = FailedPrecondition "etcdserver: can only promote a learner member";
    bad_member_urls = InvalidArgument "etcdserver: given member URLs are invalid";
    wrong_downgrade_version = InvalidArgument "etcdserver: wrong downgrade target version format";
    invalid_downgrade_version = InvalidArgument "etcdserver: invalid downgrade target version";
    one_storage_version = Unimplemented "gitcd: the storage has one version only";
    no_users = Unimplemented "gitcd: users and roles are not supported; use TLS client certificates";
    single_member = Unimplemented "gitcd: a branch has one member; other writers use another branch";
}

/// tonic's error for a message above the limit, which it makes no type of, as it is in a header.
const TOO_LONG_ENCODED: &[u8] = b"Error,%20decoded%20message%20length%20too%20large";

/// Corrects the code for a message above the transport's limit: gRPC's is `ResourceExhausted`, but tonic's is `OutOfRange`,
/// which etcd's clients take for a compacted revision.
pub(crate) fn of_transport<B>(mut response: http::Response<B>) -> http::Response<B> {
    let headers = response.headers_mut();
    let is = |name: &str, start: &[u8]| headers.get(name).is_some_and(|value| value.as_bytes().starts_with(start));
    if is("grpc-status", b"11") && is("grpc-message", TOO_LONG_ENCODED) {
        headers.insert("grpc-status", http::HeaderValue::from_static("8"));
    }
    response
}

/// Corrects the code for a message of a stream, as [`of_transport`] does. A client sends no status, so that this code can only be
/// tonic's.
pub(crate) fn of_message(status: Status) -> Status {
    if status.code() == Code::OutOfRange {
        return Status::resource_exhausted(status.message());
    }
    status
}

/// Returns whether a status says that the revision is compacted.
pub(super) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message() == compacted().message()
}

/// Converts a store error for the Lock and Election services, which in etcd are clients of the server: it keeps the text, not
/// the code.
pub(crate) fn from_inner_client(error: Error) -> Status {
    Status::unknown(from_store(error).message())
}

/// Converts a store error to its status on the wire.
pub(crate) fn from_store(error: Error) -> Status {
    match error {
        Error::Compacted => compacted(),
        Error::Future => future(),
        Error::KeyNotFound => key_not_found(),
        Error::LeaseNotFound => lease_not_found(),
        Error::LeaseExists => lease_exists(),
        Error::NoSpace => no_space(),
        Error::NoLease => no_writer_lease(),
        Error::Standby => standby(),
        // Clients retry `Unavailable`, and another endpoint would not help.
        error @ Error::Past(_) => Status::failed_precondition(format!("gitcd: {error}")),
        // The write may still become visible.
        Error::InDoubt => in_doubt(),
        Error::Stopped => stopped(),
        // A code that clients neither retry on the same server nor take for a lost write.
        Error::Poisoned(reason) => Status::failed_precondition(format!("gitcd: writes are refused: {reason}")),
        Error::ValueLost(reason) => Status::data_loss(format!("gitcd: {reason}")),
        error @ Error::Internal(_) => Status::internal(format!("gitcd: {error}")),
        Error::Conflict(key) => Status::aborted(format!("gitcd: {key} was changed on both sides")),
    }
}
