//! Versions of keys over many flushes, also of keys that exist only within some of them.

use git2::Oid;
use gitcd_history::HistoryError;
use gitcd_history::versions::ChangeKind;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::world::World;

const KEYS: [&str; 4] =
    ["/registry/configmaps/n/a", "/registry/configmaps/n/ab", "/registry/configmaps/m/a", "/registry/secrets/n/a"];

/// A version of a key: kind, revision if the metadata or the message has it, commit.
type Expected = (ChangeKind, i64, Oid);

/// Writes 100 flushes of random commits. Returns all versions of each key, oldest first.
fn written(world: &mut World, rng: &mut StdRng) -> [Vec<Expected>; 4] {
    let mut versions: [Vec<Expected>; 4] = Default::default();
    for flush in 0..100 {
        for number in 0..rng.random_range(1..8) {
            // The last key exists within single flushes only.
            let at = rng.random_range(0..3);
            let is_there = world.value(0, KEYS[at]).is_some();
            let value = (!is_there || rng.random_bool(0.6)).then(|| format!("{{\"x\":\"{flush} {number}\"}}"));
            let what = match (is_there, &value) {
                (false, _) => ChangeKind::Create,
                (true, Some(_)) => ChangeKind::Update,
                (true, None) => ChangeKind::Delete,
            };
            let commit = world.put(0, &[(KEYS[at], value.as_deref().map(str::as_bytes))]);
            versions[at].push((what, world.revision(0), commit));
        }
        if flush % 9 == 0 {
            for (what, value) in [(ChangeKind::Create, Some(&b"{\"x\":1}"[..])), (ChangeKind::Delete, None)] {
                let commit = world.put(0, &[(KEYS[3], value)]);
                versions[3].push((what, world.revision(0), commit));
            }
        }
        world.flush(0);
    }
    versions
}

#[test]
fn a_log_over_many_flushes_has_each_version_once_and_in_order() -> Result<(), HistoryError> {
    for seed in 0..4 {
        let mut world = World::new(1);
        let mut rng = StdRng::seed_from_u64(seed);
        let versions = written(&mut world, &mut rng);
        let history = world.history(0);
        for (key, expected) in KEYS.iter().zip(&versions) {
            let newest_first: Vec<_> = expected.iter().rev().copied().collect();
            for limit in [1, 7, expected.len(), usize::MAX] {
                let found = history.versions(key.as_bytes(), limit, None)?;
                let found: Vec<_> =
                    found.iter().map(|it| (it.what, it.revision.unwrap_or_default(), it.commit.oid)).collect();
                let expected = &newest_first[..limit.min(newest_first.len())];
                assert_eq!(found, expected, "seed {seed}, {key}, at most {limit}");
            }
        }
        let none = history.versions(b"/registry/configmaps/n/none", usize::MAX, None)?;
        assert!(none.is_empty(), "{none:?}");
    }
    Ok(())
}
