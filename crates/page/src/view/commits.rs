//! The list of commits.

use maud::{Markup, html};

use super::lanes::{Drawing, Lanes};
use super::{Rendered, not_shown, page, text};
use crate::query::Filter;
use crate::read::commits::{Listing, Merged, Request, Row};
use crate::rights::Granted;

/// Objects that a row names to a user with limited rights.
const NAMED: usize = 3;

/// Renders a page of commits.
pub(crate) fn commits(request: &Request, listing: &Listing, granted: &Granted) -> Rendered {
    let Listing { rows, last, head, reference, revision } = listing;
    let mut lanes = Lanes::default();
    let end = if last.is_none() { rows.len() } else { usize::MAX };
    let main = html! {
        h1 { "Commits of " (text::line(reference.strip_prefix("refs/heads/").unwrap_or(reference))) }
        (filter(&request.filter))
        section #commits aria-label="Commits" data-head=(head) data-live[request.before.is_none()] {
            p.note { "Revision " (revision) @if request.before.is_some() { ", older commits" } }
            @if rows.is_empty() { p { "No commits here match." } }
            ol.commits {
                @for (at, row) in rows.iter().enumerate() { (commit(row, at + 1 == end, granted, &mut lanes)) }
            }
            nav aria-label="Pages" {
                @if request.before.is_some() { a href={ "/?" (request.filter.link(&[])) } { "Newest commits" } " " }
                @if let Some(last) = last {
                    a rel="next" href={ "/?" (request.filter.link(&[("before", last)])) } {
                        @if request.filter.is_any() { "Search older commits" } @else { "Older commits" }
                    }
                }
            }
        }
    };
    page("Commits", "", &main)
}

fn filter(filter: &Filter) -> Markup {
    let field = |name: &str, label: &str, value: &Option<String>| {
        html! {
            span.field {
                label for=(name) { (label) }
                input id=(name) name=(name) value=(value.as_deref().unwrap_or_default()) autocomplete="off" spellcheck="false";
            }
        }
    };
    html! {
        details.filter open[filter.is_any()] {
            summary { "Filter" }
            form action="/" method="get" {
                (field("namespace", "Namespace", &filter.namespace))
                (field("kind", "Kind", &filter.kind))
                (field("name", "Name", &filter.name))
                (field("user", "User", &filter.user))
                button { "Filter" }
                @if filter.is_any() { " " a href="/" { "Show all" } }
            }
        }
    }
}

fn commit(row: &Row, is_first: bool, granted: &Granted, lanes: &mut Lanes) -> Markup {
    let lane = row.merged.first().map(|merged| lanes.of(&merged.author));
    let is_all = is_allowed(row, granted);
    let id = row.commit.oid.to_string();
    let drawing =
        Drawing { is_first: is_first && row.merged.is_empty(), merged: lane, is_merged: false, continues: false };
    let revisions = row.revisions.map(|own| {
        if own.first == own.last {
            format!("revision {}", own.last)
        } else {
            format!("revisions {} to {}", own.first, own.last)
        }
    });
    html! {
        li {
            div.row {
                (drawing.render())
                div {
                    a.subject href={ "/commit/" (id) } {
                        @if is_all { (text::line(row.commit.subject())) } @else { (allowed(row, granted)) }
                    }
                    @if row.commit.parents.len() > 1 { " " strong.mark { "merge" } }
                    @if row.conflicts > 0 { " " strong.mark.warn { (text::count(row.conflicts, "conflict")) } }
                    p.meta {
                        (text::time(row.commit.time)) " by "
                        @if is_all { (text::line(&row.by)) } @else { (not_shown(row.keys.iter().flatten(), granted)) }
                        @if let Some(revisions) = revisions { ", " (revisions) }
                        " " code { (id[..10]) }
                    }
                    @if is_all && !row.is_partial || granted.is_everything() { (matches(row)) }
                }
            }
            @if let Some(lane) = lane { (merged(row, lane, is_first, granted)) }
        }
    }
}

/// Links the objects that a filter has found.
fn matches(row: &Row) -> Markup {
    let keys = row.keys.iter().flatten().take(NAMED);
    html! {
        @if row.keys.is_some() {
            p.meta { @for key in keys { a href=(key.link()) { (text::line(&key.text)) } " " } }
        }
    }
}

fn merged(row: &Row, lane: usize, is_first: bool, granted: &Granted) -> Markup {
    let count = row.merged.len();
    let item = |at: usize, Merged { id, subject, author, time }: &Merged| {
        let is_last = at + 1 == count;
        let drawing = Drawing {
            is_first: is_first && is_last,
            merged: Some(lane),
            is_merged: true,
            continues: !is_last || row.has_more_merged,
        };
        html! {
            li.row {
                (drawing.render())
                div {
                    a.subject href={ "/commit/" (id) } {
                        @if granted.is_everything() { (text::line(subject)) } @else { "a commit of a merged branch" }
                    }
                    p.meta {
                        (text::time(*time)) " "
                        @if granted.is_everything() { "by " (text::line(author)) " " }
                        code { (id[..10]) }
                        @if is_last && row.has_more_merged { ", and older commits" }
                    }
                }
            }
        }
    };
    html! {
        ul.merged aria-label="Merged commits" {
            @for (at, one) in row.merged.iter().enumerate() { (item(at, one)) }
        }
    }
}

/// Returns whether a row may be shown as it is: its subject names the changed objects.
fn is_allowed(row: &Row, granted: &Granted) -> bool {
    let keys = || row.keys.iter().flatten();
    let is_known = row.keys.as_ref().is_some_and(|keys| !keys.is_empty());
    // A merge names no object, and a commit without changes of the data may.
    granted.is_everything() || is_known && !row.is_partial && keys().all(|key| granted.allows(key.object.as_ref()))
}

/// Names the objects of a commit that may be shown.
fn allowed(row: &Row, granted: &Granted) -> Markup {
    let keys: Vec<_> = row.keys.iter().flatten().filter(|key| granted.allows(key.object.as_ref())).collect();
    html! {
        @if keys.is_empty() { (not_shown(row.keys.iter().flatten(), granted)) } @else {
            @for (at, key) in keys.iter().take(NAMED).enumerate() {
                @if at > 0 { ", " }
                (text::line(&key.text))
            }
            ", others"
        }
    }
}
