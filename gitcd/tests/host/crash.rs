//! Kills of the host at any moment.

use std::thread;
use std::time::{Duration, Instant};

use super::eventually;
use super::process::Host;

const ROUNDS: u32 = 16;

#[test]
fn whenever_the_host_is_killed_pushes_are_done_or_not_and_nothing_stays() {
    let mut host = Host::start(&["--create-on-push"]);
    let work = host.work("work");
    let served = host.repository("a.git");
    let mut known = served.references();
    // The first round measures the duration; the others are killed at evenly spread moments up to twice that time.
    let (mut whole, mut done) = (Duration::ZERO, 0);
    for round in 0_u32..ROUNDS {
        let noise = super::noise(200_000);
        std::fs::write(work.path().join("noise"), noise).unwrap();
        work.git(&["add", "noise"]);
        work.commit(&format!("file{round}"));
        let (url, first) = (host.url("a"), host.url(&format!("new{round}")));
        let names = ["a", "b"].map(|name| format!("main:refs/heads/{name}{round}"));
        let delete = format!(":refs/heads/a{}", round.saturating_sub(1));
        let mut push = vec!["push", "--quiet", "--atomic", &url, "main", &names[0], &names[1]];
        if known.contains(&delete[1..]) {
            push.push(&delete);
        }
        let start = Instant::now();
        let (pushed, made) = thread::scope(|scope| {
            let pushing = scope.spawn(|| work.run(&push).status.success());
            let making = scope.spawn(|| work.run(&["push", "--quiet", &first, "main"]).status.success());
            if round > 0 {
                thread::sleep(whole * round * 2 / ROUNDS);
                host.kill();
            }
            (pushing.join().unwrap(), making.join().unwrap())
        });
        if round == 0 {
            whole = start.elapsed();
            host.kill();
        }
        done += u32::from(pushed);
        host.restart();
        eventually("temporary files to be removed", || host.leftovers().is_empty().then_some(()));
        served.fsck();
        let found = served.references();
        if pushed {
            assert_eq!(served.id("main"), work.id("main"), "round {round}: a push reported as successful must survive");
            assert!(names.iter().all(|name| found.contains(name.trim_start_matches("main:"))), "{found}");
            assert!(!push.contains(&&*delete) || !found.contains(&format!("{} ", &delete[1..])), "{found}");
        }
        // So that the next round has as much to push.
        work.git(&["push", "--quiet", &host.url("a"), "main"]);
        known = found;
        let folder = host.root().join(format!("new{round}.git"));
        if made {
            assert_eq!(host.repository(&format!("new{round}.git")).id("main"), work.id("main"), "round {round}");
        }
        if folder.exists() {
            let repository = host.repository(&format!("new{round}.git"));
            assert_eq!(
                repository.references().lines().count(),
                1,
                "a new repository must appear together with its references"
            );
            repository.fsck();
        }
    }
    assert!((1..ROUNDS).contains(&done), "{done} of {ROUNDS} pushes finished before the kill");
    let work = host.clone("last");
    work.fsck();
    assert!(!host.log().contains("ERROR"));
}
