//! Branches and remotes of a manifest, as gitcd's flags have them.

use trishanku_api::{Gitcd, Remote};

use super::PlanError;

/// A branch with its remotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) data: String,
    pub(super) metadata: String,
    pub(super) must_be_there: bool,
    pub(super) remotes: Vec<Followed>,
}

/// A remote from which the branch pulls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) data: String,
    pub(super) must_be_there: bool,
    /// 0 if the manifest sets none: the later write wins.
    pub(super) resolution: u8,
    pub(super) include: Option<String>,
    pub(super) exclude: Option<String>,
}

const DATA: &str = "main";
const REMOTE: &str = "origin";
/// Match all keys and no key: the same as no expression.
pub(super) const ALL: &str = ".*";
pub(super) const NONE: &str = "^$";

impl Branch {
    pub(super) fn of(gitcd: &Gitcd) -> Result<Self, PlanError> {
        let git = gitcd.git.clone().unwrap_or_default();
        let own = git.branches.unwrap_or_default();
        let data = reference("gitcd.git.branches.data", own.data.as_deref().unwrap_or(DATA))?;
        let metadata = match &own.metadata {
            Some(metadata) => reference("gitcd.git.branches.metadata", metadata)?,
            None => format!("refs/gitcd/metadata/{}", short(&data)),
        };
        if data == metadata {
            let problem = "is the data branch, too: give the metadata one of its own";
            return Err(PlanError::value("gitcd.git.branches.metadata", &metadata, problem));
        }
        let remotes = git.remotes.iter().enumerate().map(|(at, remote)| Followed::of(at, remote, &data));
        let remotes = remotes.collect::<Result<Vec<_>, _>>()?;
        for (at, remote) in remotes.iter().enumerate() {
            if remotes[..at].iter().any(|earlier| earlier.name == remote.name) {
                let field = format!("gitcd.git.remotes[{at}].name");
                return Err(PlanError::value(field, &remote.name, "exists twice: give remotes different names"));
            }
        }
        Ok(Self { data, metadata, must_be_there: own.fail_on_no_branch.unwrap_or_default(), remotes })
    }

    /// Joins one value per remote, for gitcd's flags.
    pub(super) fn list(&self, of: impl Fn(&Followed) -> String) -> String {
        self.remotes.iter().map(of).collect::<Vec<_>>().join(":")
    }
}

impl Followed {
    fn of(at: usize, remote: &Remote, own: &str) -> Result<Self, PlanError> {
        let field = |name: &str| format!("gitcd.git.remotes[{at}].{name}");
        let branches = remote.branches.clone().unwrap_or_default();
        let data = match &branches.data {
            Some(data) => reference(&field("branches.data"), data)?,
            None => own.to_owned(),
        };
        let policies = remote.retention_policies.clone().unwrap_or_default();
        let expression = |name: &str, given: Option<String>| {
            given.map(|given| in_a_list(&field(&format!("retentionPolicies.{name}")), &given)).transpose()
        };
        let has_password = remote.repo.split_once("://").is_some_and(|(_, rest)| {
            let authority = rest.split('/').next().unwrap_or_default();
            authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        });
        if has_password {
            // The message does not repeat the URL: it has a secret.
            let problem = "has a password, but is not secret: put it into the Secret that credentialsSecretName names";
            return Err(PlanError::value(field("repo"), "…", problem));
        }
        Ok(Self {
            name: remote.name.clone().unwrap_or_else(|| REMOTE.to_owned()),
            url: remote.repo.clone(),
            data,
            must_be_there: branches.fail_on_no_branch.unwrap_or_default(),
            resolution: remote.conflict_resolution.map_or(0, trishanku_api::ConflictResolution::number),
            include: expression("include", policies.include.filter(|given| given != ALL))?,
            exclude: expression("exclude", policies.exclude.filter(|given| given != NONE))?,
        })
    }

    pub(super) fn is_whole(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }
}

/// Converts a branch name to a reference.
fn reference(field: &str, name: &str) -> Result<String, PlanError> {
    // Flags separate values with these characters.
    if name.contains([',', ':']) || name.is_empty() {
        return Err(PlanError::value(
            field,
            name,
            "is not a valid branch name here: it must not be empty, or contain ',' or ':'",
        ));
    }
    Ok(if name.starts_with("refs/") { name.to_owned() } else { format!("refs/heads/{name}") })
}

fn short(reference: &str) -> &str {
    reference.strip_prefix("refs/heads/").or_else(|| reference.strip_prefix("refs/")).unwrap_or(reference)
}

/// Rewrites a regular expression without `:` and `,`, which separate values in flags.
fn in_a_list(field: &str, expression: &str) -> Result<String, PlanError> {
    let refuse = |problem| Err(PlanError::value(field, expression, problem));
    let (mut out, mut letters) = (String::new(), expression.chars().peekable());
    let (mut in_class, mut in_braces) = (false, false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                out.push(letter);
                match letters.next() {
                    // Not taken for separators, and the same as without the backslash.
                    Some(':') => out.push(':'),
                    Some(',') => out.push_str("x2C"),
                    Some(other) => out.push(other),
                    None => {}
                }
            }
            '[' if in_class && letters.peek() == Some(&':') => {
                return refuse("has a class with a name, such as [:alpha:]: write the letters, as [a-zA-Z]");
            }
            '(' if !in_class && letters.peek() == Some(&'?') => {
                letters.next();
                match letters.next() {
                    // A capturing group matches the same as one that does not capture.
                    Some(':') => out.push('('),
                    Some(other) => {
                        out.push_str("(?");
                        out.push(other);
                        if other != 'P' && other != '<' {
                            let flags = std::iter::from_fn(|| letters.next_if(|next| *next != ')' && *next != ':'));
                            out.extend(flags);
                            if letters.peek() == Some(&':') {
                                return refuse(
                                    "has a group with flags, such as (?i:x): put the flags in front of all, as (?i)",
                                );
                            }
                        }
                    }
                    None => out.push_str("(?"),
                }
            }
            '{' if !in_class => {
                in_braces = true;
                out.push(letter);
            }
            ',' if in_braces => return refuse("has a repetition with two bounds, such as {1,3}: write it out"),
            ',' => out.push_str("\\x2C"),
            ':' => out.push_str("\\:"),
            _ => {
                in_class = (in_class || letter == '[') && letter != ']';
                in_braces = in_braces && letter != '}';
                out.push(letter);
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_values_of_a_list() {
        for (given, expected) in [
            ("^/registry/pods/", "^/registry/pods/"),
            ("a:b,c", "a\\:b\\x2Cc"),
            ("a\\:b\\,c\\\\", "a\\:b\\x2Cc\\\\"),
            ("(?:pods|nodes)/", "(pods|nodes)/"),
            ("(?i)PODS", "(?i)PODS"),
            ("(?P<x>a)", "(?P<x>a)"),
            ("[a:b]{2}", "[a\\:b]{2}"),
        ] {
            assert_eq!(in_a_list("f", given).as_deref(), Ok(expected));
        }
        for (given, remedy) in [("a{1,3}", "write it out"), ("[[:alpha:]]", "[a-zA-Z]"), ("(?i:a)", "in front")] {
            let said = in_a_list("gitcd.x", given).unwrap_err().to_string();
            assert!(said.contains(remedy) && said.contains("spec.gitcd.x") && said.contains(given), "{said}");
        }
    }
}
