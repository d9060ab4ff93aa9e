//! `trishanku graph`: gitcd's drawing of the repository in which all branches are to be found.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use trishanku::plane::assets::find_gitcd;
use trishanku::plane::{Home, State};
use trishanku::status;

/// Replaces this process by `gitcd graph`; returns only to say why that did not work.
pub(crate) fn become_graph(home: &Home, heaven: Option<&str>, args: &[OsString]) -> anyhow::Error {
    let found = || {
        let state = State::load(&home.state_file())?;
        let repository = match heaven {
            None => status::repository(home, &state),
            Some(name) => Some(crate::kubectl::heaven(&state, name)?.repository),
        };
        let repository = repository.filter(|repository| repository.exists());
        let dir = home.dir().display();
        let repository = repository.ok_or_else(|| anyhow::anyhow!("there is no repository in {dir} yet"))?;
        let explicit = std::env::var_os("TRISHANKU_GITCD").map(std::path::PathBuf::from);
        Ok((repository, find_gitcd(explicit.as_deref())?))
    };
    match found() {
        Err(error) => error,
        Ok((repository, gitcd)) => {
            let error = Command::new(&gitcd).arg("graph").arg("--repo").arg(repository).args(args).exec();
            anyhow::anyhow!("cannot start {}: {error}", gitcd.display())
        }
    }
}
