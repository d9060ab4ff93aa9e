//! Who made a change, as log and blame print it.

use super::{CommitInfo, managers};

/// Who made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The field managers that changed the object: the programs that a person or a controller used.
    pub managers: Vec<String>,
    /// The clients of the store that the commit names; empty if the commit was not made by a store for clients.
    pub clients: Vec<String>,
    /// The author of the commit: a person, or the name of the gitcd.
    pub author: String,
    /// The committer, if it is not the author.
    pub committer: Option<String>,
}

impl Who {
    /// Reads who changed a value, `None` before its creation or after its deletion, in a commit. All that is known of it is read
    /// here.
    pub fn of(commit: &CommitInfo, [before, after]: [Option<&[u8]>; 2]) -> Self {
        Self {
            managers: managers::between(before, after),
            clients: commit.clients().into_iter().map(ToOwned::to_owned).collect(),
            author: commit.author.clone(),
            committer: Some(commit.committer.clone()).filter(|committer| *committer != commit.author),
        }
    }

    /// Formats it: the field managers, else the clients, after the name of the gitcd unless it has the default name. For a commit
    /// of a person, the author, and the committer if that is another.
    pub fn text(&self, default_name: &str) -> String {
        let programs = if self.managers.is_empty() { &self.clients } else { &self.managers };
        let author = match &self.committer {
            Some(committer) => format!("{}, committed by {committer}", self.author),
            None => self.author.clone(),
        };
        match programs.join(", ") {
            programs if programs.is_empty() => author,
            programs if author == default_name => programs,
            programs => format!("{author} ({programs})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_come_first_and_persons_have_their_names() {
        let who = |author: &str, committer: Option<&str>, managers: &[&str], clients: &[&str]| {
            let all = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let committer = committer.map(ToOwned::to_owned);
            Who { managers: all(managers), clients: all(clients), author: author.into(), committer }.text("gitcd")
        };
        assert_eq!(who("gitcd", None, &["kubectl-edit", "helm"], &["kube-apiserver"]), "kubectl-edit, helm");
        assert_eq!(who("gitcd", None, &[], &["etcdctl", "x (y)"]), "etcdctl, x (y)");
        assert_eq!(who("desk", None, &["kubectl-edit"], &[]), "desk (kubectl-edit)");
        assert_eq!(who("Ann", None, &[], &[]), "Ann");
        assert_eq!(who("Ann", Some("Bob"), &[], &[]), "Ann, committed by Bob");
    }
}
