//! Fields that differ, and conflicts.

use gitcd_history::fields::Field;
use gitcd_merge::Conflict;
use maud::{Markup, html};

use super::text;

/// Fields of one object; the rest is on the page with whole values.
const SHOWN: usize = 200;
/// Fields on a page with whole values.
const WHOLE: usize = 20_000;

/// How values are rendered.
#[derive(Clone, Copy)]
pub(super) struct Size<'l> {
    /// Whether whole values are requested.
    pub(super) is_whole: bool,
    /// The link to the page with whole values.
    pub(super) link: &'l str,
}

/// Renders fields with their old and new values.
pub(super) fn fields(fields: &[Field], size: Size<'_>) -> Markup {
    let shown = if size.is_whole { WHOLE } else { SHOWN };
    let rest = fields.len().saturating_sub(shown);
    let value = |value: &Option<String>, tag: bool| {
        html! {
            @if let Some(value) = value {
                @let value = text::value(value, size.is_whole, size.link);
                @if tag { " " ins { span.sign { "added: " } (value) } } @else { " " del { span.sign { "removed: " } (value) } }
            }
        }
    };
    html! {
        @if !fields.is_empty() {
            ul.fields {
                @for Field { path, from, to } in fields.iter().take(shown) {
                    li {
                        code.path { @if path.is_empty() { "(value)" } @else { (text::line(path)) } }
                        (value(from, false)) (value(to, true))
                    }
                }
            }
        }
        @if rest > 0 { p { a href=(size.link) { (text::count(rest, "more field")) } } }
    }
}

/// Renders a conflict with both values.
pub(super) fn conflict(conflict: &Conflict, size: Size<'_>) -> Markup {
    let value = |value: &Option<String>| {
        html! {
            @match value {
                Some(value) => code { (text::value(value, size.is_whole, size.link)) },
                None => "nothing",
            }
        }
    };
    html! {
        strong.mark { "Conflict" } " "
        @if !conflict.field.is_empty() { code.path { (text::line(&conflict.field)) } ": " }
        "kept " (value(&conflict.kept)) ", lost " (value(&conflict.lost))
    }
}
