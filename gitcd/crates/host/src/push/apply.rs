//! Moves references.

use std::path::Path;

use gitcd_core::error::chain;
use gitcd_repo::owner::Update;
use gitcd_repo::refs::{Change, RefError, Refs};

use super::super::Inner;
use super::super::access::Access;
use super::super::problem::blocking;
use super::By;
use super::commands::Push;
use super::create::Created;
use super::decide::FOR;
use super::report::Report;

/// Executes the commands that are not refused. An owner decides on its references; all others are moved by compare-and-swap.
pub(super) async fn apply(
    host: &Inner,
    repository: &Path,
    created: Option<Created>,
    by: &By,
    push: &Push,
    report: &mut Report,
) {
    let mut own = Vec::new();
    for (at, command) in push.commands.iter().enumerate() {
        if report.is_refused(at) {
            continue;
        }
        let update = Update {
            repository: repository.to_owned(),
            reference: command.reference.clone(),
            old: command.old,
            new: command.new,
            user: by.user.clone(),
            is_gitcd: by.access == Access::Own,
        };
        // A repository that is being created has no owner.
        let owner = host.owner.as_ref().filter(|_| created.is_none());
        match owner.and_then(|owner| owner.update(update)) {
            Some(_) if push.atomic && push.commands.len() > 1 => {
                report.refuse(at, "this reference is served here and cannot be part of an atomic push");
            }
            Some(decided) => match decided.await {
                Ok(remarks) => report.remark(&remarks),
                Err(refusal) => report.refuse(at, &refusal.to_string()),
            },
            None if command.reference.starts_with(FOR) => {
                report.refuse(at, "no gitcd serves this branch here: push to the branch itself");
            }
            None => {
                let Some(change) = change(command) else {
                    report.refuse(at, "there is no such reference");
                    continue;
                };
                own.push((at, change));
            }
        }
    }
    own.retain(|(at, _)| !report.is_refused(*at));
    if own.is_empty() {
        if let Some(created) = created {
            created.remove().await;
        }
        return;
    }
    let (folder, atomic) = (repository.to_owned(), push.atomic);
    let done = blocking("move references", move || {
        let refused = move_all(&folder, own, atomic);
        let published = match created {
            Some(created) if refused.any_done => created.publish(),
            _ => Ok(()),
        };
        (refused.reasons, published)
    });
    match done.await {
        Ok((reasons, published)) => {
            for (at, reason) in reasons {
                report.refuse(at, &reason);
            }
            if let Err(error) = published {
                tracing::warn!(%error, "cannot give a new repository its name");
                report.refuse_all("another push has created this repository meanwhile; push again");
            }
        }
        Err(_) => report.refuse_all("the host failed"),
    }
}

fn change(command: &super::commands::Command) -> Option<Change> {
    let (expected, new) = (command.old, command.new);
    (expected.is_some() || new.is_some()).then(|| Change { name: command.reference.clone(), expected, new })
}

struct Refusals {
    reasons: Vec<(usize, String)>,
    any_done: bool,
}

fn move_all(repository: &Path, changes: Vec<(usize, Change)>, atomic: bool) -> Refusals {
    let refs = match Refs::open(repository) {
        Ok(refs) => refs,
        Err(error) => {
            let reasons = changes.iter().map(|(at, _)| (*at, reason(&error))).collect();
            return Refusals { reasons, any_done: false };
        }
    };
    let batches: Vec<Vec<_>> =
        if atomic { vec![changes] } else { changes.into_iter().map(|change| vec![change]).collect() };
    let (mut reasons, mut any_done) = (Vec::new(), false);
    for batch in batches {
        let (places, batch): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        match refs.update_all(&batch) {
            Ok(()) => any_done = true,
            Err(refused) => reasons.push((places[refused.at], reason(&refused.source))),
        }
    }
    Refusals { reasons, any_done }
}

/// Returns the reason for the client.
fn reason(error: &RefError) -> String {
    match error {
        RefError::Moved { .. } => "the reference has moved: fetch first".to_owned(),
        RefError::Locked { .. } => "another process is changing this reference: try again".to_owned(),
        RefError::Conflict { existing, .. } => format!("cannot be created while {existing} exists"),
        RefError::Symbolic { .. } | RefError::Invalid { .. } => "it cannot be written".to_owned(),
        _ => {
            tracing::error!(error = chain(error), "cannot move a reference");
            "the host cannot write it".to_owned()
        }
    }
}
