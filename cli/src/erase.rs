//! `trishanku delete`.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use trishanku::delete;
use trishanku::plane::{Home, State};

use crate::{args, print};

/// Exit code if the user declines.
const DECLINED: u8 = 1;

/// Deletes a control plane, after asking on the terminal.
pub(crate) async fn run(options: &args::Delete, home: Home) -> anyhow::Result<ExitCode> {
    let exists = delete::check(&home)?;
    if exists && !options.yes && !confirmed(&home)? {
        trishanku_stdio::println!("Nothing was deleted");
        return Ok(ExitCode::from(DECLINED));
    }
    let dir = home.dir().to_owned();
    let down = tokio::task::spawn_blocking(move || delete::delete(&home)).await??;
    print::deleted(&down, exists.then_some(&*dir));
    Ok(ExitCode::SUCCESS)
}

fn confirmed(home: &Home) -> anyhow::Result<bool> {
    let dir = home.dir().display();
    if !io::stdin().is_terminal() {
        bail!("cannot ask whether to delete {dir}, since standard input is not a terminal: give --yes");
    }
    let runs = State::load(&home.state_file()).is_ok_and(|state| state.is_supervised());
    let what = if runs { "Stop the control plane in" } else { "Delete the control plane in" };
    let and = if runs { ", and delete it with all its data" } else { " with all its data" };
    trishanku_stdio::eprint!("{what} {dir}{and}? [y/N] ");
    io::stderr().flush().context("cannot write to the terminal")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
