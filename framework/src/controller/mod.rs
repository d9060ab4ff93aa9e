//! Reconcilers, and the controllers that run them.

mod builder;
mod complaint;
mod driver;
mod kinds;
mod outcome;
mod reconciler;
mod run_context;
mod runnable;
mod term;
mod trigger;
mod with_status;

pub use self::builder::Controller;
pub(crate) use self::driver::Driver;
pub use self::kinds::Kinds;
pub use self::reconciler::{Action, CleanedUp, Context, Reconciler};
pub(crate) use self::run_context::{RunContext, Runs};
pub(crate) use self::runnable::Runnable;
pub use self::term::Term;
pub use self::with_status::{Reported, StatusError, StatusReconciler, WithStatus};
