//! The commits before a cut.

use std::collections::BTreeSet;

use git2::Oid;
use gitcd_core::scope::{EVERYTHING, Scope};

/// Limit on recorded scopes.
const MAX_SCOPES: usize = 100;

/// The commits before a cut, and the keys that merges among them left out.
#[derive(Clone, Debug, Default)]
pub struct OlderCommits {
    /// The data commit of the cut and its ancestors, also those that stay.
    pub commits: BTreeSet<Oid>,
    /// The scopes of the merges that left keys out and whose parents are not read after the cut.
    pub scopes: Vec<Scope>,
}

/// Adds a scope to a list without duplicates. If the list is full, one scope without keys replaces it: walks then treat every key as
/// left out.
pub(crate) fn add_scope(scopes: &mut Vec<Scope>, scope: &Scope) {
    if scopes.contains(scope) {
        return;
    }
    if scopes.len() < MAX_SCOPES {
        scopes.push(scope.clone());
    } else {
        // An exclusion that matches every key.
        *scopes = vec![Scope::new(EVERYTHING, "^").expect("the expression is valid")];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_scopes_none_covers_a_key() {
        let mut scopes = Vec::new();
        let scope = |number: usize| Scope::new(&format!("^/{number}/"), "").unwrap();
        for number in (0..MAX_SCOPES).chain(0..MAX_SCOPES) {
            add_scope(&mut scopes, &scope(number));
        }
        assert_eq!(scopes.len(), MAX_SCOPES);
        add_scope(&mut scopes, &scope(MAX_SCOPES));
        assert!(scopes.len() == 1 && !scopes[0].covers(b"/7/a"));
        add_scope(&mut scopes, &scope(7));
        assert!(scopes.iter().any(|scope| !scope.covers(b"/7/a")));
    }
}
