//! What cannot be planned.

/// Why there is no plan: a field, what is wrong with it, what to do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// A value that a flag of gitcd cannot hold.
    #[error("spec.{field}: {value:?} {problem}")]
    Value {
        /// The field, below `spec`.
        field: String,
        /// Its value.
        value: String,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
}

impl PlanError {
    pub(crate) fn value(field: impl Into<String>, value: &str, problem: &'static str) -> Self {
        Self::Value { field: field.into(), value: value.to_owned(), problem }
    }
}
