//! Ties handles to the pod that they belong to.

use std::marker::PhantomData;

/// Invariant in a lifetime that is new in each call of [`Injector::with`](super::Injector::with), so the compiler never
/// unifies two of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brand<'p>(PhantomData<fn(&'p ()) -> &'p ()>);
