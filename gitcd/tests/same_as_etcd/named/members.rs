//! Unknown members, and the only one.

use gitcd::proto::etcdserverpb::{
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest, MoveLeaderRequest,
};
use tonic::Code;

use super::states::in_every_state;
use crate::support::{Client, same};

/// The ID of the only member.
async fn own(client: &Client) -> u64 {
    client.aside().member_list(MemberListRequest::default()).await.ok().members[0].id
}

/// Unknown member IDs. Those derived from the member's own ID differ between the two servers.
fn strangers(own: u64) -> [(&'static str, u64); 12] {
    [
        ("no ID", 0),
        ("the first ID", 1),
        ("the last ID", u64::MAX),
        ("the greatest signed ID", i64::MAX as u64),
        ("the smallest signed ID", i64::MIN as u64),
        ("the lower half of the bits", u64::from(u32::MAX)),
        ("the upper half of the bits", !u64::from(u32::MAX)),
        ("own ID minus one", own.wrapping_sub(1)),
        ("own ID plus one", own.wrapping_add(1)),
        ("own ID with a bit flipped", own ^ (1 << 40)),
        ("own ID inverted", !own),
        ("own ID with swapped bytes", own.swap_bytes() ^ 2),
    ]
}

#[tokio::test]
async fn strangers_are_not_removed() {
    same(async |client| {
        for (name, id) in strangers(own(&client).await) {
            let removed = client.aside().member_remove(MemberRemoveRequest { id }).await;
            client.note(name, removed.refused(Code::NotFound));
        }
        assert_eq!(client.member_list(MemberListRequest::default()).await.ok().members.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_only_member_is_removed_in_no_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            let id = own(client).await;
            for attempt in ["once", "again"] {
                let removed = client.aside().member_remove(MemberRemoveRequest { id }).await.result();
                let refused = removed.expect_err("a cluster keeps its last member");
                client.note(attempt, (refused.code(), refused.message()));
            }
            client.member_list(MemberListRequest { linearizable: true }).await.ok();
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn strangers_are_not_updated_whatever_their_addresses() {
    same(async |client| {
        for urls in [&[][..], &[""], &["x"], &["http://127.0.0.1:1"], &["http://127.0.0.1:1", "http://127.0.0.1:2"]] {
            for (name, id) in strangers(own(&client).await) {
                let peer_ur_ls = urls.iter().map(|url| (*url).to_owned()).collect();
                let updated = client.aside().member_update(MemberUpdateRequest { id, peer_ur_ls }).await.result();
                let refused = updated.expect_err("no member has this ID");
                client.note(name, (urls, refused.code(), refused.message()));
            }
        }
    })
    .await;
}

#[tokio::test]
async fn strangers_are_updated_in_no_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            let peer_ur_ls = vec!["http://127.0.0.1:1".to_owned()];
            client.member_update(MemberUpdateRequest { id: 1, peer_ur_ls }).await;
            client.member_list(MemberListRequest { linearizable: true }).await.ok();
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn strangers_are_not_promoted() {
    same(async |client| {
        for (name, id) in strangers(own(&client).await) {
            let promoted = client.aside().member_promote(MemberPromoteRequest { id }).await;
            client.note(name, promoted.refused(Code::NotFound));
        }
        assert!(!client.member_list(MemberListRequest::default()).await.ok().members[0].is_learner);
    })
    .await;
}

#[tokio::test]
async fn who_votes_already_is_promoted_in_no_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            let id = own(client).await;
            let promoted = client.aside().member_promote(MemberPromoteRequest { id }).await.result();
            let refused = promoted.expect_err("the member is no learner");
            client.note("itself", (refused.code(), refused.message()));
            client.member_promote(MemberPromoteRequest { id: 1 }).await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn leadership_is_not_moved_to_strangers() {
    same(async |client| {
        for (name, target_id) in strangers(own(&client).await) {
            let moved = client.aside().move_leader(MoveLeaderRequest { target_id }).await;
            client.note(name, moved.refused(Code::FailedPrecondition));
        }
    })
    .await;
}

#[tokio::test]
async fn leadership_stays_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            let target_id = own(client).await;
            let moved = client.aside().move_leader(MoveLeaderRequest { target_id }).await.result();
            client.note("to itself", moved.as_ref().map_err(|status| (status.code(), status.message())));
            client.move_leader(MoveLeaderRequest { target_id: 1 }).await;
        })
        .await;
    })
    .await;
}
