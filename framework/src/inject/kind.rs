//! Kinds of containers, and what kubelet waits for.

use super::brand::Brand;

mod sealed {
    use super::Place;

    pub trait Sealed {
        const PLACE: Place;
    }
}

/// Where a container of a kind goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the init containers.
    Init,
    /// Among them too, but it goes on to run.
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

/// What a container is for: [`Init`], [`Sidecar`], [`StartedSidecar`], [`Plain`].
pub trait Kind: sealed::Sealed {
    /// What [`add`](super::Container::add) returns.
    type Added<'p>;

    #[doc(hidden)]
    fn added(awaited: Awaited<'_>) -> Self::Added<'_>;
}

/// Kinds that kubelet starts one after the other, in an order that can be asked for.
pub trait Ordered: Kind {}

/// Kinds that run as long as the pod, so that they can be probed.
pub trait LongRunning: Kind {}

/// A container that kubelet waits for before it starts the next: one that ends, or one that says when it has started.
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

/// Runs to its end before the next one starts.
#[derive(Debug)]
pub enum Init {}

/// Runs beside the user's containers, and is started before and stopped after them; the next one starts at once.
#[derive(Debug)]
pub enum Sidecar {}

/// A [`Sidecar`] with a start-up probe: the next one starts when that succeeds.
#[derive(Debug)]
pub enum StartedSidecar {}

/// Runs beside the user's containers, started and stopped at the same time.
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
