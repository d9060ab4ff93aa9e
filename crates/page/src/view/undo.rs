//! The preview of an undo, and its outcome.

use maud::{Markup, html};

use super::difference::{self, Size};
use super::{Rendered, page, text};
use crate::keys::Key;
use crate::undo::{Preview, PreviewStep, UndoRequest, Undone, UndoneStep};

/// Objects that are listed of those that do not change.
const UNCHANGED: usize = 20;

/// What the form of a preview sends.
pub(crate) struct Form {
    pub(crate) request: UndoRequest,
    /// Proves that the form is of this server.
    pub(crate) token: String,
}

/// Returns the link to the preview of an undo of a commit, or of its change of one object.
pub(super) fn link(commit: &str, key: Option<&Key>) -> Option<String> {
    let path = format!("/commit/{commit}/undo");
    let Some(key) = key else { return Some(path) };
    let name = std::str::from_utf8(key.whole.strip_prefix(crate::keys::PREFIX)?).ok()?;
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("object", name).finish();
    Some(format!("{path}?{query}"))
}

/// Renders the preview of an undo. `has_changed`: the plan differs from the one that the user has confirmed.
pub(crate) fn preview(form: &Form, preview: &Preview, has_changed: bool) -> Rendered {
    let Form { request: UndoRequest { commit, key }, token } = form;
    let own = format!("/commit/{commit}/undo");
    let size = Size { is_whole: true, link: &own };
    let (changes, others): (Vec<_>, Vec<_>) = preview.steps.iter().partition(|step| step.is_request());
    let main = html! {
        h1 { "Undo " (text::commit(commit)) "?" }
        @if has_changed {
            p role="alert" { strong.mark.warn { "Nothing was changed" } " The objects have changed since the preview. This is the preview now." }
        }
        @for warning in &preview.warnings { p { strong.mark.warn { "warning" } " " (text::line(warning)) } }
        p { (preview.summary) "." }
        @if !changes.is_empty() { h2 { "Changes" } }
        @for step in &changes { (planned(step, size)) }
        @if !others.is_empty() {
            h2 { "Not changed" }
            ul { @for step in others.iter().take(UNCHANGED) { li { (unchanged(step)) } } }
            @if others.len() > UNCHANGED { p { (text::count(others.len() - UNCHANGED, "more object")) } }
        }
        (recreation(preview.recreate.as_deref()))
        @if preview.changes == 0 { p { strong { "There is nothing to undo." } } } @else {
            form.undo action=(own) method="post" {
                input type="hidden" name="token" value=(token);
                input type="hidden" name="plan" value=(preview.plan);
                @if let Some(key) = key { input type="hidden" name="object" value=(key); }
                button { "Undo: change " (text::count(preview.changes, "object")) }
                " " a href={ "/commit/" (commit) } { "Cancel" }
            }
            p.note { "Requests to kube-apiserver make the changes, so they become a commit, which can be undone as well." }
        }
    };
    page("Undo", "", &main)
}

fn planned(step: &PreviewStep, size: Size<'_>) -> Markup {
    html! {
        article {
            h3 { span.what { (step.action) } " " (text::line(&step.object)) }
            @if let Some(problem) = &step.problem {
                p { strong.mark.warn { @if step.action == "blocked" { "impossible" } @else { "would be rejected" } } " " (text::line(problem)) }
            }
            (difference::fields(&step.fields, size))
            (remarks(&step.stays, &step.notes))
        }
    }
}

fn unchanged(step: &PreviewStep) -> Markup {
    html! {
        (text::line(&step.object))
        @if let Some(reason) = &step.problem { ": " (text::line(reason)) }
        (remarks(&step.stays, &step.notes))
    }
}

fn remarks(stays: &[String], notes: &[String]) -> Markup {
    html! {
        @if !stays.is_empty() || !notes.is_empty() {
            ul.fields {
                @for path in stays { li { "stays, edited later: " code.path { (text::line(path)) } } }
                @for note in notes { li { (text::line(note)) } }
            }
        }
    }
}

/// Renders what an undo did.
pub(crate) fn undone(request: &UndoRequest, undone: &Undone) -> Rendered {
    let failed = undone.steps.iter().filter(|step| step.outcome.is_err()).count();
    let changed = undone.steps.iter().filter(|step| step.is_changed).count();
    let title = match (changed, failed) {
        (0, _) => "Nothing was undone",
        (_, 0) => "Undone",
        _ => "Partly undone",
    };
    let main = html! {
        h1 { (title) }
        p role="status" {
            (text::count(changed, "object")) " of commit " (text::commit(&request.commit)) " changed"
            @if failed > 0 { ", " strong.mark.warn { (failed) " failed" } ". To try these again, undo the commit again." } @else { "." }
        }
        ul { @for step in &undone.steps { li { (outcome(step)) } } }
        (recreation(undone.recreate.as_deref()))
        @if changed > 0 { (commits(undone)) }
        @if let Some(hint) = &undone.hint { p { "To undo this in a terminal: " code.long { (text::line(hint)) } } }
    };
    page(title, "", &main)
}

/// Renders how to undo what the page cannot: it does not delete objects in order to create them again.
fn recreation(command: Option<&str>) -> Markup {
    html! {
        @if let Some(command) = command {
            p {
                "Immutable fields differ. To delete these objects and create them again, run in a terminal: "
                code.long { (text::line(command)) }
            }
        }
    }
}

fn commits(undone: &Undone) -> Markup {
    html! {
        h2 { "Commits" }
        @if undone.commits.is_empty() { p { "gitcd has not committed this yet: it appears in the list of commits." } }
        ul {
            @for id in &undone.commits {
                li {
                    (text::commit(id))
                    @if !undone.has_others { " " a.action href={ "/commit/" (id) "/undo" } { "Preview its undo" } }
                }
            }
        }
        @if undone.has_others && !undone.commits.is_empty() {
            p { "They have changes of other objects, too: to undo this undo only, use the command, or the pages of the objects." }
        }
    }
}

fn outcome(UndoneStep { object, outcome, notes, .. }: &UndoneStep) -> Markup {
    html! {
        @match outcome {
            Ok(word) => { span.what { (word) } " " (text::line(object)) },
            Err(reason) => { strong.mark.warn { "failed" } " " (text::line(object)) ": " (text::line(reason)) },
        }
        (remarks(&[], notes))
    }
}
