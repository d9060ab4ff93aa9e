//! Conflicts of merges, as their commits record them.

use gitcd_core::scope::unescape;
use gitcd_merge::Conflict;

/// How a line of a merge commit begins that records a conflict.
const START: &str = "Conflict: ";

/// Returns how many conflicts the message of a merge commit records.
pub(super) fn count(message: &str) -> usize {
    message.lines().filter(|line| line.starts_with(START)).count()
}

/// A line that records a conflict. Names may have spaces, so only the trees of the commits say where the key ends.
pub(super) struct Recorded {
    name: String,
    kept: Option<String>,
    lost: Option<String>,
}

/// Spaces of a name; a name with more is not divided.
const SPACES: usize = 8;

impl Recorded {
    /// Returns each key that the line may be about, with the conflict.
    pub(super) fn readings(&self) -> impl Iterator<Item = (Vec<u8>, Conflict)> {
        let ends = self.name.match_indices(' ').map(|(at, _)| at).take(SPACES).chain([self.name.len()]);
        ends.filter_map(|end| {
            let (key, field) = self.name.split_at(end);
            let (kept, lost) = (self.kept.clone(), self.lost.clone());
            Some((unescape(key)?, Conflict { field: plain(field.trim_start()), kept, lost }))
        })
    }

    /// Returns the key and the field as they are written.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the conflicts that the message of a merge commit records.
pub(super) fn all(message: &str) -> impl Iterator<Item = Recorded> {
    message.lines().filter_map(|line| read(line.strip_prefix(START)?))
}

/// Returns a message without the lines that record conflicts, which may have values.
pub(super) fn without(message: &str) -> String {
    message.lines().filter(|line| !line.starts_with(START)).collect::<Vec<_>>().join("\n")
}

/// Parses a line: `/registry/configmaps/shop/prices data.tea: kept "3", lost "2"`.
fn read(line: &str) -> Option<Recorded> {
    let (name, values) = line.split_once(": kept ")?;
    let (kept, lost) = values.rsplit_once(", lost ")?;
    let value = |text: &str| (text != "nothing").then(|| plain(text));
    Some(Recorded { name: name.to_owned(), kept: value(kept), lost: value(lost) })
}

fn plain(text: &str) -> String {
    unescape(text).map_or_else(|| text.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_conflict_may_end_at_each_space() {
        let message = "merge a and b\n\nConflict: /a b data.x: kept \"%25\", lost nothing\n\
                       Conflict: /k: kept Pod a (u), lost \"2\"\nRevision: 4\n";
        let recorded: Vec<_> = all(message).collect();
        let readings = |at: usize| {
            let one = |(key, conflict): (Vec<u8>, Conflict)| {
                (String::from_utf8(key).unwrap(), conflict.field, conflict.kept.unwrap(), conflict.lost)
            };
            recorded[at].readings().map(one).collect::<Vec<_>>()
        };
        let reading = |key: &str, field: &str| (key.to_owned(), field.to_owned(), "\"%\"".to_owned(), None);
        assert_eq!(readings(0), [reading("/a", "b data.x"), reading("/a b", "data.x"), reading("/a b data.x", "")]);
        let whole = ("/k".to_owned(), String::new(), "Pod a (u)".to_owned(), Some("\"2\"".to_owned()));
        assert_eq!(readings(1), [whole]);
        assert_eq!(count(message), 2);
        assert_eq!(without(message), "merge a and b\n\nRevision: 4");
    }
}
