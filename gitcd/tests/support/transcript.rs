//! The part of the servers' responses that must be equal, as text.

use std::fmt::Debug;

use gitcd::proto::etcdserverpb::{
    AlarmResponse, AuthDisableResponse, AuthEnableResponse, AuthRoleAddResponse, AuthRoleDeleteResponse,
    AuthRoleGetResponse, AuthRoleGrantPermissionResponse, AuthRoleListResponse, AuthRoleRevokePermissionResponse,
    AuthStatusResponse, AuthUserAddResponse, AuthUserChangePasswordResponse, AuthUserDeleteResponse,
    AuthUserGetResponse, AuthUserGrantRoleResponse, AuthUserListResponse, AuthUserRevokeRoleResponse,
    AuthenticateResponse, CompactionResponse, DefragmentResponse, DeleteRangeResponse, DowngradeResponse,
    HashKvResponse, HashResponse, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeResponse,
    LeaseTimeToLiveResponse, MemberAddResponse, MemberListResponse, MemberPromoteResponse, MemberRemoveResponse,
    MemberUpdateResponse, MoveLeaderResponse, PutResponse, RangeResponse, ResponseHeader, StatusResponse, TxnResponse,
    WatchResponse, response_op,
};
use gitcd::proto::v3electionpb::{CampaignResponse, LeaderResponse, ProclaimResponse, ResignResponse};
use gitcd::proto::v3lockpb::{LockResponse, UnlockResponse};
use tonic::Status;

/// The steps of a case: requests and normalised responses.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    steps: Vec<String>,
}

impl Transcript {
    /// Adds one step.
    pub(crate) fn note(&mut self, asked: &dyn Debug, answered: &dyn Debug) {
        self.steps.push(format!("{asked:?}\n{answered:?}"));
    }

    /// Adds a response. Identities such as cluster, member and term are reduced to their presence.
    pub(crate) fn answer<R: Comparable>(&mut self, asked: &dyn Debug, answer: &Result<R, Status>) {
        match answer {
            Ok(message) => {
                let mut message = message.clone();
                message.normalise();
                self.note(asked, &message);
            }
            Err(status) => self.note(asked, &(status.code(), status.message())),
        }
    }

    /// The first difference, if any: the request and both responses.
    pub(crate) fn difference(etcd: &Self, other: &Self) -> Option<String> {
        let length = etcd.steps.len().max(other.steps.len());
        let step = (0..length).find(|&step| etcd.steps.get(step) != other.steps.get(step))?;
        let show =
            |transcript: &Self| transcript.steps.get(step).map_or_else(|| "(nothing)".into(), |step| indent(step));
        Some(format!(
            "step {} of {length} differs\netcd:\n{}\nthe other server:\n{}",
            step + 1,
            show(etcd),
            show(other)
        ))
    }
}

fn indent(step: &str) -> String {
    step.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// A message that is the same from both servers after [`Comparable::normalise`].
pub(crate) trait Comparable: Clone + Debug {
    fn normalise(&mut self);
}

/// Identities are each server's own; only their presence is compared.
fn header(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        header.cluster_id = header.cluster_id.min(1);
        header.member_id = header.member_id.min(1);
        header.raft_term = header.raft_term.min(1);
    }
}

macro_rules! only_headers_differ {
    ($($message:ty),+) => {
        $(impl Comparable for $message {
            fn normalise(&mut self) {
                header(&mut self.header);
            }
        })+
    };
}

only_headers_differ!(
    AuthDisableResponse,
    AuthEnableResponse,
    AuthRoleAddResponse,
    AuthRoleListResponse,
    AuthUserAddResponse,
    AuthUserChangePasswordResponse,
    AuthUserGrantRoleResponse,
    AuthUserListResponse,
    AuthUserRevokeRoleResponse,
    DowngradeResponse,
    AuthRoleDeleteResponse,
    AuthRoleGetResponse,
    AuthRoleGrantPermissionResponse,
    AuthRoleRevokePermissionResponse,
    AuthStatusResponse,
    AuthUserDeleteResponse,
    AuthUserGetResponse,
    AuthenticateResponse,
    CampaignResponse,
    CompactionResponse,
    DefragmentResponse,
    DeleteRangeResponse,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    LeaderResponse,
    LeaseRevokeResponse,
    LockResponse,
    MemberAddResponse,
    MemberPromoteResponse,
    MemberRemoveResponse,
    MemberUpdateResponse,
    MoveLeaderResponse,
    ProclaimResponse,
    PutResponse,
    RangeResponse,
    ResignResponse,
    UnlockResponse,
    WatchResponse
);

impl Comparable for AlarmResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        self.alarms.sort_by_key(|alarm| (alarm.alarm, alarm.member_id));
    }
}

impl Comparable for TxnResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        for response in self.responses.iter_mut().filter_map(|response| response.response.as_mut()) {
            match response {
                response_op::Response::ResponseRange(response) => response.normalise(),
                response_op::Response::ResponsePut(response) => response.normalise(),
                response_op::Response::ResponseDeleteRange(response) => response.normalise(),
                response_op::Response::ResponseTxn(response) => response.normalise(),
            }
        }
    }
}

impl Comparable for LeaseLeasesResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        // etcd sorts by remaining time, which is no promise.
        self.leases.sort_by_key(|lease| lease.id);
    }
}

impl Comparable for LeaseTimeToLiveResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        // In random order in etcd.
        self.keys.sort();
        // A few seconds may have passed in the test.
        if (1..self.granted_ttl).contains(&self.ttl) && self.granted_ttl - self.ttl < 20 {
            self.ttl = self.granted_ttl;
        }
    }
}

impl Comparable for HashResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        self.hash = self.hash.min(1);
    }
}

impl Comparable for HashKvResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        self.hash = self.hash.min(1);
    }
}

impl Comparable for MemberListResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        for member in &mut self.members {
            member.id = member.id.min(1);
            member.name.clear();
            member.peer_ur_ls.clear();
            // One per listener; the port is the test's own.
            for url in &mut member.client_ur_ls {
                url.truncate(url.rfind(':').unwrap_or(url.len()));
            }
        }
    }
}

impl Comparable for StatusResponse {
    fn normalise(&mut self) {
        header(&mut self.header);
        self.version = self.version.split('.').take(2).collect::<Vec<_>>().join(".");
        self.leader = self.leader.min(1);
        for size in [&mut self.db_size, &mut self.db_size_in_use, &mut self.db_size_quota] {
            *size = (*size).min(1);
        }
        for raft in [&mut self.raft_index, &mut self.raft_term, &mut self.raft_applied_index] {
            *raft = (*raft).min(1);
        }
    }
}
