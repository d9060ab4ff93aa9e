//! An etcd client on one connection that records every call and response.

use std::cell::RefCell;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::rc::Rc;

use gitcd::proto::etcdserverpb::auth_client::AuthClient;
use gitcd::proto::etcdserverpb::cluster_client::ClusterClient;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use gitcd::proto::etcdserverpb::lease_client::LeaseClient;
use gitcd::proto::etcdserverpb::maintenance_client::MaintenanceClient;
use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::{
    AlarmRequest, AlarmResponse, AuthDisableRequest, AuthDisableResponse, AuthEnableRequest, AuthEnableResponse,
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleDeleteRequest, AuthRoleDeleteResponse, AuthRoleGetRequest,
    AuthRoleGetResponse, AuthRoleGrantPermissionRequest, AuthRoleGrantPermissionResponse, AuthRoleListRequest,
    AuthRoleListResponse, AuthRoleRevokePermissionRequest, AuthRoleRevokePermissionResponse, AuthStatusRequest,
    AuthStatusResponse, AuthUserAddRequest, AuthUserAddResponse, AuthUserChangePasswordRequest,
    AuthUserChangePasswordResponse, AuthUserDeleteRequest, AuthUserDeleteResponse, AuthUserGetRequest,
    AuthUserGetResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse, AuthUserListRequest,
    AuthUserListResponse, AuthUserRevokeRoleRequest, AuthUserRevokeRoleResponse, AuthenticateRequest,
    AuthenticateResponse, CompactionRequest, CompactionResponse, DefragmentRequest, DefragmentResponse,
    DeleteRangeRequest, DeleteRangeResponse, DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse,
    HashRequest, HashResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseLeasesRequest, LeaseLeasesResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse,
    MemberPromoteRequest, MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest,
    MemberUpdateResponse, MoveLeaderRequest, MoveLeaderResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
    SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};
use gitcd::proto::v3electionpb::election_client::ElectionClient;
use gitcd::proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, ProclaimRequest, ProclaimResponse, ResignRequest,
    ResignResponse,
};
use gitcd::proto::v3lockpb::lock_client::LockClient;
use gitcd::proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest, UnlockResponse};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::transcript::Comparable;
use super::{Kind, Transcript, Watching};

/// Larger than any response in the tests.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// A recording client; clones share its connection and [`Transcript`].
#[derive(Clone)]
pub(crate) struct Client {
    kind: Kind,
    channel: Channel,
    transcript: Rc<RefCell<Transcript>>,
}

/// A response or error. Unlike a `Result`, it may be ignored: it is in the transcript.
pub(crate) struct Reply<T> {
    asked: String,
    result: Result<T, Status>,
}

impl<T: Debug> Reply<T> {
    /// Returns the response.
    ///
    /// # Panics
    /// If the request failed.
    #[track_caller]
    pub(crate) fn ok(self) -> T {
        self.result.unwrap_or_else(|status| panic!("{}: {status}", self.asked))
    }

    /// Returns the message of an error, which must have this code.
    #[track_caller]
    pub(crate) fn refused(self, code: Code) -> String {
        match self.result {
            Err(status) if status.code() == code => status.message().to_owned(),
            other => panic!("{}: {other:?} is not {code:?}", self.asked),
        }
    }

    pub(crate) fn result(self) -> Result<T, Status> {
        self.result
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $service:ident.$call:ident: $request:ty => $response:ty;)+) => {
        $($(#[$doc])*
        pub(crate) async fn $call(&self, request: $request) -> Reply<$response> {
            let result = self.$service().$call(request.clone()).await;
            self.noted(stringify!($call), &request, result)
        })+
    };
}

impl Client {
    pub(crate) async fn connect(kind: Kind, address: SocketAddr) -> Self {
        Self { kind, channel: connect(address).await, transcript: Rc::default() }
    }

    /// The kind of the server.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its connection, for services that this client does not have.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a client on the same connection with a transcript of its own, for concurrent requests.
    pub(crate) fn aside(&self) -> Self {
        Self { transcript: Rc::default(), ..self.clone() }
    }

    /// Records a fact in the transcript.
    pub(crate) fn note(&self, what: &str, fact: impl Debug) {
        self.transcript.borrow_mut().note(&what, &fact);
    }

    /// Returns what was recorded so far, and starts a new transcript.
    pub(crate) fn take_transcript(&self) -> Transcript {
        self.transcript.take()
    }

