//! Permissions of containers.

use k8s_openapi::api::core::v1::{Capabilities, SeccompProfile, SecurityContext};

/// The security context of a container. That of every injected container is [`restricted`](Self::restricted) by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Security {
    pub(super) context: SecurityContext,
}

impl Security {
    /// Returns what the Pod Security Standard *restricted* requires, with a read-only root file system.
    ///
    /// Kubelet then does not start a container whose image runs as root, unless it gets another [`user`](Self::user).
    pub fn restricted() -> Self {
        let drop = Some(vec!["ALL".to_owned()]);
        let context = SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { add: None, drop }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile { localhost_profile: None, type_: "RuntimeDefault".to_owned() }),
            ..SecurityContext::default()
        };
        Self { context }
    }

    /// Sets the user and the group.
    #[must_use]
    pub fn user(mut self, user: u32, group: u32) -> Self {
        self.context.run_as_user = Some(user.into());
        self.context.run_as_group = Some(group.into());
        self
    }

    /// Makes the root file system writable, which is deleted with the container.
    #[must_use]
    pub fn writable_root(mut self) -> Self {
        self.context.read_only_root_filesystem = None;
        self
    }

    /// Adds a capability. *Restricted* namespaces allow only `NET_BIND_SERVICE`.
    #[must_use]
    pub fn capability(mut self, capability: impl Into<String>) -> Self {
        let capabilities = self.context.capabilities.get_or_insert_default();
        capabilities.add.get_or_insert_default().push(capability.into());
        self
    }
}

impl Default for Security {
    fn default() -> Self {
        Self::restricted()
    }
}

/// Any other security context, unchanged.
impl From<SecurityContext> for Security {
    fn from(context: SecurityContext) -> Self {
        Self { context }
    }
}
