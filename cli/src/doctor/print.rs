//! Output of `trishanku doctor`.

use std::io::Write;

use anstyle::Style;
use trishanku_stdio::text::plain;

use super::check::{Area, Check, Diagnosis, Status};
use crate::styles::{BAD, DIM, GOOD, STRONG, WARN};

/// Prints the results of all checks.
pub(super) fn print(diagnosis: &Diagnosis, json: bool) -> anyhow::Result<()> {
    let mut out = trishanku_stdio::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, diagnosis)?;
        writeln!(out)?;
        return Ok(());
    }
    table(&mut out, diagnosis)?;
    Ok(())
}

fn table(out: &mut impl Write, diagnosis: &Diagnosis) -> std::io::Result<()> {
    let areas = [(Area::Machine, "This machine"), (Area::Folder, "State folder"), (Area::Cluster, "Control plane")];
    let width = diagnosis.checks.iter().map(|check| check.name.len()).max().unwrap_or_default();
    for (area, title) in areas {
        let folder = if area == Area::Folder { format!("  {}", diagnosis.dir.display()) } else { String::new() };
        writeln!(out, "{STRONG}{title}{STRONG:#}{folder}")?;
        for check in diagnosis.checks.iter().filter(|check| check.area == area) {
            row(out, check, width)?;
        }
        writeln!(out)?;
    }
    let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let style = style(diagnosis.status);
    let (failures, warnings) = (count(diagnosis.failures, "failure"), count(diagnosis.warnings, "warning"));
    writeln!(out, "{style}{failures}, {warnings}{style:#}")
}

fn row(out: &mut impl Write, check: &Check, width: usize) -> std::io::Result<()> {
    let word = match check.status {
        Status::Ok => "ok",
        Status::Warning => "warning",
        Status::Failure => "failure",
        Status::Skipped => "skipped",
    };
    let (style, object) = (style(check.status), check.object.as_ref().map(|object| format!("{object}: ")));
    // Messages of other programs may have control characters.
    let detail = plain(&format!("{}{}", object.unwrap_or_default(), check.detail));
    writeln!(out, "  {style}{word:<7}{style:#}  {:<width$}  {detail}", check.name)?;
    match &check.remedy {
        Some(remedy) => writeln!(out, "  {:<7}  {:<width$}  → {}", "", "", plain(remedy)),
        None => Ok(()),
    }
}

fn style(status: Status) -> Style {
    match status {
        Status::Ok => GOOD,
        Status::Warning => WARN,
        Status::Failure => BAD,
        Status::Skipped => DIM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_a_line_and_each_problem_a_remedy() {
        let checks = vec![
            Check::ok(Area::Machine, "git", "2.39.5"),
            Check::warning(Area::Folder, "space", "2 MiB\x1b[2J", "free space"),
            Check::failure(Area::Cluster, "store", "down", "see the log").about("desk"),
        ];
        let mut out = Vec::new();
        let diagnosis = Diagnosis::of("/planes/a".as_ref(), checks);
        table(&mut anstream::StripStream::new(&mut out), &diagnosis).unwrap();
        let expected = "This machine\n  ok       git    2.39.5\n\n\
                        State folder  /planes/a\n  warning  space  2 MiB\u{fffd}[2J\n                  → free space\n\n\
                        Control plane\n  failure  store  desk: down\n                  → see the log\n\n\
                        1 failure, 1 warning\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
