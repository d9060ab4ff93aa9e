//! Errors of manifests that cannot run as processes.

use std::path::PathBuf;

use trishanku_heaven_plan::plan::PlanError;

use super::secrets::SecretError;

/// Why manifests cannot run as processes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// A field has an invalid value.
    #[error("{of}: {source}")]
    Plan {
        /// The heaven or merge.
        of: String,
        /// The error about the field.
        source: PlanError,
    },
    /// A pod template is invalid.
    #[error("{of}: spec.app.podTemplate: {reason}")]
    Template {
        /// The heaven.
        of: String,
        /// What is wrong.
        reason: String,
    },
    /// A feature of pods that processes do not have.
    #[error("{of}: {what} cannot be given to a process on this machine{remedy}")]
    Unsupported {
        /// The heaven, and the container or volume.
        of: String,
        /// The feature.
        what: String,
        /// What to do, with punctuation before it.
        remedy: &'static str,
    },
    /// No program is known for an image.
    #[error("{of}: no program is known for image {image:?}: give --image-program={image}=PATH")]
    NoProgram {
        /// The heaven and the container.
        of: String,
        /// Its image.
        image: String,
    },
    /// The program does not exist.
    #[error("{of}: there is no program {program:?}, which replaces image {image:?}")]
    ProgramNotFound {
        /// The heaven and the container.
        of: String,
        /// Its image.
        image: String,
        /// The path.
        program: PathBuf,
    },
    /// A `ConfigMap` or its key is missing.
    #[error("{of} needs ConfigMap {name:?}{key}: add it to the files")]
    NoConfigMap {
        /// The heaven and its container or volume.
        of: String,
        /// Its name.
        name: String,
        /// The key, with text before it; or empty.
        key: String,
    },
    /// Two processes have the same name.
    #[error("{0:?} exists twice: rename one of them")]
    Twice(String),
    /// A command-line option matches nothing.
    #[error("--{option}={value}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        problem: String,
    },
    /// See [`SecretError`].
    #[error(transparent)]
    Secret(#[from] SecretError),
}
