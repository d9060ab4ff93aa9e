//! Who made a change, as log and blame print it.

use gitcd_repo::actor::{Actor, Attribution};

use super::{CommitInfo, managers};

/// Who made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The users whose requests to kube-apiserver made the change, if the commit names them: several if it has several changes.
    pub actors: Vec<Actor>,
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
    /// here. `key` is relative to the key prefix; without a key, the actors of all changes are returned.
    pub fn of(commit: &CommitInfo, key: Option<&[u8]>, [before, after]: [Option<&[u8]>; 2]) -> Self {
        let key = key.map(String::from_utf8_lossy);
        Self {
            actors: Attribution::actors(&commit.message, key.as_deref()),
            managers: managers::between(before, after),
            clients: commit.clients().into_iter().map(ToOwned::to_owned).collect(),
            author: commit.author.clone(),
            committer: Some(commit.committer.clone()).filter(|committer| *committer != commit.author),
        }
    }

    /// Formats it: the users with the field managers, else the field managers, else the clients; after the name of the gitcd unless
    /// it has the default name. For a commit of a person, the author, and the committer if that is another.
    pub fn text(&self, default_name: &str) -> String {
        let programs = if self.managers.is_empty() { &self.clients } else { &self.managers };
        if !self.actors.is_empty() {
            return self.users(programs, default_name);
        }
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

    fn users(&self, programs: &[String], default_name: &str) -> String {
        let mut users: Vec<_> = self.actors.iter().map(ToString::to_string).collect();
        users.dedup();
        let mut text = users.join(", ");
        // The client is always kube-apiserver: the program that the user used is a field manager.
        if !self.managers.is_empty() {
            text = format!("{text} ({})", programs.join(", "));
        }
        if self.author == default_name { text } else { format!("{}: {text}", self.author) }
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
            let actors = Vec::new();
            Who { actors, managers: all(managers), clients: all(clients), author: author.into(), committer }
                .text("gitcd")
        };
        assert_eq!(who("gitcd", None, &["kubectl-edit", "helm"], &["kube-apiserver"]), "kubectl-edit, helm");
        assert_eq!(who("gitcd", None, &[], &["etcdctl", "x (y)"]), "etcdctl, x (y)");
        assert_eq!(who("desk", None, &["kubectl-edit"], &[]), "desk (kubectl-edit)");
        assert_eq!(who("Ann", None, &[], &[]), "Ann");
        assert_eq!(who("Ann", Some("Bob"), &[], &[]), "Ann, committed by Bob");
    }

    #[test]
    fn users_come_before_their_programs() {
        let who = |author: &str, users: &[(&str, &str)], managers: &[&str]| {
            let actor = |(user, impersonator): &(&str, &str)| Actor {
                user: (*user).to_owned(),
                impersonator: (*impersonator).to_owned(),
                ..Actor::default()
            };
            let managers = managers.iter().map(ToString::to_string).collect();
            let clients = vec!["kube-apiserver".to_owned()];
            let actors = users.iter().map(actor).collect();
            Who { actors, managers, clients, author: author.into(), committer: None }.text("gitcd")
        };
        assert_eq!(who("gitcd", &[("jane", "")], &["kubectl-edit"]), "jane (kubectl-edit)");
        assert_eq!(who("gitcd", &[("jane", "admin")], &[]), "jane (impersonated by admin)");
        assert_eq!(who("gitcd", &[("jane", ""), ("bob", "")], &[]), "jane, bob");
        assert_eq!(who("desk", &[("system:serviceaccount:n:a", "")], &["x"]), "desk: system:serviceaccount:n:a (x)");
    }
}
