//! Prints the drawing with its text.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use git2::Repository;

use super::super::age;
use super::fold::Line;
use super::lanes::{Drawn, Lanes};
use super::walk::History;
use super::{Names, subject};

const ID: Style = AnsiColor::Yellow.on_default();
const NAME: Style = AnsiColor::Green.on_default().bold();
const DIM: Style = Style::new().dimmed();

pub(super) fn print(
    out: &mut impl Write,
    repository: &Repository,
    names: &Names,
    history: &History,
    lines: &[Line],
    more: bool,
) -> io::Result<()> {
    let mut drawing = Lanes::default();
    let now = age::now();
    let age = |oid| age::words(now.saturating_sub(history.commits[oid].time.max(0) as u64));
    for (at, line) in lines.iter().enumerate() {
        let mark = if line.folded > 1 { '┊' } else { '●' };
        let Drawn { beside, below } = drawing.draw(line.newest, &line.parents, mark);
        write!(out, "{beside} ")?;
        if line.folded > 1 {
            let (newest, oldest) = (age(&line.newest), age(&line.oldest));
            let since = if newest == oldest { newest } else { format!("{newest} to {oldest}") };
            writeln!(out, "{DIM}… {} commits, {since} ago{DIM:#}", line.folded)?;
        } else {
            let id = &line.newest.to_string()[..10];
            write!(out, "{ID}{id}{ID:#} ")?;
            if let Some(names) = names.get(&line.newest) {
                write!(out, "{NAME}({}){NAME:#} ", names.join(", "))?;
            }
            writeln!(out, "{} {DIM}({} ago){DIM:#}", subject(repository, line.newest), age(&line.newest))?;
        }
        if let Some(below) = below.filter(|_| more || at + 1 < lines.len()) {
            writeln!(out, "{below}")?;
        }
    }
    if more {
        writeln!(out, "{DIM}… there is more: --limit=N{DIM:#}")?;
    }
    Ok(())
}
