//! A merge with the usual rules, for tests.

use git2::{Oid, Repository};
use gitcd_core::keyspace::KeySpace;
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_repo::graph::Graph;

use super::{Plan, Provenance, Rules, plan};

/// Plans the merge of `theirs` into `ours`, of all keys; `None` if ours contains it.
pub(super) fn merged(repository: &Repository, graph: &mut Graph, ours: Oid, theirs: Oid) -> Option<Plan> {
    let keys = KeySpace::new("/registry", [""; 0]);
    let (scope, secret_kinds) = (&Scope::default(), &SecretKinds::default());
    let rules = Rules {
        keys: &keys,
        policy: Policy::Later,
        scope,
        fast_forward: true,
        secret_kinds,
        verdicts: None,
        provenance: Provenance::ByMessage,
    };
    plan(repository, graph, &rules, ours, theirs).expect("the repository is sound")
}
