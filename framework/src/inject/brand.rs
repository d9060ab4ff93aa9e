//! What makes the handles of one pod unfit for another.

use std::marker::PhantomData;

/// Invariant in a lifetime that [`Injector::with`](super::Injector::with) chooses anew for each call, so the compiler cannot take one for another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brand<'p>(PhantomData<fn(&'p ()) -> &'p ()>);