    calls! {
        kv.range: RangeRequest => RangeResponse;
        kv.put: PutRequest => PutResponse;
        kv.delete_range: DeleteRangeRequest => DeleteRangeResponse;
        kv.txn: TxnRequest => TxnResponse;
        kv.compact: CompactionRequest => CompactionResponse;
        leases.lease_grant: LeaseGrantRequest => LeaseGrantResponse;
        leases.lease_revoke: LeaseRevokeRequest => LeaseRevokeResponse;
        leases.lease_time_to_live: LeaseTimeToLiveRequest => LeaseTimeToLiveResponse;
        leases.lease_leases: LeaseLeasesRequest => LeaseLeasesResponse;
        maintenance.alarm: AlarmRequest => AlarmResponse;
        maintenance.status: StatusRequest => StatusResponse;
        maintenance.defragment: DefragmentRequest => DefragmentResponse;
        maintenance.hash: HashRequest => HashResponse;
        maintenance.downgrade: DowngradeRequest => DowngradeResponse;
        maintenance.hash_kv: HashKvRequest => HashKvResponse;
        maintenance.move_leader: MoveLeaderRequest => MoveLeaderResponse;
        cluster.member_list: MemberListRequest => MemberListResponse;
        cluster.member_add: MemberAddRequest => MemberAddResponse;
        cluster.member_remove: MemberRemoveRequest => MemberRemoveResponse;
        cluster.member_update: MemberUpdateRequest => MemberUpdateResponse;
        cluster.member_promote: MemberPromoteRequest => MemberPromoteResponse;
        auth.auth_status: AuthStatusRequest => AuthStatusResponse;
        auth.auth_disable: AuthDisableRequest => AuthDisableResponse;
        auth.authenticate: AuthenticateRequest => AuthenticateResponse;
        auth.auth_enable: AuthEnableRequest => AuthEnableResponse;
        auth.user_add: AuthUserAddRequest => AuthUserAddResponse;
        auth.user_list: AuthUserListRequest => AuthUserListResponse;
        auth.role_add: AuthRoleAddRequest => AuthRoleAddResponse;
        auth.role_list: AuthRoleListRequest => AuthRoleListResponse;
        auth.user_get: AuthUserGetRequest => AuthUserGetResponse;
        auth.user_delete: AuthUserDeleteRequest => AuthUserDeleteResponse;
        auth.role_get: AuthRoleGetRequest => AuthRoleGetResponse;
        auth.role_delete: AuthRoleDeleteRequest => AuthRoleDeleteResponse;
        auth.user_change_password: AuthUserChangePasswordRequest => AuthUserChangePasswordResponse;
        auth.user_grant_role: AuthUserGrantRoleRequest => AuthUserGrantRoleResponse;
        auth.user_revoke_role: AuthUserRevokeRoleRequest => AuthUserRevokeRoleResponse;
        auth.role_grant_permission: AuthRoleGrantPermissionRequest => AuthRoleGrantPermissionResponse;
        auth.role_revoke_permission: AuthRoleRevokePermissionRequest => AuthRoleRevokePermissionResponse;
        locks.lock: LockRequest => LockResponse;
        locks.unlock: UnlockRequest => UnlockResponse;
        elections.campaign: CampaignRequest => CampaignResponse;
        elections.proclaim: ProclaimRequest => ProclaimResponse;
        elections.leader: LeaderRequest => LeaderResponse;
        elections.resign: ResignRequest => ResignResponse;
    }

    /// Sends one keep-alive on a stream of its own.
    pub(crate) async fn keep_alive(&self, id: i64) -> Reply<LeaseKeepAliveResponse> {
        let request = LeaseKeepAliveRequest { id };
        let result = async {
            let requests = futures::stream::iter([request]);
            let mut answers = self.leases().lease_keep_alive(requests).await?.into_inner();
            let answer = answers.message().await?;
            Ok(tonic::Response::new(answer.ok_or_else(|| Status::unknown("no answer"))?))
        };
        let result = result.await;
        self.noted("lease_keep_alive", &request, result)
    }

    /// Opens a snapshot stream; not recorded.
    pub(crate) async fn snapshot(
        &self,
        request: SnapshotRequest,
    ) -> Result<tonic::Response<tonic::Streaming<SnapshotResponse>>, Status> {
        self.maintenance().snapshot(request).await
    }

    /// Opens a stream of an election's values; not recorded.
    pub(crate) async fn observe(&self, name: &'static str) -> tonic::Streaming<LeaderResponse> {
        let request = LeaderRequest { name: name.into() };
        self.elections().observe(request).await.expect("an election can be observed").into_inner()
    }

    /// Opens a watch stream.
    pub(crate) fn watch(&self) -> Watching {
        Watching::open(self.watcher(), Rc::clone(&self.transcript))
    }

    fn noted<Q: Debug, R: Comparable>(
        &self,
        call: &str,
        request: &Q,
        result: Result<tonic::Response<R>, Status>,
    ) -> Reply<R> {
        let asked = format!("{call} {request:?}");
        let result = result.map(tonic::Response::into_inner);
        self.transcript.borrow_mut().answer(&format_args!("{asked}"), &result);
        Reply { asked, result }
    }

