//! The builder of a container.

mod network;
mod probes;
mod raw;
mod settings;

use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Container as Raw;

use super::kind::{Awaited, Kind, Ordered, Place};
use super::pod::Pod;
use super::security::Security;

pub use self::settings::PullPolicy;

/// A container under construction; [`add`](Self::add) puts it into the pod.
///
/// It borrows the pod until then, so containers are built one after the other. `K` is its kind: [`Init`](super::Init),
/// [`Sidecar`](super::Sidecar), [`StartedSidecar`](super::StartedSidecar), [`Plain`](super::Plain).
///
/// Nothing is overwritten silently: [`finish`](super::Injector::finish) reports a container that was dropped before `add`,
/// and everything that was set twice.
#[derive(Debug)]
#[must_use = "the container is in the pod only after `add`"]
pub struct Container<'c, 'p, K> {
    unadded: Unadded<'c, 'p>,
    kind: PhantomData<K>,
}

/// A container that is not in the pod yet. If it is dropped, it reports that.
#[derive(Debug)]
struct Unadded<'c, 'p> {
    pod: &'c mut Pod<'p>,
    place: Place,
    raw: Raw,
    waits_for: Vec<String>,
    /// Whether the security context is no longer the default.
    has_security: bool,
    is_added: bool,
}

impl<'c, 'p, K: Kind> Container<'c, 'p, K> {
    pub(super) fn new(pod: &'c mut Pod<'p>, name: String, image: String) -> Self {
        let security_context = Some(Security::restricted().context);
        let raw = Raw { name, image: Some(image), security_context, ..Raw::default() };
        let (place, waits_for) = (K::PLACE, Vec::new());
        Self {
            unadded: Unadded { pod, place, raw, waits_for, has_security: false, is_added: false },
            kind: PhantomData,
        }
    }

    /// Puts it into the pod.
    ///
    /// [`finish`](super::Injector::finish) reports what is invalid in the container itself (names, paths, duplicates).
    pub fn add(self) -> K::Added<'p> {
        let mut unadded = self.unadded;
        let awaited = Awaited::new(unadded.raw.name.clone(), unadded.pod.brand);
        unadded.add();
        K::added(awaited)
    }
}

impl<'p, K: Ordered> Container<'_, 'p, K> {
    /// Starts the container only after `earlier` has ended or started.
    ///
    /// That is the case anyway, since containers start in the order in which they were added. This makes the compiler and
    /// [`finish`](super::Injector::finish) ensure that it stays so.
    pub fn after(mut self, earlier: &Awaited<'p>) -> Self {
        self.unadded.waits_for.push(earlier.name.clone());
        self
    }
}

impl<'c, 'p, K> Container<'c, 'p, K> {
    fn but(mut self, change: impl FnOnce(&mut Raw)) -> Self {
        change(&mut self.unadded.raw);
        self
    }

    /// Sets a field that has no value yet, and reports one that has.
    fn once<T>(mut self, field: &str, value: T, slot: impl FnOnce(&mut Raw) -> &mut Option<T>) -> Self {
        let slot = slot(&mut self.unadded.raw);
        if slot.is_some() {
            self.unadded.set_twice(field);
        } else {
            *slot = Some(value);
        }
        self
    }

    fn of_kind<L>(self) -> Container<'c, 'p, L> {
        Container { unadded: self.unadded, kind: PhantomData }
    }
}

impl Unadded<'_, '_> {
    fn path(&self) -> String {
        format!("spec.{}[{}]", self.place.list(), self.raw.name)
    }

    fn set_twice(&mut self, field: &str) {
        self.invalid(field, "is set twice", "set it once");
    }

    fn invalid(&mut self, field: &str, found: &str, remedy: &str) {
        let path = format!("{}.{field}", self.path());
        self.pod.problems().invalid(path, found.to_owned(), remedy);
    }

    fn add(&mut self) {
        self.is_added = true;
        self.pod.add(self.place, std::mem::take(&mut self.raw), std::mem::take(&mut self.waits_for));
    }
}

impl Drop for Unadded<'_, '_> {
    fn drop(&mut self) {
        if !self.is_added {
            let (path, found) = (self.path(), "was begun, but not added".to_owned());
            self.pod.problems().invalid(path, found, "call `add`, or do not begin it");
        }
    }
}
