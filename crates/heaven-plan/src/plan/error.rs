//! Errors in manifests.

/// Why there is no plan: the field, the problem and its solution.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A value that gitcd's flags cannot express.
    #[error("spec.{field}: {value:?} {problem}")]
    Value {
        /// The field, below `spec`.
        field: String,
        /// Its value.
        value: String,
        /// What is wrong, and how to fix it.
        problem: &'static str,
    },
}

impl PlanError {
    pub(crate) fn value(field: impl Into<String>, value: &str, problem: &'static str) -> Self {
        Self::Value { field: field.into(), value: value.to_owned(), problem }
    }
}
