//! The manager's own namespace, in which a pod could use the manager's service account.

use trishanku_framework::Key;

/// The namespace in which heavens and merges are refused; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnNamespace(Option<String>);

/// Error: an object is in the manager's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "namespace {0:?} is the manager's own, where containers and scripts of this object could use the manager's service account: \
     move the object to another namespace, or start the manager with --allow-own-namespace"
)]
pub struct InOwnNamespace(String);

impl OwnNamespace {
    /// Refuses objects in this namespace.
    pub fn refused(namespace: impl Into<String>) -> Self {
        Self(Some(namespace.into()))
    }

    /// Checks where an object is.
    ///
    /// # Errors
    /// [`InOwnNamespace`] if it is refused there.
    pub fn check(&self, object: &Key) -> Result<(), InOwnNamespace> {
        match &self.0 {
            Some(own) if object.namespace() == Some(own) => Err(InOwnNamespace(own.clone())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_in_the_managers_namespace_are_refused() {
        let [here, there] = ["system", "team"].map(|namespace| Key::namespaced(namespace, "a"));
        let own = OwnNamespace::refused("system");
        let said = own.check(&here).unwrap_err().to_string();
        assert!(said.contains("\"system\"") && said.contains("--allow-own-namespace"), "{said}");
        assert_eq!((own.check(&there), OwnNamespace::default().check(&here)), (Ok(()), Ok(())));
    }
}
