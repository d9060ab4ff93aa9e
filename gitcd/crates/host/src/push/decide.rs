//! What can be said about a command from its words alone.

use std::collections::HashSet;
use std::path::Path;

use gitcd_repo::refs::Refs;
use gitcd_sync::OWN_ACCESS_HINT;

use super::super::access::Access;
use super::By;
use super::commands::Push;
use super::report::Report;

/// Asks for a merge into the branch that follows.
pub(super) const FOR: &str = "refs/for/";
/// gitcd's metadata, which says which revisions the data has.
const METADATA: &str = "refs/gitcd/";

/// Refuses commands for names that are none, that come twice, or that the caller has no right to.
pub(super) fn names(push: &Push, by: &By, repository: &Path, report: &mut Report) {
    let head = std::fs::read_to_string(repository.join("HEAD")).unwrap_or_default();
    let head = head.trim().strip_prefix("ref: ").unwrap_or_default();
    let refs = Refs::open(repository);
    let target = |name: &str| refs.as_ref().ok()?.symbolic(name).ok()?;
    let mut seen = HashSet::new();
    let owners_only = format!("only who owns this repository may push gitcd's metadata: that takes {OWN_ACCESS_HINT}");
    for (at, command) in push.commands.iter().enumerate() {
        let name = command.reference.as_str();
        let reason = if !name.starts_with("refs/") || !git2::Reference::is_valid_name(name) {
            Some("only references below refs/ can be pushed")
        } else if !seen.insert(name) {
            Some("it comes more than once in this push")
        } else if name.starts_with(METADATA) && by.access < Access::Own {
            Some(&*owners_only)
        } else if command.new.is_none() && name == head {
            Some("the branch that HEAD names cannot be deleted")
        } else if command.new.is_none() && name.starts_with(FOR) {
            Some("there is nothing to delete")
        } else if let Some(target) = target(name) {
            // Rights and owners go by the name of what is moved.
            report.refuse(at, &format!("it is only another name of {target}: push to that"));
            continue;
        } else {
            None
        };
        if let Some(reason) = reason {
            report.refuse(at, reason);
        }
    }
}
