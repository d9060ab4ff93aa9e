//! HTML of the pages.
//!
//! Names and values come from others: `text` makes them inert on one line, and maud escapes them. No page has inline script or
//! style.

pub(crate) mod assets;
mod commit;
mod commits;
mod difference;
mod lanes;
mod object;
mod search;
mod text;

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

pub(crate) use self::commit::commit;
pub(crate) use self::commits::commits;
pub(crate) use self::object::object;
pub(crate) use self::search::search;
use crate::problem::Problem;

/// A page of HTML.
pub(crate) type Rendered = Html<String>;

/// What stands for something that the user may not read.
const NOT_ALLOWED: &str = "not allowed";

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
                    nav aria-label="Main" { a.brand href="/" { "Trishanku" } " " a href="/" { "Commits" } }
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
    let reason = status.canonical_reason().unwrap_or("Error");
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
                title { "Forbidden – Trishanku" }
            }
            body { main { h1 { "Forbidden" } p { (reason) } } }
        }
    };
    Html(page.into_string())
}
