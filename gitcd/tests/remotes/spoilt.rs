//! Responses of a host that are damaged on their way.

use gitcd::pull::status::Condition;

use crate::host::Host;
use crate::spoiler::{Spoil, Spoiler};
use crate::support::build::get;
use crate::support::{Repository, eventually};
use crate::world::{Following, ONE, OTHER, holds, remote};

#[tokio::test]
async fn spoilt_answers_bring_nothing_and_leave_nothing_behind() {
    let host = Host::open().await;
    let upstream = host.make();
    let spoiler = Spoiler::before(host.port()).await;
    let writer = Following::new(&host.url()).start().await;
    let follower = Following::new(&spoiler.url()).start().await;
    writer.put(ONE, "fine").await;
    follower.has(ONE, "fine").await;
    for (spoil, condition) in [
        (Spoil::Page, Condition::Unreachable),
        (Spoil::Noise, Condition::Unreachable),
        (Spoil::Cut, Condition::Unreachable),
        (Spoil::Ended, Condition::Unreachable),
        (Spoil::Flipped, Condition::Damaged),
        (Spoil::Empty, Condition::Damaged),
        (Spoil::Error, Condition::Unreachable),
    ] {
        let (before, now) = (follower.client.range(get(ONE)).await.ok().kvs, format!("{spoil:?}"));
        spoiler.set(spoil);
        writer.put(ONE, &now).await;
        holds(&upstream, ONE, &now).await;
        eventually(&format!("{condition:?} for {spoil:?}"), async || {
            let known = remote(&follower.server).await;
            (known.condition == condition && known.failures > 0).then_some(())
        })
        .await;
        follower.put(OTHER, &now).await;
        assert_eq!(follower.client.range(get(ONE)).await.ok().kvs, before, "{spoil:?} must not change any key");
        spoiler.set(Spoil::Nothing);
        follower.has(ONE, &now).await;
        writer.has(OTHER, &now).await;
        follower.is(Condition::Synced).await;
    }
    let own: Repository = follower.server.repository();
    own.fsck();
    upstream.fsck();
    // Objects of a rejected pack must not be kept.
    let left = std::fs::read_dir(own.path().join("objects")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.starts_with("tmp_")), "{left:?}");
}

/// After an HTML page as its first answer, a follower must not conclude for good that only `git` can reach the host.
#[tokio::test]
async fn a_host_that_was_not_itself_at_first_is_not_left_to_git() {
    let host = Host::open().await;
    let upstream = host.make();
    let spoiler = Spoiler::before(host.port()).await;
    spoiler.set(Spoil::Page);
    let follower = Following::new(&spoiler.url()).variable("PATH", "/nowhere").start().await;
    follower.put(ONE, "here").await;
    eventually("a failure", async || (remote(&follower.server).await.failures > 0).then_some(())).await;
    spoiler.set(Spoil::Nothing);
    // `git` is not in the PATH: gitcd must fetch and push by itself.
    holds(&upstream, ONE, "here").await;
    follower.is(Condition::Synced).await;
}
