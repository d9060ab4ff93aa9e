//! The requests of a contestant: kube-apiserver's audit log, read as it grows.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use trishanku_testkit::audit::Entry;

/// Requests of one contestant, up to where the log has been read.
#[derive(Debug)]
pub struct Requests {
    log: PathBuf,
    read: u64,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// The contestant's name, as it appears in a line.
    user: String,
    counts: Counts,
    /// When the status of each object was first written.
    ready: HashMap<String, SystemTime>,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Applies of owned objects.
    pub applies: u64,
    /// Writes of statuses.
    pub statuses: u64,
    /// Other changes.
    pub other_writes: u64,
    /// Reads of single objects.
    pub gets: u64,
    /// Lists, by page.
    pub lists: u64,
    /// Everything else except watches: discovery.
    pub others: u64,
    /// Watches that were opened.
    pub watches: u64,
    /// How many of all these were rejected.
    pub refused: u64,
}

impl Counts {
    /// Returns the number of all requests that change something.
    pub fn writes(&self) -> u64 {
        self.applies + self.statuses + self.other_writes
    }

    /// Returns the number of requests for single objects, which reconciles need.
    pub fn of_objects(&self) -> u64 {
        self.writes() + self.gets
    }

    /// Returns the difference from earlier counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            applies: self.applies - before.applies,
            statuses: self.statuses - before.statuses,
            other_writes: self.other_writes - before.other_writes,
            gets: self.gets - before.gets,
            lists: self.lists - before.lists,
            others: self.others - before.others,
            watches: self.watches - before.watches,
            refused: self.refused - before.refused,
        }
    }

    fn add(&mut self, entry: &Entry) {
        let what = match (entry.verb.as_str(), entry.resource()) {
            ("watch", _) => &mut self.watches,
            (_, resource) if entry.is_write() => match &*resource {
                "configmaps" | "secrets" => &mut self.applies,
                "pairs/status" => &mut self.statuses,
                _ => &mut self.other_writes,
            },
            ("list", _) => &mut self.lists,
            ("get", resource) if !resource.is_empty() => &mut self.gets,
            _ => &mut self.others,
        };
        *what += 1;
        self.refused += u64::from(entry.code() >= 400);
    }
}

impl Requests {
    /// Reads the requests of `user` in this log, from its beginning.
    pub fn of(user: &str, log: &Path) -> Self {
        // As in the log; no other user has this name.
        let user = format!("\"username\":\"{user}\"");
        let (counts, ready) = (Counts::default(), HashMap::new());
        Self { log: log.to_owned(), read: 0, rest: Vec::new(), user, counts, ready }
    }

    /// Reads what is new. Returns the counts so far.
    ///
    /// # Errors
    /// The log cannot be read, or has a line that is no entry.
    pub fn look(&mut self) -> Result<Counts> {
        let mut file = File::open(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_end(&mut self.rest)? as u64;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in std::str::from_utf8(&lines)?.lines() {
            if line.contains(&self.user) {
                self.add(line)?;
            }
        }
        Ok(self.counts)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let entry: Entry = serde_json::from_str(line).with_context(|| format!("not an audit entry: {line}"))?;
        // A watch has a second entry when it ends.
        if entry.verb == "watch" && entry.stage == "ResponseComplete" {
            return Ok(());
        }
        self.counts.add(&entry);
        if entry.has_written() && entry.resource() == "pairs/status" {
            let at: Timestamp = entry.stage_timestamp.parse()?;
            self.ready.entry(entry.name().to_owned()).or_insert(at.into());
        }
        Ok(())
    }

    /// Returns how many objects have a status.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns how long after `start` the last of them got it.
    pub fn last_ready(&self, start: SystemTime) -> Option<Duration> {
        self.ready.values().max()?.duration_since(start).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;

    fn line(user: &str, verb: &str, resource: &str, subresource: &str, code: u16) -> String {
        let entry = json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": "/", "user": {"username": "admin"},
            "impersonatedUser": {"username": user},
            "objectRef": {"resource": resource, "subresource": subresource, "name": "a"},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "stageTimestamp": "2026-01-01T00:00:02.500000Z",
        });
        format!("{entry}\n")
    }

    #[test]
    fn a_log_is_read_as_it_grows_and_others_do_not_count() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut requests = Requests::of("a", log.path());
        assert_eq!(requests.look().unwrap(), Counts::default());
        let all = [
            line("a", "patch", "configmaps", "", 201),
            line("b", "patch", "configmaps", "", 201),
            line("a", "list", "pairs", "", 200),
            line("a", "watch", "pairs", "", 200).replace("ResponseComplete", "ResponseStarted"),
            line("a", "watch", "pairs", "", 200),
            line("a", "get", "", "", 200),
            line("a", "create", "events", "", 403),
        ];
        log.write_all(all.concat().as_bytes()).unwrap();
        let status = line("a", "patch", "pairs", "status", 200);
        let (first, second) = status.split_at(40);
        log.write_all(first.as_bytes()).unwrap();
        let expected =
            Counts { applies: 1, lists: 1, watches: 1, others: 1, other_writes: 1, refused: 1, ..Counts::default() };
        assert_eq!((requests.look().unwrap(), requests.ready()), (expected, 0));
        log.write_all(second.as_bytes()).unwrap();
        assert_eq!(requests.look().unwrap().since(&expected), Counts { statuses: 1, ..Counts::default() });
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(requests.last_ready(start.into()), Some(Duration::from_millis(2_500)));
    }
}
