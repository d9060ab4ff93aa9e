//! An object, its fields and its versions.

use gitcd_history::blame::{Blame, Line, Origin, on_one_line};
use gitcd_history::versions::ChangeKind;
use gitcd_merge::secrecy::HIDDEN;
use maud::{Markup, html};

use super::difference::{self, Size};
use super::{Rendered, page, text};
use crate::read::object::{Object, ObjectVersion};

/// Lines of an object; the rest is on the page with whole values.
const LINES: usize = 2000;

/// Renders an object.
pub(crate) fn object(object: &Object, is_whole: bool, can_undo: bool) -> Rendered {
    let own = object.key.link();
    let with = |parameters: &str| format!("{own}{}{parameters}", if own.contains('?') { '&' } else { '?' });
    let whole = with(&format!("whole=1&skip={}", object.skipped));
    let size = Size { is_whole, link: &whole };
    let end = object.skipped + object.versions.len();
    let main = html! {
        h1 { (text::line(&object.key.text)) }
        div #object data-head=(object.head) data-live[object.skipped == 0 && !is_whole] {
            @if object.is_deleted { p { strong.mark.warn { "deleted" } " The fields are those before the deletion." } }
            @if let Some(blame) = &object.blame { (fields(blame, size)) }
            h2 { "Versions" }
            ol.versions {
                @for version in &object.versions {
                    @let is_change = version.what != ChangeKind::Boundary.word();
                    @let undo = if can_undo && is_change { super::undo::link(&version.commit.oid.to_string(), Some(&object.key)) } else { None };
                    (entry(version, size, undo.as_deref()))
                }
            }
            nav aria-label="Pages" {
                @if object.skipped > 0 { a href=(own) { "Newest versions" } " " }
                @if object.has_more { a rel="next" href=(with(&format!("skip={end}"))) { "Older versions" } }
            }
        }
    };
    page(&text::block(&object.key.text), "", &main)
}

fn entry(version: &ObjectVersion, size: Size<'_>, undo: Option<&str>) -> Markup {
    html! {
        li {
            h3 {
                span.what { (version.what) } " "
                (text::time(version.commit.time)) " "
                @if !version.by.is_empty() { "by " (text::line(&version.by)) " " }
                (text::commit(&version.commit.oid.to_string()))
                @if let Some(undo) = undo { " " a.action href=(undo) { "Preview its undo" } }
            }
            @if let Some(revision) = version.revision { p.meta { "Revision " (revision) } }
            @for conflict in &version.conflicts { p { (difference::conflict(conflict, size)) } }
            (difference::fields(&version.fields, size))
        }
    }
}

fn fields(blame: &Blame, size: Size<'_>) -> Markup {
    let shown = if size.is_whole { usize::MAX } else { LINES };
    let rest = blame.lines.len().saturating_sub(shown);
    let mut last = None;
    html! {
        h2 { "Fields, and who set them" }
        // The roles, since the style of phones shows rows as blocks, which are no rows to screen readers without them.
        table.blame role="table" {
            thead role="rowgroup" {
                tr role="row" { th scope="col" role="columnheader" { "Field" } th scope="col" role="columnheader" { "Set by" } }
            }
            tbody role="rowgroup" {
                @for line in blame.lines.iter().take(shown) {
                    tr role="row" {
                        td role="cell" { code { (source(blame, line, size)) } }
                        td role="cell" {
                            @if let Some(number) = line.field {
                                @let origin = blame.fields[number].origin;
                                (writer(&blame.origins[origin], last.replace(origin) == Some(origin)))
                            }
                        }
                    }
                }
            }
        }
        @if rest > 0 { p { a href=(size.link) { (text::count(rest, "more line")) } } }
    }
}

fn source(blame: &Blame, line: &Line, size: Size<'_>) -> Markup {
    let value = line.field.map(|number| match &blame.fields[number].value {
        Some(value) => on_one_line(value),
        None => HIDDEN.to_owned(),
    });
    html! {
        (text::line(&line.label))
        @if let Some(value) = value {
            @if !line.label.is_empty() { " " }
            (text::value(&value, size.is_whole, size.link))
        }
    }
}

/// Renders who set a field. Lines after one with the same commit are marked, so that the style can mute them.
fn writer(origin: &Origin, is_same: bool) -> Markup {
    let id = origin.commit.oid.to_string();
    let text = origin.who.text(crate::read::DEFAULT_COMMITTER);
    html! {
        span.writer.same[is_same] {
            @if origin.is_boundary { "at or before " }
            (text::commit(&id)) " " (text::line(&text)) ", " (text::time(origin.commit.time))
        }
    }
}
