//! `docs/benchmarks.md`, whose sections are each rewritten by the command that measures them.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};

const TITLE: &str = "\
# Benchmarks

Results of one machine; each section is written by the command that it names. Do not edit by hand.
Run the command on your own machine before you base a decision on them.
";

/// A section, in document order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// gitcd side by side with etcd.
    Comparison,
    /// Both behind kube-apiserver.
    Kube,
    /// Memory of both with many keys.
    Memory,
    /// How cost grows with keys, watchers and branches.
    Growth,
    /// The cost of very few writes.
    IdleCost,
    /// Git as a database.
    Storage,
    /// Replication between branches.
    Branches,
    /// A headless cluster beside a central control plane.
    Headless,
    /// The store beside hostile requests.
    Hostile,
    /// The controller framework beside others.
    Framework,
}

const ALL: [Section; 10] = [
    Section::Comparison,
    Section::Kube,
    Section::Memory,
    Section::Growth,
    Section::IdleCost,
    Section::Storage,
    Section::Branches,
    Section::Headless,
    Section::Hostile,
    Section::Framework,
];

impl Section {
    fn marker(self) -> &'static str {
        match self {
            Self::Comparison => "<!-- section: comparison -->\n",
            Self::Kube => "<!-- section: kube -->\n",
            Self::Memory => "<!-- section: memory -->\n",
            Self::Growth => "<!-- section: growth -->\n",
            Self::IdleCost => "<!-- section: idle cost -->\n",
            Self::Storage => "<!-- section: storage -->\n",
            Self::Branches => "<!-- section: branches -->\n",
            Self::Headless => "<!-- section: headless -->\n",
            Self::Hostile => "<!-- section: hostile -->\n",
            Self::Framework => "<!-- section: framework -->\n",
        }
    }

    /// Replaces this section of the document at `path`, which is created if missing.
    ///
    /// # Errors
    /// If it cannot be read or written; the message names it.
    pub fn write(self, path: &Path, text: &str) -> Result<()> {
        let old = match fs::read_to_string(path) {
            Ok(old) => old,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        fs::write(path, self.replace(&old, text)).with_context(|| format!("cannot write {}", path.display()))
    }

    fn replace(self, old: &str, text: &str) -> String {
        let mut new = TITLE.to_owned();
        for section in ALL {
            let content = if section == self { Some(text) } else { section.find(old) };
            if let Some(content) = content {
                new.push('\n');
                new.push_str(section.marker());
                new.push_str(content.trim());
                new.push('\n');
            }
        }
        new
    }

    fn find(self, document: &str) -> Option<&str> {
        let (_, rest) = document.split_once(self.marker())?;
        let end = ALL.iter().filter_map(|other| rest.find(other.marker())).min();
        Some(&rest[..end.unwrap_or(rest.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay_in_order() {
        let first = Section::IdleCost.replace("", "idle 1");
        let both = Section::Comparison.replace(&first, "compared\n");
        assert!(both.find("compared").unwrap() < both.find("idle 1").unwrap());
        let again = Section::IdleCost.replace(&both, "idle 2");
        assert!(again.contains("compared") && again.contains("idle 2"));
        assert!(!again.contains("idle 1"));
        assert_eq!(Section::IdleCost.replace(&again, "idle 2"), again);
    }
}
