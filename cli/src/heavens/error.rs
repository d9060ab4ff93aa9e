//! Why manifests cannot be run.

use std::path::PathBuf;

use trishanku_sidecars::plan::PlanError;

use super::secrets::SecretError;

/// Why manifests cannot be run as processes: which one, what is wrong, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// A field has a value that cannot be.
    #[error("{of}: {source}")]
    Plan {
        /// Heaven or merge.
        of: String,
        /// The field.
        source: PlanError,
    },
    /// A pod template is none.
    #[error("{of}: spec.app.podTemplate: {reason}")]
    Template {
        /// The heaven.
        of: String,
        /// What is wrong.
        reason: String,
    },
    /// Something of a pod that no process can have.
    #[error("{of}: {what} cannot be given to a process on this machine{remedy}")]
    Unsupported {
        /// The heaven, and the container or volume.
        of: String,
        /// What it is.
        what: String,
        /// What to do, with what is before it.
        remedy: &'static str,
    },
    /// Nobody knows which program an image stands for.
    #[error("{of}: no program is known for image {image:?}: give --image-program={image}=PATH")]
    NoProgram {
        /// The heaven and the container.
        of: String,
        /// Its image.
        image: String,
    },
    /// The program is not there.
    #[error("{of}: there is no program {program:?}, which replaces image {image:?}")]
    ProgramNotFound {
        /// The heaven and the container.
        of: String,
        /// Its image.
        image: String,
        /// What was looked for.
        program: PathBuf,
    },
    /// A `ConfigMap` or a key in it is not there.
    #[error("{of} needs ConfigMap {name:?}{key}: add it to the files")]
    NoConfigMap {
        /// Who.
        of: String,
        /// Its name.
        name: String,
        /// The key, with words before it.
        key: String,
    },
    /// Two processes would have the same name.
    #[error("{0:?} is there twice: rename one of them")]
    Twice(String),
    /// An option of the command line is about something that is not there.
    #[error("--{option}={value}: {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// Why it has no meaning.
        problem: String,
    },
    /// See [`SecretError`].
    #[error(transparent)]
    Secret(#[from] SecretError),
}
