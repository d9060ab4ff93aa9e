//! The number of files that the process may have open.

use rustix::io;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit where the system has none.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard one, as Go programs do. Connections, packs and references all need one each, and
/// the usual soft limit of 1,024 is for programs that use `select`. Returns the new limit. Child processes inherit it.
///
/// # Errors
/// The system's error; then the limit is unchanged.
///
/// ```
/// let raised = gitcd_core::descriptors::raise_limit()?;
/// assert_eq!(gitcd_core::descriptors::limit(), raised);
/// # Ok::<(), rustix::io::Errno>(())
/// ```
pub fn raise_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    Ok(limit())
}

/// Returns how many files this process may have open.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED).min(UNLIMITED)
}
