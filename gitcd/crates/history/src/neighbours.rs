//! The neighbours of a key that does not exist, for error messages.

use std::collections::BTreeSet;
use std::fmt;

use super::moment::Moment;
use super::{History, HistoryError};

/// Maximum number of names in a message.
const SHOWN: usize = 10;

/// The names in the deepest existing folder above a missing key. Displayed as a list of up to ten names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The folder, relative to the key prefix, with a final `/`; empty for the root.
    pub folder: String,
    /// The names in the folder; those of folders end with `/`.
    pub names: BTreeSet<String>,
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.folder {
            "" => f.write_str("the branch has ")?,
            folder => write!(f, "{folder} has ")?,
        }
        if self.names.is_empty() {
            return f.write_str("no keys");
        }
        let names = self.names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>();
        f.write_str(&names.join(", "))?;
        match self.names.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl History {
    /// Returns the names in the deepest existing folder above a key. Reads the names of all data keys.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn neighbours(&self, moment: &Moment, key: &[u8]) -> Result<Neighbours, HistoryError> {
        let keys = self.list(moment, b"")?;
        let keys = keys.iter().map(|key| String::from_utf8_lossy(self.below_prefix(key)));
        Ok(neighbours(keys, &String::from_utf8_lossy(self.below_prefix(key))))
    }
}

fn neighbours(keys: impl Iterator<Item = impl AsRef<str>> + Clone, wanted: &str) -> Neighbours {
    let folders = wanted.match_indices('/').rev().map(|(at, _)| &wanted[..=at]);
    let is_there = |folder: &&str| keys.clone().any(|key| key.as_ref().starts_with(folder));
    let folder = folders.into_iter().find(is_there).unwrap_or_default();
    let mut names = BTreeSet::new();
    for key in keys {
        if let Some(below) = key.as_ref().strip_prefix(folder) {
            let end = below.find('/').map_or(below.len(), |at| at + 1);
            names.insert(below[..end].to_owned());
        }
    }
    Neighbours { folder: folder.to_owned(), names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_existing_folder_is_listed() {
        let keys = ["configmaps/shop/a", "configmaps/shop/b", "configmaps/kube-system/c", "plain"];
        let found = |wanted| neighbours(keys.iter(), wanted).to_string();
        assert_eq!(found("configmaps/shop/nosuch"), "configmaps/shop/ has a, b");
        assert_eq!(found("configmaps/nosuch/a"), "configmaps/ has kube-system/, shop/");
        assert_eq!(found("deploy/nosuch"), "the branch has configmaps/, plain");
        assert_eq!(found("nosuch"), "the branch has configmaps/, plain");
        assert_eq!(neighbours([""; 0].iter(), "x").to_string(), "the branch has no keys");
        let many: Vec<String> = (10..25).map(|number| format!("pods/n/{number}")).collect();
        let found = neighbours(many.iter(), "pods/n/x").to_string();
        assert_eq!(found, "pods/n/ has 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 5 more");
    }
}
