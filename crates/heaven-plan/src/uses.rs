//! Index of references between objects without ownership.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use trishanku_framework::Key;

/// Which objects use which others, within each namespace. A reconcile [notes](Self::note) the names that it uses; a watch
/// looks up [the users](Self::of) of a changed object.
///
/// In memory only: after a start, all objects are reconciled and note their names again.
#[derive(Debug, Default)]
pub struct ReferenceIndex {
    both: Mutex<Both>,
}

#[derive(Debug, Default)]
struct Both {
    used: HashMap<Key, BTreeSet<String>>,
    user: HashMap<Key, BTreeSet<String>>,
}

impl ReferenceIndex {
    /// Replaces the names that `user` uses in its namespace.
    pub fn note<'n>(&self, user: &Key, names: impl IntoIterator<Item = &'n str>) {
        let now: BTreeSet<String> = names.into_iter().map(ToOwned::to_owned).collect();
        let both = &mut *self.both.lock();
        if both.user.get(user) == Some(&now) {
            return;
        }
        for gone in both.user.get(user).into_iter().flatten().filter(|name| !now.contains(*name)) {
            let key = beside(user, gone);
            if let Some(users) = both.used.get_mut(&key) {
                users.remove(user.name());
                if users.is_empty() {
                    both.used.remove(&key);
                }
            }
        }
        for name in &now {
            both.used.entry(beside(user, name)).or_default().insert(user.name().to_owned());
        }
        if now.is_empty() {
            both.user.remove(user);
        } else {
            both.user.insert(user.clone(), now);
        }
    }

    /// Returns the users of an object.
    pub fn of(&self, object: &Key) -> Vec<Key> {
        let both = self.both.lock();
        both.used.get(object).into_iter().flatten().map(|name| beside(object, name)).collect()
    }
}

fn beside(key: &Key, name: &str) -> Key {
    Key::namespaced(key.namespace().unwrap_or_default(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_something_is_known_until_it_does_not_any_more() {
        let (uses, key) = (ReferenceIndex::default(), |name: &str| Key::namespaced("n", name));
        uses.note(&key("a"), ["x", "y"]);
        uses.note(&key("b"), ["y"]);
        assert_eq!(uses.of(&key("y")), [key("a"), key("b")]);
        uses.note(&key("a"), ["x"]);
        assert_eq!((uses.of(&key("x")), uses.of(&key("y"))), (vec![key("a")], vec![key("b")]));
        uses.note(&key("b"), []);
        assert!(uses.of(&key("y")).is_empty() && uses.of(&Key::namespaced("m", "x")).is_empty());
        uses.note(&key("a"), []);
        let both = uses.both.lock();
        assert!(both.user.is_empty() && both.used.is_empty(), "unused entries remain: {both:?}");
    }
}
