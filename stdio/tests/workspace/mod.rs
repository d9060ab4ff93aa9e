//! The workspace whose files these tests read.

use std::path::{Path, PathBuf};

/// Returns the root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this crate is in a folder of the workspace").to_owned()
}
