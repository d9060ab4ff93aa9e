//! The result of a search.

use maud::{Markup, html};

use super::{Rendered, page, text};
use crate::keys::Key;
use crate::read::search::Found;
use crate::rights::Granted;

/// Objects of a page.
const SHOWN: usize = 500;

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
    let more = |count: usize| {
        html! { @if count > SHOWN { p { "There are more than " (SHOWN) ": give a longer text." } } }
    };
    html! {
        @if !granted.is_everything() {
            // Always the same text: it must not depend on objects that are left out.
            p.note { "Objects that you may not get are left out. If there are many, rights for single objects are not checked for all." }
        }
        h2 { (text::count(present.len().min(SHOWN), "object")) }
        (more(present.len()))
        ul { @for key in present.iter().take(SHOWN) { li { a href=(key.link()) { (text::line(&key.text)) } } } }
        h2 { (text::count(deleted.len().min(SHOWN), "deleted object")) }
        (more(deleted.len()))
        p.note { "In the last " (text::count(found.scanned, "commit")) "." }
        ul {
            @for (key, id) in deleted.iter().take(SHOWN) {
                li { a href=(key.link()) { (text::line(&key.text)) } ", deleted in " (text::commit(id)) }
            }
        }
    }
}
