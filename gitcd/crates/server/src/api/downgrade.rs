//! The version that a cluster can be downgraded to (etcd: `server/etcdserver/version/manager.go`): the previous minor version.

use tonic::Status;

use super::status;

/// [`super::CLUSTER_VERSION`] in the format of etcd's downgrade responses.
pub(super) const CLUSTER_MINOR: &str = "3.6";
const TARGET: (u64, u64) = (3, 5);

/// Checks that a cluster of this version can be downgraded to `version`.
pub(super) fn check(version: &str) -> Result<(), Status> {
    let target = parse(version).ok_or_else(status::wrong_downgrade_version)?;
    if target == TARGET { Ok(()) } else { Err(status::invalid_downgrade_version()) }
}

/// Parses major and minor of a semantic version, whose patch is optional.
fn parse(version: &str) -> Option<(u64, u64)> {
    // Pre-release and build metadata do not matter.
    let numbers = version.split(['-', '+']).next()?;
    let mut numbers = numbers.split('.');
    let mut number = || {
        let digits = numbers.next()?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (major, minor) = (number()?, number()?);
    let is_whole = match numbers.next() {
        None => true,
        Some(patch) => {
            patch.bytes().all(|digit| digit.is_ascii_digit()) && !patch.is_empty() && numbers.next().is_none()
        }
    };
    is_whole.then_some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_minor_version_before_is_a_target() {
        for version in ["3.5.0", "3.5.21", "3.5"] {
            check(version).unwrap();
        }
        for version in ["3.4.0", "3.6.0", "3.6", "4.5.0", "0.0.0"] {
            assert_eq!(
                check(version).unwrap_err().message(),
                "etcdserver: invalid downgrade target version",
                "{version}"
            );
        }
        for version in ["", "x", "3", "3.x", "3.5.", "3.5.0.0", "v3.5.0", "-3.5.0"] {
            let message = check(version).unwrap_err().message().to_owned();
            assert_eq!(message, "etcdserver: wrong downgrade target version format", "{version}");
        }
    }

    #[test]
    fn the_version_is_the_clusters() {
        assert_eq!(parse(super::super::CLUSTER_VERSION), Some((3, 6)));
        assert_eq!(parse(CLUSTER_MINOR), Some((3, 6)));
    }
}
