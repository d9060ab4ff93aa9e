//! `trishanku graph`: draws the repository that has all branches, with gitcd.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use trishanku::plane::assets::find_gitcd;
use trishanku::plane::{Home, State};
use trishanku::status;

/// Replaces this process with `gitcd graph`; returns only if that fails.
pub(crate) fn become_graph(home: &Home, heaven: Option<&str>, args: &[OsString]) -> anyhow::Error {
    let explicit = std::env::var_os("TRISHANKU_GITCD").map(PathBuf::from);
    let gitcd = match find_gitcd(explicit.as_deref()) {
        Ok(gitcd) => gitcd,
        Err(error) => return error.into(),
    };
    let become_gitcd = |repository: Option<PathBuf>| {
        let repository = repository.iter().flat_map(|repository| ["--repo".as_ref(), repository.as_os_str()]);
        let error = Command::new(&gitcd).arg("graph").args(repository).args(args).exec();
        anyhow::anyhow!("cannot start {}: {error}", gitcd.display())
    };
    // Help is available without a repository.
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        return become_gitcd(None);
    }
    let found = || {
        let state = State::load(&home.state_file())?;
        let repository = match heaven {
            None => status::repository(home, &state),
            Some(name) => Some(crate::kubectl::heaven(&state, name)?.repository),
        };
        let repository = repository.filter(|repository| repository.exists());
        let dir = home.dir().display();
        repository.ok_or_else(|| anyhow::anyhow!("there is no repository in {dir} yet"))
    };
    match found() {
        Err(error) => error,
        Ok(repository) => become_gitcd(Some(repository)),
    }
}
