//! Names that are valid for all that is named after a controller.

use std::str::FromStr;

/// The name of a controller, such as `rain-gauge`: of its folder, crate, namespace and service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

/// Leaves room in Kubernetes' limit of 63 characters for names derived from it.
const LONGEST: usize = 50;

/// Why a name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// It is too long.
    #[error("it has {0} characters; at most {LONGEST} are allowed")]
    Long(usize),
    /// Kubernetes does not allow the character.
    #[error("{0:?} is not allowed: use lower-case letters, digits and hyphens")]
    Character(char),
    /// Kubernetes and Cargo want a letter first.
    #[error("it must start with a letter, not with {0:?}")]
    Begin(char),
    /// Kubernetes does not allow it, or a word of the kind would be empty.
    #[error("it cannot end with a hyphen, nor have two of them in a row")]
    Hyphen,
    /// The name is reserved.
    #[error("{0:?} means something else to Rust, Cargo or YAML, or is used by every controller; choose another name")]
    Taken(String),
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let begin = text.chars().next().ok_or(NameError::Empty)?;
        let good = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
        if let Some(bad) = text.chars().find(|c| !good(c)) {
            return Err(NameError::Character(bad));
        }
        if !begin.is_ascii_lowercase() {
            return Err(NameError::Begin(begin));
        }
        if text.ends_with('-') || text.contains("--") {
            return Err(NameError::Hyphen);
        }
        if text.len() > LONGEST {
            return Err(NameError::Long(text.len()));
        }
        let name = Self(text.to_owned());
        if is_in(TAKEN, text) || is_in(TYPES, &name.kind()) {
            return Err(NameError::Taken(text.to_owned()));
        }
        Ok(name)
    }
}

impl Name {
    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind, such as `RainGauge`.
    pub fn kind(&self) -> String {
        let word = |word: &str| word[..1].to_uppercase() + &word[1..];
        self.0.split('-').map(word).collect()
    }

    /// The plural of the kind in API paths, such as `raingauges`. Covers common English rules; it can be changed later.
    pub fn plural(&self) -> String {
        let one = self.0.replace('-', "");
        let ends = |ends: &[&str]| ends.iter().any(|end| one.ends_with(end));
        match one.strip_suffix('y') {
            Some(stem) if !ends(&["ay", "ey", "iy", "oy", "uy"]) => format!("{stem}ies"),
            _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{one}es"),
            _ => format!("{one}s"),
        }
    }
}

fn is_in(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|taken| taken == word)
}

/// Keywords of Rust, names that Cargo rejects, dependencies of a controller, and words with a meaning in YAML.
const TAKEN: &str = "\
    abstract alloc anyhow as async await become box break build const continue core crate deps do dyn else enum \
    examples extern false final fn for gen if impl in incremental k8s-openapi kube let loop macro match mod move \
    mut n no null off on override priv proc-macro pub ref return schemars self serde serde-json serde-saphyr \
    static std struct super test tokio trait trishanku-framework trishanku-testkit true try type typeof union \
    unsafe use virtual where y yes yield";

/// Types that a generated controller imports, so its kind cannot have these names.
const TYPES: &str = "\
    Action Api ApiResource Arc Client Condition Conditions ConfigMap Context Controller CustomResource Default \
    Definitions DynamicObject Error ExitCode GroupVersionKind JsonSchema Kinds KubeSchema Manager Option Owned Patch \
    Program Reconciler Report Result Self StatusReconciler String Vec WithStatus";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_for_kubernetes_and_for_cargo_or_refused_with_the_reason() {
        for name in ["rain-gauge", "a", "x1", "a-1", &"a".repeat(LONGEST)] {
            assert!(name.parse::<Name>().is_ok(), "{name}");
        }
        for (name, expected) in [
            ("", "the name is empty"),
            ("Tank", "'T' is not allowed: use lower-case letters, digits and hyphens"),
            ("rain_gauge", "'_' is not allowed"),
            ("../up", "'.' is not allowed"),
            ("töpfe", "'ö' is not allowed"),
            ("1tank", "it must start with a letter, not with '1'"),
            ("-tank", "it must start with a letter, not with '-'"),
            ("tank-", "it cannot end with a hyphen"),
            ("rain--gauge", "two of them in a row"),
            ("fn", r#""fn" means something else to Rust"#),
            ("yes", r#""yes" means something else"#),
            ("config-map", r#""config-map" means something else"#),
            (&"a".repeat(LONGEST + 1), "it has 51 characters; at most 50 are allowed"),
        ] {
            let error = name.parse::<Name>().unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }

    #[test]
    fn kinds_and_plurals_are_made_of_words() {
        for (name, kind, plural) in [
            ("rain-gauge", "RainGauge", "raingauges"),
            ("policy", "Policy", "policies"),
            ("relay", "Relay", "relays"),
            ("mail-box", "MailBox", "mailboxes"),
            ("x-y", "XY", "xies"),
        ] {
            let name: Name = name.parse().unwrap();
            assert_eq!((name.kind().as_str(), name.plural().as_str()), (kind, plural));
        }
    }
}
