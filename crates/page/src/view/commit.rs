//! A commit.

use maud::{Markup, html};

use super::difference::{self, Size};
use super::{Rendered, hidden, not_shown, page, text};
use crate::read::commit::{ChangedKey, Commit};
use crate::rights::Granted;

/// Renders a commit. `command` is the command line that reverts a commit, up to its ID.
pub(crate) fn commit(commit: &Commit, granted: &Granted, is_whole: bool, command: &str, can_undo: bool) -> Rendered {
    let info = &commit.step.commit;
    let id = info.oid.to_string();
    let is_all = commit.is_complete()
        && commit.objects_known()
        && commit.objects().iter().all(|object| granted.allows(Some(object)));
    let is_shown = granted.is_everything() || is_all;
    let link = format!("/commit/{id}?whole=1&skip={}", commit.skipped);
    let size = Size { is_whole, link: &link };
    let (subject, body) = commit.message.split_once('\n').unwrap_or((&commit.message, ""));
    let main = html! {
        h1 { "Commit " code { (id[..10]) } }
        @if is_shown {
            p.subject { (text::line(subject)) }
            @if !body.trim().is_empty() { pre { (text::value(body.trim(), is_whole, &link)) } }
        } @else { p { "The message and the users are " strong { (not_shown(commit.all_keys(), granted)) } ": they name objects that you may not read." } }
        dl.facts {
            dt { "Time" } dd { (text::time(info.time)) }
            @if is_shown { dt { "By" } dd { (text::line(&commit.by)) } }
            @if let Some(own) = commit.step.revisions { dt { "Revisions" } dd { (own.first) @if own.first != own.last { " to " (own.last) } } }
            dt { "ID" } dd { code.long { (id) } }
            dt { "Parents" }
            dd {
                @if info.parents.is_empty() { "none" }
                @for parent in &info.parents { (text::commit(&parent.to_string())) " " }
            }
            @if !commit.is_oldest {
                dt { "Undo" }
                dd {
                    @if can_undo && commit.count > 0 { a.action href={ "/commit/" (id) "/undo" } { "Preview the undo" } ", or " }
                    code.long { (command) " " (id[..10]) }
                }
            }
        }
        @if !commit.conflicts.is_empty() { (conflicts(commit, granted, size)) }
        @if commit.is_oldest {
            p { "The history here begins with this commit, so what it changed is not known." }
        } @else {
            h2 { (text::count(commit.count, "changed object")) }
            @if commit.count == 0 { p { "This commit changes no object." } }
        }
        @for changed in &commit.keys {
            @if granted.allows(changed.key.object.as_ref()) { (change(changed, size)) }
        }
        (hidden(commit.keys.iter().map(|changed| &changed.key), granted, "object"))
        @let end = commit.skipped + commit.keys.len();
        nav aria-label="Pages" {
            @if commit.skipped > 0 { a href={ "/commit/" (id) } { "First objects" } " " }
            @if end < commit.count { a rel="next" href={ "/commit/" (id) "?skip=" (end) } { "More objects" } }
        }
    };
    page(&format!("Commit {}", &id[..10]), "", &main)
}

fn change(changed: &ChangedKey, size: Size<'_>) -> Markup {
    html! {
        article {
            h3 { span.what { (changed.what) } " " a href=(changed.key.link()) { (text::line(&changed.key.text)) } }
            (difference::fields(&changed.fields, size))
        }
    }
}

fn conflicts(commit: &Commit, granted: &Granted, size: Size<'_>) -> Markup {
    let shown = commit.conflicts.iter().filter(|(key, _)| granted.allows(key.object.as_ref()));
    html! {
        h2 { "Conflicts" }
        ul.fields {
            @for (key, conflict) in shown {
                li { a href=(key.link()) { (text::line(&key.text)) } " " (difference::conflict(conflict, size)) }
            }
        }
        (hidden(commit.conflicts.iter().map(|(key, _)| key), granted, "conflict"))
        @if commit.has_more_conflicts { p { "There are more: `git show` prints the whole message." } }
    }
}

impl Commit {
    /// Returns whether all of its keys are objects that have rights.
    fn objects_known(&self) -> bool {
        self.count > 0 && self.all_keys().all(|key| key.object.is_some())
    }
}
