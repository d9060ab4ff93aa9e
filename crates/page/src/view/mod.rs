//! HTML of the pages.
//!
//! Names and values come from others: `text` makes them inert on one line, and maud escapes them. No page has inline script or
//! style.

pub(crate) mod assets;
mod commit;
mod commits;
mod difference;
mod health;
mod lanes;
mod object;
mod search;
mod text;
mod undo;

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

pub(crate) use self::commit::commit;
pub(crate) use self::commits::commits;
pub(crate) use self::health::health;
pub(crate) use self::object::object;
pub(crate) use self::search::search;
pub(crate) use self::undo::{Form, preview, undone};
use crate::keys::Key;
use crate::problem::Problem;
use crate::rights::{Granted, Right};

/// A page of HTML.
pub(crate) type Rendered = Html<String>;

/// What stands for something that the user may not read.
const NOT_ALLOWED: &str = "not allowed";
/// What stands for something that is not shown because the page has too many objects to ask for the rights of each.
const NOT_CHECKED: &str = "not checked";

/// Returns what stands for objects that are not shown.
fn not_shown<'k>(keys: impl IntoIterator<Item = &'k Key>, granted: &Granted) -> &'static str {
    let is_unchecked = |key: &Key| granted.right(key.object.as_ref()) == Right::Unchecked;
    if keys.into_iter().any(is_unchecked) { NOT_CHECKED } else { NOT_ALLOWED }
}

/// Renders how many of some objects are not shown, and why.
fn hidden<'k>(keys: impl IntoIterator<Item = &'k Key>, granted: &Granted, noun: &str) -> Markup {
    let rights = keys.into_iter().map(|key| granted.right(key.object.as_ref()));
    let (unchecked, denied): (Vec<_>, Vec<_>) =
        rights.filter(|right| *right != Right::Allowed).partition(|right| *right == Right::Unchecked);
    html! {
        @if !denied.is_empty() { p { (text::count(denied.len(), noun)) ": " strong { (NOT_ALLOWED) } } }
        @if !unchecked.is_empty() {
            p { (text::count(unchecked.len(), noun)) ": " strong { (NOT_CHECKED) } ", because there are many; reload the page to check more" }
        }
    }
}

/// Renders a page. `search` is the text in the search field.
fn page(title: &str, search: &str, main: &Markup) -> Rendered {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Trishanku" }
                link rel="stylesheet" href="/page.css";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                script src="/page.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    nav aria-label="Main" { a.brand href="/" { "Trishanku" } " " a href="/" { "Commits" } " " a href="/health" { "Health" } }
                    form role="search" action="/search" method="get" {
                        label for="q" { "Search objects" }
                        input #q type="search" name="q" value=(search) autocomplete="off" spellcheck="false";
                        button { "Search" }
                    }
                }
                p #status role="status" {}
                main #main tabindex="-1" { (main) }
            }
        }
    };
    Html(page.into_string())
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status(), problem(&self)).into_response()
    }
}

/// Renders a problem as a page.
fn problem(problem: &Problem) -> Rendered {
    let status = problem.status();
    let reason = match problem {
        Problem::NotUndone(_) => "Nothing was undone",
        _ => status.canonical_reason().unwrap_or("Error"),
    };
    let main = html! {
        h1 { (reason) }
        p { (text::block(&problem.to_string())) }
        p { a href="/" { "Show the newest commits" } }
    };
    page(reason, "", &main)
}

/// Renders a page for requests without a login: without links, since none would work.
pub(crate) fn refusal(reason: &str) -> Rendered {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Forbidden – Trishanku" }
            }
            body { main { h1 { "Forbidden" } p { (reason) } } }
        }
    };
    Html(page.into_string())
}
