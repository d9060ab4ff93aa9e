//! Messages of commits, for operators who read `git log`.

use std::fmt::Write;

use super::history_link::HistoryLink;

/// The kind of a key's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// The key did not exist before.
    Create,
    /// The key has another value.
    Update,
    /// The key was deleted.
    Delete,
}

/// Limit of groups of changes that a subject names; the rest is counted.
const MAX_GROUPS: usize = 6;
/// Limit of groups that are distinguished; changes beyond are only counted, so that adding stays cheap.
const MAX_SORTED: usize = 64;
/// Maximum length of a client name in a trailer, in bytes.
const MAX_CLIENT: usize = 256;

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Delete => "delete",
        }
    }
}

/// Collects changes for a subject. Cheap for ten thousand changes: one text for each group, not for each change.
#[derive(Debug, Default)]
pub struct Subject {
    groups: Vec<Group>,
    beyond: usize,
}

#[derive(Debug)]
struct Group {
    verb: Verb,
    /// The path of the first change.
    path: String,
    count: usize,
}

fn component(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

impl Subject {
    /// Adds a change of the file at `path` in the tree.
    pub fn add(&mut self, verb: Verb, path: &str) {
        let same = |group: &&mut Group| group.verb == verb && component(&group.path) == component(path);
        let is_full = self.groups.len() == MAX_SORTED;
        match self.groups.iter_mut().find(same) {
            Some(group) => group.count += 1,
            None if is_full => self.beyond += 1,
            None => self.groups.push(Group { verb, path: path.into(), count: 1 }),
        }
    }

    /// Returns whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Formats the subject: `update deployments/default/nginx`, or `create 3 pods, update leases/kube-system/kube-scheduler`.
    pub fn text(&mut self) -> String {
        self.groups.sort_by(|a, b| a.verb.cmp(&b.verb).then_with(|| a.path.cmp(&b.path)));
        let mut text = String::new();
        for group in self.groups.iter().take(MAX_GROUPS) {
            let separator = if text.is_empty() { "" } else { ", " };
            let verb = group.verb.name();
            match group.count {
                1 => write!(text, "{separator}{verb} {}", group.path),
                count => write!(text, "{separator}{verb} {count} {}", component(&group.path)),
            }
            .expect("writing to a string does not fail");
        }
        let rest = self.groups.iter().skip(MAX_GROUPS).map(|group| group.count).sum::<usize>() + self.beyond;
        if rest > 0 {
            write!(text, ", and {rest} more").expect("writing to a string does not fail");
        }
        text
    }
}

/// Formats the trailers of a data commit.
pub(super) fn trailers(first: i64, last: i64, clients: &[String]) -> String {
    let mut text = if first == last { format!("Revision: {last}\n") } else { format!("Revision: {first}-{last}\n") };
    let mut seen: Vec<String> = Vec::new();
    for client in clients {
        let client = one_line(client);
        if !client.is_empty() && !seen.contains(&client) {
            writeln!(text, "Client: {client}").expect("writing to a string does not fail");
            seen.push(client);
        }
    }
    text
}

/// Formats the message of a metadata commit.
pub(super) fn metadata(revision: i64, joins: &[HistoryLink]) -> String {
    let mut text = format!("metadata at revision {revision}\n");
    for (number, join) in joins.iter().enumerate() {
        let blank = if number == 0 { "\n" } else { "" };
        writeln!(text, "{blank}{join}").expect("writing to a string does not fail");
    }
    text
}

/// Sanitizes a client name, which clients choose: it must not add lines to a message.
fn one_line(client: &str) -> String {
    let mut line: String = client.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.truncate(line.floor_char_boundary(MAX_CLIENT));
    line.trim().to_owned()
}

/// Sanitizes a name or email address for a commit.
pub(super) fn identity(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(changes: &[(Verb, &str)]) -> String {
        let mut subject = Subject::default();
        for (verb, path) in changes {
            subject.add(*verb, path);
        }
        subject.text()
    }

    #[test]
    fn one_change_is_named_and_several_of_a_kind_are_counted() {
        assert_eq!(subject(&[(Verb::Update, "deployments/default/nginx")]), "update deployments/default/nginx");
        let several = [
            (Verb::Update, "leases/kube-system/kube-scheduler"),
            (Verb::Create, "pods/default/a"),
            (Verb::Create, "pods/default/b"),
            (Verb::Create, "pods/other/c"),
        ];
        assert_eq!(subject(&several), "create 3 pods, update leases/kube-system/kube-scheduler");
    }

    #[test]
    fn a_subject_stays_short_however_many_kinds_change() {
        let paths: Vec<String> = (10..90).map(|n| format!("kind{n}/name")).collect();
        let changes: Vec<(Verb, &str)> = paths.iter().map(|path| (Verb::Delete, path.as_str())).collect();
        let text = subject(&changes);
        assert!(
            text.starts_with("delete kind10/name, delete kind11/name") && text.ends_with(", and 74 more"),
            "{text}"
        );
    }

    #[test]
    fn a_client_cannot_add_lines_to_a_message() {
        let clients = ["kube/1\nRevision: 9".to_owned(), String::new(), "b".into(), "b".into()];
        assert_eq!(trailers(4711, 4720, &clients), "Revision: 4711-4720\nClient: kube/1 Revision: 9\nClient: b\n");
        assert_eq!(trailers(7, 7, &[]), "Revision: 7\n");
    }
}
