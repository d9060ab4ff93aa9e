//! Checks of commands that need no objects.

use std::collections::HashSet;
use std::path::Path;

use gitcd_repo::refs::Refs;
use gitcd_sync::OWN_ACCESS_HINT;

use super::super::access::Access;
use super::commands::Push;
use super::reference;

/// Prefix that asks for a merge into the branch that follows it.
pub(super) const FOR: &str = "refs/for/";

/// Returns the commands whose reference name is invalid, duplicate, protected or an alias, with the reasons. Blocks: reads each
/// reference.
pub(super) fn names(push: &Push, access: Access, repository: &Path) -> Vec<(usize, String)> {
    let head = std::fs::read_to_string(repository.join("HEAD")).unwrap_or_default();
    let head = head.trim().strip_prefix("ref: ").unwrap_or_default();
    let refs = Refs::open(repository);
    let target = |name: &str| refs.as_ref().ok()?.symbolic(name).ok()?;
    let (mut seen, mut refused) = (HashSet::new(), Vec::new());
    for (at, command) in push.commands.iter().enumerate() {
        let name = command.reference.as_str();
        // Other names can be deleted: a program, or an earlier version, may have created them.
        let is_deletion = command.new.is_none() && git2::Reference::is_valid_name(name);
        let reason = if !name.starts_with("refs/") {
            Some("only references below refs/ can be pushed")
        } else if !reference::is_valid(name) && !is_deletion {
            Some("it is not refs/<kind>/<name> in the form that `git check-ref-format` allows")
        } else if !seen.insert(name) {
            Some("it appears more than once in this push")
        } else if let Some(owned) = reference::owned(name).filter(|_| access < Access::Own) {
            refused.push((at, format!("only who owns this repository may push {owned}: that takes {OWN_ACCESS_HINT}")));
            continue;
        } else if command.new.is_none() && name == head {
            Some("the branch that HEAD names cannot be deleted")
        } else if command.new.is_none() && name.starts_with(FOR) {
            Some("there is nothing to delete")
        } else if let Some(target) = target(name) {
            // Rights and owners are looked up by name, so an alias would bypass them.
            refused.push((at, format!("it is a symbolic reference to {target}: push to that")));
            continue;
        } else {
            None
        };
        refused.extend(reason.map(|reason| (at, reason.to_owned())));
    }
    refused
}
