//! Components whose programs are shell scripts.

use std::path::Path;
use std::time::Duration;

use trishanku::plane::components::{Component, Invocation, Probe};

/// Far more than a component needs to become ready.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a script in a folder.
pub(crate) fn script(folder: &Path, text: &str) -> Invocation {
    let args = vec!["-c".into(), text.into()];
    Invocation { program: "/bin/sh".into(), args, folder: Some(folder.into()), ..Invocation::default() }
}

/// Returns an essential component that runs a script, is ready at once, and logs to `log` in its folder.
pub(crate) fn component(folder: &Path, name: &str, text: &str, after: &[&str]) -> Component {
    Component {
        name: name.to_owned(),
        port: None,
        after: after.iter().map(ToString::to_string).collect(),
        prepare: Vec::new(),
        prepare_again: true,
        is_essential: true,
        takes_turns: false,
        run: script(folder, text),
        probe: Probe::Running(Duration::ZERO),
        alive: None,
        grace: PATIENCE,
        log: folder.join("log"),
    }
}