    fn kv(&self) -> KvClient<Channel> {
        // No client-side limit on requests: the tests check the server's.
        KvClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn watcher(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn leases(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    fn auth(&self) -> AuthClient<Channel> {
        AuthClient::new(self.channel.clone())
    }

    fn locks(&self) -> LockClient<Channel> {
        LockClient::new(self.channel.clone())
    }

    fn elections(&self) -> ElectionClient<Channel> {
        ElectionClient::new(self.channel.clone())
    }

    fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }
}

/// Connects, retrying until the server listens.
pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address is a valid URL");
    super::eventually("a connection", async || endpoint.connect().await.ok()).await
}

/// Short constructors of requests; further fields are set with struct update syntax.
pub(crate) mod build {
    use bytes::Bytes;
    use gitcd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
    use gitcd::proto::etcdserverpb::{
        CompactionRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
        PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, request_op,
    };

    /// The first key after all keys that start with `prefix`, as etcd's clients compute it.
    pub(crate) fn prefix_end(prefix: &str) -> Bytes {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().expect("a prefix is not empty") += 1;
        end.into()
    }

    /// The range end that stands for all following keys.
    pub(crate) fn to_the_end() -> Bytes {
        Bytes::from_static(b"\0")
    }

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    pub(crate) fn put(key: &str, value: &str) -> PutRequest {
        PutRequest { key: bytes(key), value: bytes(value), ..PutRequest::default() }
    }

    pub(crate) fn get(key: &str) -> RangeRequest {
        RangeRequest { key: bytes(key), ..RangeRequest::default() }
    }

    /// Lists all keys that start with `prefix`.
    pub(crate) fn list(prefix: &str) -> RangeRequest {
        RangeRequest { range_end: prefix_end(prefix), ..get(prefix) }
    }

    pub(crate) fn delete(key: &str) -> DeleteRangeRequest {
        DeleteRangeRequest { key: bytes(key), ..DeleteRangeRequest::default() }
    }

    /// Deletes all keys that start with `prefix`.
    pub(crate) fn delete_prefix(prefix: &str) -> DeleteRangeRequest {
        DeleteRangeRequest { range_end: prefix_end(prefix), ..delete(prefix) }
    }

    pub(crate) fn compact(revision: i64) -> CompactionRequest {
        CompactionRequest { revision, physical: true }
    }

    pub(crate) fn grant(id: i64, ttl: i64) -> LeaseGrantRequest {
        LeaseGrantRequest { id, ttl }
    }

    pub(crate) fn revoke(id: i64) -> LeaseRevokeRequest {
        LeaseRevokeRequest { id }
    }

    pub(crate) fn time_to_live(id: i64) -> LeaseTimeToLiveRequest {
        LeaseTimeToLiveRequest { id, keys: true }
    }

    pub(crate) fn watch(key: &str) -> WatchCreateRequest {
        WatchCreateRequest { key: bytes(key), ..WatchCreateRequest::default() }
    }

    /// Watches all keys that start with `prefix`.
    pub(crate) fn watch_prefix(prefix: &str) -> WatchCreateRequest {
        WatchCreateRequest { range_end: prefix_end(prefix), ..watch(prefix) }
    }

    /// A transaction without compares, so that `success` is executed.
    pub(crate) fn all(success: impl IntoIterator<Item = impl Into<Op>>) -> TxnRequest {
        TxnRequest { success: ops(success), ..TxnRequest::default() }
    }

    pub(crate) fn ops(ops: impl IntoIterator<Item = impl Into<Op>>) -> Vec<RequestOp> {
        ops.into_iter().map(|op| RequestOp { request: Some(op.into().0) }).collect()
    }

    /// Any request of a transaction.
    #[derive(Clone, Debug)]
    pub(crate) struct Op(request_op::Request);

    impl From<RangeRequest> for Op {
        fn from(request: RangeRequest) -> Self {
            Self(request_op::Request::RequestRange(request))
        }
    }

    impl From<PutRequest> for Op {
        fn from(request: PutRequest) -> Self {
            Self(request_op::Request::RequestPut(request))
        }
    }

    impl From<DeleteRangeRequest> for Op {
        fn from(request: DeleteRangeRequest) -> Self {
            Self(request_op::Request::RequestDeleteRange(request))
        }
    }

    impl From<TxnRequest> for Op {
        fn from(request: TxnRequest) -> Self {
            Self(request_op::Request::RequestTxn(request))
        }
    }

    /// Compares `key` with `operand`, as in `mod_revision(key) == 5`.
    pub(crate) fn compare(key: &str, result: CompareResult, operand: TargetUnion) -> Compare {
        let target = match operand {
            TargetUnion::Version(_) => CompareTarget::Version,
            TargetUnion::CreateRevision(_) => CompareTarget::Create,
            TargetUnion::ModRevision(_) => CompareTarget::Mod,
            TargetUnion::Value(_) => CompareTarget::Value,
            TargetUnion::Lease(_) => CompareTarget::Lease,
        };
        Compare {
            result: result.into(),
            target: target.into(),
            key: bytes(key),
            range_end: Bytes::new(),
            target_union: Some(operand),
        }
    }

    /// kube-apiserver's compare: the key's mod revision is `revision`, 0 for a missing key.
    pub(crate) fn unchanged_since(key: &str, revision: i64) -> Compare {
        compare(key, CompareResult::Equal, TargetUnion::ModRevision(revision))
    }
}
