//! The result of a search.

use maud::{Markup, html};

use super::{Rendered, page, text};
use crate::keys::Key;
use crate::read::search::Found;
use crate::rights::Granted;

/// Renders a search. Objects that the user may not read are left out: their names are what was searched.
pub(crate) fn search(words: &str, found: Option<&Found>, granted: &Granted) -> Rendered {
    let main = html! {
        h1 { "Search" }
        @match found {
            None => p { "Give a part of a kind, a namespace or a name, such as " code { "configmaps/shop" } "." },
            Some(found) => (result(found, granted)),
        }
    };
    page("Search", words, &main)
}

fn result(found: &Found, granted: &Granted) -> Markup {
    let is_allowed = |key: &Key| granted.allows(key.object.as_ref());
    let present: Vec<&Key> = found.present.iter().filter(|key| is_allowed(key)).collect();
    let deleted: Vec<_> = found.deleted.iter().filter(|(key, _)| is_allowed(key)).collect();
    html! {
        h2 { (text::count(present.len(), "object")) }
        @if found.is_cut { p { "There are more: give a longer text." } }
        ul { @for key in &present { li { a href=(key.link()) { (text::line(&key.text)) } } } }
        h2 { (text::count(deleted.len(), "deleted object")) }
        p.note { "In the last " (text::count(found.scanned, "commit")) "." }
        ul {
            @for (key, id) in &deleted {
                li { a href=(key.link()) { (text::line(&key.text)) } ", deleted in " (text::commit(id)) }
            }
        }
    }
}
