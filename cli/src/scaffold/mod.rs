//! Generates controllers: a crate that builds, passes a test on a real kube-apiserver, and can be deployed before any
//! change.

mod name;
mod source;

use std::io;
use std::path::{Path, PathBuf};

pub use self::name::{Name, NameError};
pub use self::source::{Source, SourceError};

/// Paths and contents of the generated files.
const FILES: [(&str, &str); 17] = [
    (".dockerignore", include_str!("../../templates/controller/dockerignore.in")),
    (".gitignore", include_str!("../../templates/controller/gitignore.in")),
    ("Cargo.toml", include_str!("../../templates/controller/Cargo.toml.in")),
    ("Dockerfile", include_str!("../../templates/controller/Dockerfile.in")),
    ("README.md", include_str!("../../templates/controller/README.md.in")),
    ("deploy/crd.yaml", include_str!("../../templates/controller/deploy/crd.yaml.in")),
    ("deploy/deployment.yaml", include_str!("../../templates/controller/deploy/deployment.yaml.in")),
    ("deploy/kustomization.yaml", include_str!("../../templates/controller/deploy/kustomization.yaml.in")),
    ("deploy/namespace.yaml", include_str!("../../templates/controller/deploy/namespace.yaml.in")),
    ("deploy/rbac.yaml", include_str!("../../templates/controller/deploy/rbac.yaml.in")),
    ("example.yaml", include_str!("../../templates/controller/example.yaml.in")),
    ("rustfmt.toml", include_str!("../../templates/controller/rustfmt.toml.in")),
    ("src/kind.rs", include_str!("../../templates/controller/src/kind.rs.in")),
    ("src/lib.rs", include_str!("../../templates/controller/src/lib.rs.in")),
    ("src/main.rs", include_str!("../../templates/controller/src/main.rs.in")),
    ("src/reconcile.rs", include_str!("../../templates/controller/src/reconcile.rs.in")),
    ("tests/controller.rs", include_str!("../../templates/controller/tests/controller.rs.in")),
];

/// Why no controller was generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScaffoldError {
    /// The folder exists and may contain work.
    #[error("{0:?} already exists; choose another name, or move it away")]
    Exists(PathBuf),
    /// A file or folder cannot be written.
    #[error("cannot write {path:?}")]
    Write {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Generates a controller in a new folder of this name in `parent`; returns the folder.
///
/// # Errors
/// [`ScaffoldError`]; then no new folder is left behind.
pub fn controller(parent: &Path, name: &Name, framework: &Source) -> Result<PathBuf, ScaffoldError> {
    let folder = parent.join(name.as_str());
    match std::fs::create_dir(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(ScaffoldError::Exists(folder)),
        Err(source) => return Err(ScaffoldError::Write { path: folder, source }),
    }
    for (path, template) in FILES {
        let path = folder.join(path);
        if let Err(source) = write(&path, &fill(template, name, framework)) {
            // All files in the folder are ours, and half a controller is useless.
            let _removed = std::fs::remove_dir_all(&folder);
            return Err(ScaffoldError::Write { path, source });
        }
    }
    Ok(folder)
}

fn write(path: &Path, content: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, content)
}

fn fill(template: &str, name: &Name, framework: &Source) -> String {
    let (kind, plural) = (name.kind(), name.plural());
    let values = [
        ("{{name}}", name.as_str()),
        ("{{crate}}", &name.as_str().replace('-', "_")),
        ("{{Kind}}", &kind),
        ("{{kind}}", &kind.to_lowercase()),
        ("{{plural}}", &plural),
        ("{{group}}", "example.org"),
        ("{{framework}}", &framework.dependency("framework")),
        ("{{testkit}}", &framework.dependency("testkit")),
        ("{{mount}}", &framework.mount()),
        ("{{build}}", &framework.build(name.as_str())),
    ];
    values.into_iter().fold(template.to_owned(), |text, (hole, value)| text.replace(hole, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hole_is_left_and_what_is_there_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let (name, source) = ("rain-gauge".parse().unwrap(), "https://example.org/r".parse().unwrap());
        let folder = controller(parent.path(), &name, &source).unwrap();
        for (path, _) in FILES {
            let text = std::fs::read_to_string(folder.join(path)).unwrap();
            assert!(!text.contains("{{") && !text.contains("}}"), "{path}: {text}");
        }
        std::fs::write(folder.join("Cargo.toml"), "mine").unwrap();
        let error = controller(parent.path(), &name, &source).unwrap_err();
        assert!(matches!(error, ScaffoldError::Exists(_)), "{error}");
        assert_eq!(std::fs::read_to_string(folder.join("Cargo.toml")).unwrap(), "mine");
        let error = controller(&parent.path().join("none"), &name, &source).unwrap_err();
        assert!(matches!(error, ScaffoldError::Write { .. }), "{error}");
    }
}
