//! Kinds of containers, and which of them kubelet waits for.

use super::brand::Brand;

mod sealed {
    use super::Place;

    pub trait Sealed {
        const PLACE: Place;
    }
}

/// The place of a container in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the init containers.
    Init,
    /// Among the init containers, but keeps running.
    Sidecar,
    /// Among the containers.
    Container,
}

impl Place {
    pub(super) fn list(self) -> &'static str {
        match self {
            Self::Init | Self::Sidecar => "initContainers",
            Self::Container => "containers",
        }
    }
}

/// The kind of a container: [`Init`], [`Sidecar`], [`StartedSidecar`], [`Plain`].
pub trait Kind: sealed::Sealed {
    /// The result of [`add`](super::Container::add).
    type Added<'p>;

    #[doc(hidden)]
    fn added(awaited: Awaited<'_>) -> Self::Added<'_>;
}

/// Kinds of containers that kubelet starts one after the other.
pub trait Ordered: Kind {}

/// Kinds of containers that run as long as the pod, and can be probed.
pub trait LongRunning: Kind {}

/// A container that kubelet waits for before it starts the next: one that ends, or one with a startup probe.
#[derive(Clone, Debug)]
pub struct Awaited<'p> {
    pub(super) name: String,
    _brand: Brand<'p>,
}

impl<'p> Awaited<'p> {
    pub(super) fn new(name: String, brand: Brand<'p>) -> Self {
        Self { name, _brand: brand }
    }
}

/// A container that runs to its end before the next one starts.
#[derive(Debug)]
pub enum Init {}

/// A container that starts before the user's and stops after them. The next one starts immediately.
#[derive(Debug)]
pub enum Sidecar {}

/// A [`Sidecar`] with a startup probe. The next one starts when that succeeds.
#[derive(Debug)]
pub enum StartedSidecar {}

/// A container that starts and stops with the user's.
#[derive(Debug)]
pub enum Plain {}

impl sealed::Sealed for Init {
    const PLACE: Place = Place::Init;
}
impl sealed::Sealed for Sidecar {
    const PLACE: Place = Place::Sidecar;
}
impl sealed::Sealed for StartedSidecar {
    const PLACE: Place = Place::Sidecar;
}
impl sealed::Sealed for Plain {
    const PLACE: Place = Place::Container;
}

impl Ordered for Init {}
impl Ordered for Sidecar {}
impl Ordered for StartedSidecar {}

impl LongRunning for Sidecar {}
impl LongRunning for StartedSidecar {}
impl LongRunning for Plain {}

impl Kind for Init {
    type Added<'p> = Awaited<'p>;

    fn added(awaited: Awaited<'_>) -> Awaited<'_> {
        awaited
    }
}

impl Kind for StartedSidecar {
    type Added<'p> = Awaited<'p>;

    fn added(awaited: Awaited<'_>) -> Awaited<'_> {
        awaited
    }
}

impl Kind for Sidecar {
    type Added<'p> = ();

    fn added(_: Awaited<'_>) {}
}

impl Kind for Plain {
    type Added<'p> = ();

    fn added(_: Awaited<'_>) {}
}
