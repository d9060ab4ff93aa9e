//! Meaning of the messages of Git and of remotes.
//!
//! Git's protocols and programs report causes only as text. This is the only place that recognizes causes by words; everything
//! else has types.

use std::path::Path;

use gitcd_repo::boundary::Boundary;

use super::status::Condition;
use super::wire::{Cause, TransportError};

/// The error for a client that pushes the lease of a branch that this gitcd serves. Clients recognize it by these words.
pub(super) const SERVED: &str = "a gitcd serves this branch: a lease needs a remote that no gitcd serves";

impl TransportError {
    /// Classifies a message of a remote or of `git`.
    pub(super) fn of(said: &str) -> Self {
        Self { condition: condition(said), cause: cause(said), said: clean(said) }
    }

    /// Explains why a remote refused a push from this repository: receive-pack accepts a shallow history only if the remote has what is
    /// before it.
    pub(super) fn for_push_from(self, git_dir: &Path) -> Self {
        let is_cut = || Boundary::read(git_dir).is_ok_and(|boundary| boundary.cut().is_some());
        if !self.said.contains("shallow update not allowed") || !is_cut() {
            return self;
        }
        let said = "gitcd retain removed older commits from this repository, and the remote does not have them either, so it cannot \
                    accept the newer ones: push the older commits to the remote from the archive, or clone the remote again from this \
                    repository";
        Self { said: said.to_owned(), ..self }
    }
}

/// Returns the cause that a message names.
fn cause(said: &str) -> Cause {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["access: own"]) {
        Cause::OwnAccess
    } else if has(&[SERVED]) {
        Cause::Served
    } else if has(&["SSL certificate problem", "certificate verification failed"]) {
        // Of OpenSSL and GnuTLS.
        Cause::UntrustedCertificate
    } else if has(&["Protocol \"http\"", "transport 'http' not allowed"]) {
        // Of libcurl, after a redirection, and of Git, after its own rewriting of the URL.
        Cause::PlainHttp
    } else if has(&["Host key verification failed"]) {
        Cause::UnknownHostKey
    } else if has(&["error: 401", "Authentication failed"]) {
        Cause::Unauthenticated
    } else if has(&["does not support --atomic"]) {
        Cause::NotAtomic
    } else {
        Cause::Other
    }
}

/// Returns the condition that a message of `git` means.
fn condition(said: &str) -> Condition {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "stale info",
        "fetch first",
        "non-fast-forward",
        "cannot lock ref",
        "has moved on",
        "failed to update ref",
        "incorrect old value",
        "reference already exists",
        "another process is changing this reference",
    ]) {
        Condition::Raced
    } else if has(&[
        "Authentication failed",
        "could not read Username",
        "could not read Password",
        "Permission denied",
        " 401",
        " 403",
        "access denied",
        "only who owns this repository",
        "Host key verification failed",
    ]) {
        Condition::Denied
    } else if has(&["No space left"]) {
        Condition::NoSpace
    } else if has(&["couldn't find remote ref"]) {
        Condition::NoBranch
    } else if has(&[
        "Could not resolve",
        "unable to access",
        "Could not read from remote repository",
        "Connection",
        "not found",
        "does not appear to be a git repository",
        "is this a git repository?",
    ]) {
        Condition::Unreachable
    } else if has(&[
        "fsck error",
        "bad object",
        "repository corruption",
        "index-pack failed",
        "did not send all necessary objects",
        "missing",
    ]) {
        Condition::Damaged
    } else {
        Condition::Failed
    }
}

/// Returns a message as one line, without the credentials in its URLs.
fn clean(said: &str) -> String {
    let words = said.trim_end_matches('\0').split_whitespace().map(|word| match (word.find("://"), word.find('@')) {
        (Some(scheme), Some(at)) if scheme < at && !word[scheme + 3..at].contains('/') => {
            format!("{}://{}", &word[..scheme], &word[at + 1..])
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use gitcd_repo::boundary::Cut;
    use gitcd_repo::graph::Graph;

    use super::*;

    #[test]
    fn the_refusal_of_a_lease_has_its_cause_and_no_other_refusal_has_it() {
        let said = format!("ng refs/gitcd/lease/main {SERVED}");
        assert_eq!(TransportError::of(&said).cause, Cause::Served);
        for other in ["ng refs/heads/main the branch has moved on: fetch and merge", "403 Forbidden", ""] {
            assert_eq!(TransportError::of(other).cause, Cause::Other, "{other}");
        }
    }

    #[test]
    fn messages_of_git_are_printed_without_credentials() {
        let said = "fatal: unable to access 'https://ann:secret@h/x.git/': 401\n";
        assert_eq!(clean(said), "fatal: unable to access 'https://h/x.git/': 401");
    }

    #[test]
    fn a_refused_push_of_a_cut_history_says_what_to_do_and_that_of_another_shallow_one_is_in_words_of_git() {
        let folder = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(folder.path()).unwrap();
        let refused = || {
            let said = " ! [remote rejected] main -> main (shallow update not allowed)";
            TransportError::of(said).for_push_from(folder.path()).said
        };
        let tree = repository.find_tree(repository.treebuilder(None).unwrap().write().unwrap()).unwrap();
        let author = git2::Signature::new("a", "a@b", &git2::Time::new(1, 0)).unwrap();
        let root = repository.commit(None, &author, &author, "root", &tree, &[]).unwrap();
        let parent = repository.find_commit(root).unwrap();
        let oldest = repository.commit(None, &author, &author, "oldest", &tree, &[&parent]).unwrap();
        std::fs::write(folder.path().join("shallow"), format!("{oldest}\n")).unwrap();
        assert!(refused().contains("shallow update not allowed"), "{}", refused());
        std::fs::remove_file(folder.path().join("shallow")).unwrap();
        let plan = Graph::lenient().plan_cut(&repository, &[oldest], &[oldest]).unwrap();
        let cut = Cut { reference: "refs/heads/main".into(), revision: 1, data: oldest, at: 0, archive: String::new() };
        plan.record(folder.path(), &cut).unwrap();
        plan.apply(folder.path()).unwrap();
        assert!(refused().contains("push the older commits to the remote from the archive"), "{}", refused());
    }
}
