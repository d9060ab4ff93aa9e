//! The commands of a push: lines of old id, new id and reference, the first with the client's capabilities.

use git2::Oid;
use gitcd_repo::pkt_line::{self, Head};

use super::super::input::Input;
use super::super::problem::Problem;

/// Longest name of a reference that is answered in the report, and not with an error.
const MAX_NAME_BYTES: usize = 4 << 10;

/// A requested update of one reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) reference: String,
    /// The target that the client last saw; `None` to create the reference.
    pub(super) old: Option<Oid>,
    /// The requested target; `None` to delete the reference.
    pub(super) new: Option<Oid>,
}

/// The part of a push before the pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) commands: Vec<Command>,
    pub(super) report_status: bool,
    pub(super) side_band: bool,
    pub(super) atomic: bool,
}

impl Push {
    /// Reads up to the flush packet; `None` if there is no command.
    pub(super) async fn read(input: &mut Input, mut most: u64) -> Result<Option<Self>, Problem> {
        const CUT: Problem = Problem::Bad("the body ends early");
        let mut push = Self::default();
        loop {
            let digits = input.exact(4).await?.ok_or(CUT)?;
            let digits = digits.first_chunk().copied().ok_or(CUT)?;
            let length = match pkt_line::head(digits).ok_or(Problem::Bad("it is not in Git's pkt-line format"))? {
                Head::Flush => break,
                Head::Line(length) => length,
                Head::Delimiter | Head::End => return Err(Problem::Bad("it has pkt-lines that no push has")),
            };
            most = most.checked_sub(4 + length as u64).ok_or(Problem::TooLarge)?;
            let line = input.exact(length).await?.ok_or(CUT)?;
            push.take(&line)?;
        }
        Ok((!push.commands.is_empty()).then_some(push))
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Problem> {
        const BAD: Problem = Problem::Bad("a command is malformed");
        let text = str::from_utf8(line).map_err(|_| BAD)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        // A shallow client sends where its history ends. The host ignores it, since the connectivity check finds what is missing.
        if self.commands.is_empty() && text.starts_with("shallow ") {
            return Ok(());
        }
        let (command, capabilities) = text.split_once('\0').unwrap_or((text, ""));
        if self.commands.is_empty() {
            for capability in capabilities.split(' ') {
                match capability {
                    "report-status" => self.report_status = true,
                    "side-band-64k" => self.side_band = true,
                    "atomic" => self.atomic = true,
                    "push-options" => return Err(Problem::Bad("push options are not supported")),
                    other if other.starts_with("object-format=") && other != "object-format=sha1" => {
                        return Err(Problem::Bad("only SHA-1 repositories are served"));
                    }
                    _ => {}
                }
            }
        }
        let mut parts = command.splitn(3, ' ');
        let (Some(old), Some(new), Some(reference)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(BAD);
        };
        let id = |text: &str| match Oid::from_str(text) {
            Ok(id) if text.len() == 40 => Ok(Some(id).filter(|id| !id.is_zero())),
            _ => Err(BAD),
        };
        // A longer name would not fit into a line of the report.
        if reference.len() > MAX_NAME_BYTES {
            return Err(Problem::Bad("the name of a reference is too long"));
        }
        self.commands.push(Command { reference: reference.to_owned(), old: id(old)?, new: id(new)? });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::HeaderMap;

    use super::*;

    async fn read(lines: &[&str], end: &str) -> Result<Option<Push>, Problem> {
        let mut body = Vec::new();
        for line in lines {
            pkt_line::put(&mut body, line.as_bytes());
        }
        body.extend_from_slice(end.as_bytes());
        let input = Input::open(&HeaderMap::new(), Body::from(body), 1 << 20, Duration::from_secs(5));
        Push::read(&mut input.unwrap(), 8000).await
    }

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    #[tokio::test]
    async fn commands_are_read_up_to_the_flush() {
        let first = format!("{ZERO} {A} refs/heads/a b\0 report-status side-band-64k atomic agent=git/2\n");
        let shallow = format!("shallow {B}");
        let push = read(&[&shallow, &first, &format!("{A} {ZERO} refs/heads/c")], "0000PACK").await.unwrap().unwrap();
        assert!(push.report_status && push.side_band && push.atomic);
        let (a, none) = (Some(Oid::from_str(A).unwrap()), None);
        let command = |reference: &str, old, new| Command { reference: reference.to_owned(), old, new };
        assert_eq!(push.commands, [command("refs/heads/a b", none, a), command("refs/heads/c", a, none)]);
        assert_eq!(read(&[], "0000").await.unwrap(), None);
    }

    #[tokio::test]
    async fn rubbish_is_refused() {
        for (line, end) in [
            ("x", "0000"),
            (&*format!("{A} {B}"), "0000"),
            (&*format!("{A} 22 refs/heads/a"), "0000"),
            (&*format!("{A} {}g refs/heads/a", &B[1..]), "0000"),
            (&*format!("{A} {B} refs/heads/a\0object-format=sha256"), "0000"),
            (&*format!("{A} {B} refs/heads/a"), ""),
            (&*format!("{A} {B} refs/heads/a"), "00zz"),
            ("push-cert\0push-cert", "0000"),
            (&*format!("{A} {B} refs/heads/{}", "a".repeat(MAX_NAME_BYTES)), "0000"),
        ] {
            assert!(matches!(read(&[line], end).await, Err(Problem::Bad(_))), "{line}");
        }
        let many = vec![&*format!("{A} {B} refs/heads/a").leak(); 100];
        assert!(matches!(read(&many, "0000").await, Err(Problem::TooLarge)));
    }
}
