//! One client per token, so that all objects with the same token share its limits.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use trishanku_framework::Key;

use crate::GitHubSettings;
use crate::github::{Access, AccessError, Client};

/// The clients in use. An unused client is dropped, with its token.
#[derive(Debug)]
pub(crate) struct Clients {
    settings: GitHubSettings,
    both: Mutex<Both>,
}

#[derive(Debug, Default)]
struct Both {
    of_object: HashMap<Key, ([u8; 32], Arc<Client>)>,
    all: HashMap<[u8; 32], Weak<Client>>,
}

impl Clients {
    pub(crate) fn new(settings: GitHubSettings) -> Self {
        Self { settings, both: Mutex::default() }
    }

    /// Returns the client for an object from now on, with the fingerprint of its access.
    pub(crate) fn of(&self, key: &Key, access: Access) -> Result<([u8; 32], Arc<Client>), AccessError> {
        let fingerprint = access.fingerprint();
        let mut both = self.both.lock();
        if let Some(client) = both.all.get(&fingerprint).and_then(Weak::upgrade) {
            both.of_object.insert(key.clone(), (fingerprint, client.clone()));
            return Ok((fingerprint, client));
        }
        let client = Arc::new(Client::new(access, &self.settings)?);
        both.of_object.insert(key.clone(), (fingerprint, client.clone()));
        both.all.retain(|_, client| client.strong_count() > 0);
        both.all.insert(fingerprint, Arc::downgrade(&client));
        Ok((fingerprint, client))
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.both.lock().of_object.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Servers;

    #[tokio::test]
    async fn objects_with_one_token_have_one_client_and_a_new_token_makes_another() {
        let clients = Clients::new(GitHubSettings::default());
        let of = |name: &str, token: &[u8]| {
            clients
                .of(&Key::namespaced("x", name), Access::new(None, token, None, &Servers::default()).unwrap())
                .unwrap()
                .1
        };
        let (a, b) = (of("a", b"one"), of("b", b"one"));
        assert!(Arc::ptr_eq(&a, &b));
        let old = Arc::downgrade(&a);
        drop((a, b));
        let a = of("a", b"two");
        assert!(old.strong_count() == 1 && clients.both.lock().all.len() == 2);
        of("b", b"two");
        assert_eq!((old.strong_count(), Arc::strong_count(&a)), (0, 3));
        clients.forget(&Key::namespaced("x", "b"));
        assert_eq!(Arc::strong_count(&a), 2);
    }
}
