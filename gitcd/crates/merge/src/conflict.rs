//! Conflicts of a merge, as they are reported.

/// A field that both sides changed differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The field, such as `spec.containers[name=web].image`; empty for the whole value.
    pub field: String,
    /// The start of the kept value's JSON; `None` if there is none.
    pub kept: Option<String>,
    /// The start of the lost value's JSON.
    pub lost: Option<String>,
}

/// Formats the conflict on one line, whatever the values: `data.tea kept "9", lost "5"`.
impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let shown = |value: &Option<String>| value.as_deref().map_or_else(|| "nothing".to_owned(), plain);
        let field = if self.field.is_empty() { "the whole object" } else { &self.field };
        write!(f, "{} kept {}, lost {}", plain(field), shown(&self.kept), shown(&self.lost))
    }
}
