//! Cluster: its one member cannot be removed.

use gitcd::proto::etcdserverpb::{
    MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MemberUpdateRequest,
};
use tonic::Code;

use super::states::in_every_state;
use crate::support::{Kind, Launch, same};

#[tokio::test]
async fn members_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            for linearizable in [true, false] {
                client.member_list(MemberListRequest { linearizable }).await.ok();
            }
            let member = client.aside().member_list(MemberListRequest::default()).await.ok().members.remove(0);
            client.note("peers", member.peer_ur_ls.len());
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn the_address_for_peers_is_the_one_that_is_given() {
    let given = "--initial-advertise-peer-urls=http://127.0.0.1:12380";
    let initial = "--initial-cluster=test=http://127.0.0.1:12380";
    let peer_urls = async |launch: Launch| {
        let server = launch.start().await;
        server.client().await.member_list(MemberListRequest::default()).await.ok().members.remove(0).peer_ur_ls
    };
    for launch in [Launch::new(Kind::Etcd).argument(given).argument(initial), Launch::new(Kind::Gitcd).argument(given)]
    {
        assert_eq!(peer_urls(launch).await, ["http://127.0.0.1:12380"]);
    }
    assert_eq!(peer_urls(Launch::new(Kind::Gitcd)).await, ["http://localhost:2380"]);
}

#[tokio::test]
async fn the_only_member_cannot_be_removed_or_promoted_and_others_are_not_known() {
    same(async |client| {
        let own = client.aside().member_list(MemberListRequest::default()).await.ok().members[0].id;
        for (name, id) in
            [("no id", 0), ("an unknown one", 1), ("own ID with a bit flipped", own ^ 1), ("own ID inverted", !own)]
        {
            client.note("case", name);
            let aside = client.aside();
            client.note("remove", aside.member_remove(MemberRemoveRequest { id }).await.refused(Code::NotFound));
            client.note("promote", aside.member_promote(MemberPromoteRequest { id }).await.refused(Code::NotFound));
            let update = MemberUpdateRequest { id, peer_ur_ls: vec!["http://127.0.0.1:1".into()] };
            client.note("update", aside.member_update(update).await.refused(Code::NotFound));
        }
        let aside = client.aside();
        let refused = aside.member_promote(MemberPromoteRequest { id: own }).await.refused(Code::FailedPrecondition);
        client.note("promote itself", refused);
    })
    .await;
}

/// Valid addresses are not compared: etcd refuses them for too few started members, but as unhealthy in its first seconds.
#[tokio::test]
async fn members_with_bad_addresses_are_not_added() {
    same(async |client| {
        for urls in [
            &[][..],
            &[""],
            &["x"],
            &["127.0.0.1:1"],
            &["ftp://127.0.0.1:1"],
            &["http://127.0.0.1"],
            &["http://127.0.0.1:1/x"],
        ] {
            let peer_ur_ls = urls.iter().map(|url| (*url).to_owned()).collect();
            client.member_add(MemberAddRequest { peer_ur_ls, is_learner: false }).await.refused(Code::InvalidArgument);
        }
    })
    .await;
}
