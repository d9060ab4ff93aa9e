//! The page in Chromium, driven by Playwright: what users see, and what only a browser does.
//!
//! A scenario has two sides. The script of the same name in `scenarios/` uses the page; the function here makes the branch, and
//! the writes that the script asks for. Without a browser the scenarios are ignored, except in CI, where they fail.

mod browser;
#[expect(dead_code, reason = "the login is that of the browser")]
#[path = "../page/client.rs"]
mod client;
#[expect(dead_code, reason = "only the other tests change the health")]
#[path = "../page/health_source.rs"]
mod health_source;
mod hostile;
mod scenarios;
mod services;
mod shop;
mod stage;
#[expect(dead_code, reason = "only the other tests use some of it")]
#[path = "../page/world.rs"]
mod world;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::browser::Parts;

type Scenario = fn(&Parts) -> Result<(), Failed>;

const SCENARIOS: [(&str, Scenario); 9] = [
    ("ten_thousand_commits_are_painted_soon", scenarios::first_paint),
    ("open_pages_show_a_write_soon", scenarios::live),
    ("the_keyboard_reaches_everything", scenarios::keyboard),
    ("axe_finds_nothing", scenarios::accessibility),
    ("hostile_content_is_inert", scenarios::hostile),
    ("only_its_own_form_undoes", scenarios::undo),
    ("pages_work_without_scripts", scenarios::scriptless),
    ("a_lost_connection_is_reported", scenarios::connection),
    ("the_pictures_are_those_of_the_page", scenarios::pictures),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let parts = Arc::new(browser::find());
    let trials = SCENARIOS.map(|(name, scenario)| {
        let parts = parts.clone();
        Trial::ignorable_test(name, move || match parts.as_ref() {
            Ok(parts) => scenario(parts).map(|()| Completion::Completed),
            Err(why) if std::env::var_os("CI").is_some() => Err(format!("there is no browser: {why}").into()),
            Err(why) => Ok(Completion::ignored_with(why)),
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
