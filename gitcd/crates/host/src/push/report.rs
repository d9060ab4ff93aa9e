//! The outcome of each command, and its encoding for the client.

use gitcd_repo::owner::{Refusal, Remarks};
use gitcd_repo::pkt_line;

use super::commands::Push;

/// Payload of a side-band pkt-line: its length and band take five bytes.
const BAND_BYTES: usize = pkt_line::MAX_BYTES - 5;

/// The outcome of each command of a push.
#[derive(Debug)]
pub(super) struct Report {
    names: Vec<String>,
    /// Why each command is refused; `None` if it is pending or done.
    refused: Vec<Option<String>>,
    /// Why the pack cannot be used.
    unpack: Option<String>,
    /// Lines that clients print, if they support the side band.
    remarks: Vec<String>,
    is_wanted: bool,
    side_band: bool,
    atomic: bool,
}

impl Report {
    pub(super) fn new(push: &Push) -> Self {
        Self {
            names: push.commands.iter().map(|command| command.reference.clone()).collect(),
            refused: vec![None; push.commands.len()],
            unpack: None,
            remarks: Vec::new(),
            is_wanted: push.report_status,
            side_band: push.side_band,
            atomic: push.atomic,
        }
    }

    /// Refuses a command, and all others of an atomic push with it. The first reason stays.
    pub(super) fn refuse(&mut self, at: usize, reason: &str) {
        // In an atomic push, the first refusal was that of all others, too.
        if self.refused[at].is_some() {
            return;
        }
        self.refused[at] = Some(Refusal::new(reason).to_string());
        if self.atomic {
            self.refuse_all("atomic push failed");
        }
    }

    pub(super) fn refuse_all(&mut self, reason: &str) {
        for refused in self.refused.iter_mut().filter(|refused| refused.is_none()) {
            *refused = Some(Refusal::new(reason).to_string());
        }
    }

    /// Refuses all commands because the pack is unusable.
    pub(super) fn unusable(&mut self, reason: &str) {
        self.unpack = Some(Refusal::new(reason).to_string());
        self.refuse_all("unpacker error");
    }

    /// Adds lines that the client prints whatever the outcome.
    pub(super) fn remark(&mut self, remarks: &Remarks) {
        self.remarks.extend_from_slice(remarks.lines());
    }

    pub(super) fn is_refused(&self, at: usize) -> bool {
        self.refused[at].is_some()
    }

    /// Returns why a command is refused.
    pub(super) fn reason(&self, at: usize) -> Option<&str> {
        self.refused[at].as_deref()
    }

    /// Whether all commands are refused.
    pub(super) fn is_hopeless(&self) -> bool {
        self.refused.iter().all(Option::is_some)
    }

    /// Encodes the report in Git's format, or only the remarks if the client did not ask for a report.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut banded = Vec::new();
        for line in self.remarks.iter().filter(|_| self.side_band) {
            pkt_line::put(&mut banded, format!("\x02{line}\n").as_bytes());
        }
        if !self.is_wanted {
            if self.side_band {
                banded.extend_from_slice(pkt_line::FLUSH);
            }
            return banded;
        }
        let mut report = Vec::new();
        let unpack = self.unpack.as_deref().unwrap_or("ok");
        pkt_line::put(&mut report, format!("unpack {unpack}\n").as_bytes());
        for (name, refused) in self.names.iter().zip(&self.refused) {
            let line = match refused {
                None => format!("ok {name}\n"),
                Some(reason) => format!("ng {name} {reason}\n"),
            };
            pkt_line::put(&mut report, line.as_bytes());
        }
        report.extend_from_slice(pkt_line::FLUSH);
        if !self.side_band {
            return report;
        }
        for part in report.chunks(BAND_BYTES) {
            pkt_line::put(&mut banded, &[b"\x01", part].concat());
        }
        banded.extend_from_slice(pkt_line::FLUSH);
        banded
    }
}

#[cfg(test)]
mod tests {
    use super::super::commands::Command;
    use super::*;

    fn push(atomic: bool, side_band: bool) -> Push {
        let command = |reference: &str| Command { reference: reference.to_owned(), old: None, new: None };
        let commands = vec![command("refs/heads/a"), command("refs/heads/b")];
        Push { commands, report_status: true, side_band, atomic }
    }

    #[test]
    fn each_command_has_its_line() {
        let mut report = Report::new(&push(false, false));
        report.refuse(1, "not\ntoday");
        report.refuse(1, "nor tomorrow");
        let text = String::from_utf8(report.encode()).unwrap();
        assert_eq!(text, "000eunpack ok\n0014ok refs/heads/a\n001eng refs/heads/b not today\n0000");
    }

    #[test]
    fn one_refusal_is_enough_for_an_atomic_push() {
        let mut report = Report::new(&push(true, true));
        report.refuse(0, "no");
        assert!(report.is_hopeless());
        let text = String::from_utf8(report.encode()).unwrap();
        assert!(
            text.contains("ng refs/heads/a no\n") && text.contains("ng refs/heads/b atomic push failed\n"),
            "{text}"
        );
        assert!(text.starts_with("0055\u{1}000eunpack ok\n") && text.ends_with("\n00000000"), "{text}");
    }

    #[test]
    fn remarks_come_before_the_report_where_there_is_a_band_for_them() {
        let mut remarks = Remarks::default();
        remarks.add("tea is\n4");
        for (side_band, start) in [(true, "000e\u{2}tea is 4\n"), (false, "000eunpack ok\n")] {
            let mut report = Report::new(&push(false, side_band));
            report.remark(&remarks);
            let text = String::from_utf8(report.encode()).unwrap();
            assert!(text.starts_with(start) && text.contains("ok refs/heads/a\n"), "{text}");
        }
    }
}
