//! Ports of a container.

use super::Container;
use crate::inject::kind::Kind;
use crate::inject::port::{self, Port, Protocol, Sctp, Tcp, Udp};

impl<'c, 'p, K: Kind> Container<'c, 'p, K> {
    /// Declares a TCP port. If another container of the pod declares the same number, that is a collision.
    pub fn port(&mut self, name: impl Into<String>, number: u16) -> Port<'c, 'p> {
        self.declare::<Tcp>(name.into(), number)
    }

    /// Declares a UDP port. If another container of the pod declares the same number for UDP, that is a collision. Probes and
    /// hooks do not accept it.
    pub fn udp_port(&mut self, name: impl Into<String>, number: u16) -> Port<'c, 'p, Udp> {
        self.declare::<Udp>(name.into(), number)
    }

    /// Declares an SCTP port. If another container of the pod declares the same number for SCTP, that is a collision. Probes
    /// and hooks do not accept it.
    pub fn sctp_port(&mut self, name: impl Into<String>, number: u16) -> Port<'c, 'p, Sctp> {
        self.declare::<Sctp>(name.into(), number)
    }

    /// Declares a TCP port with a free number: the first from `from` that no container has declared so far, and that the
    /// user's template does not probe. If the pod is in the node's network, the node's own programs do not listen on it
    /// either.
    ///
    /// The same template gets the same number, even if this was injected into it before. Declare ports with fixed numbers
    /// first: later declarations are not known yet.
    pub fn port_near(&mut self, name: impl Into<String>, from: u16) -> Port<'c, 'p> {
        self.declare_near::<Tcp>(name.into(), from)
    }

    /// Declares a UDP port with a free number, like [`port_near`](Self::port_near).
    pub fn udp_port_near(&mut self, name: impl Into<String>, from: u16) -> Port<'c, 'p, Udp> {
        self.declare_near::<Udp>(name.into(), from)
    }

    /// Forwards a port of the node to a port of the container, once for each.
    ///
    /// If another container of the pod uses the same port of the node, that is a collision; so is another number in a pod in
    /// the node's network. Other pods are not checked: the scheduler puts pods with the same host port on different nodes.
    /// The Pod Security Standard *baseline* forbids host ports.
    pub fn host_port<T: Protocol>(mut self, port: &Port<'c, 'p, T>, number: u16) -> Self {
        let declared = self.unadded.raw.ports.iter_mut().flatten().find(|declared| port.is(declared));
        let slot = declared.map(|declared| &mut declared.host_port);
        match slot {
            Some(slot) if slot.is_none() => *slot = Some(number.into()),
            _ => {
                let shown = port::shown(port.number().into(), port::protocol_of::<T>());
                self.unadded.set_twice(&format!("ports[{shown}].hostPort"));
            }
        }
        self
    }

    fn declare<T: Protocol>(&mut self, name: String, number: u16) -> Port<'c, 'p, T> {
        self.unadded.raw.ports.get_or_insert_default().push(port::declaration::<T>(name, number));
        Port::new(number, self.unadded.pod.brand)
    }

    fn declare_near<T: Protocol>(&mut self, name: String, from: u16) -> Port<'c, 'p, T> {
        let free = self.unadded.pod.free_port(&self.unadded.raw, port::protocol_of::<T>(), from);
        let number = free.unwrap_or_else(|| {
            let found = format!("has no free number from {from} on");
            self.unadded.invalid(&format!("ports[{name}]"), &found, "start from a lower number");
            from
        });
        self.declare(name, number)
    }
}
