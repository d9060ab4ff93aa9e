//! Spans of reconciles and of requests to the apiserver. Without the feature `telemetry` there are only those of reconciles, without
//! links and outcome, for any subscriber of the program.

mod call;
#[cfg(feature = "telemetry")]
mod context;
#[cfg(not(feature = "telemetry"))]
#[path = "untraced.rs"]
mod context;
#[cfg(feature = "controller")]
mod reconcile;

pub(crate) use self::call::{Call, CallTo};
#[cfg(not(feature = "telemetry"))]
pub(crate) use self::context::TraceContext;
#[cfg(feature = "telemetry")]
pub use self::context::{TRACEPARENT, TraceContext};
#[cfg(feature = "telemetry")]
pub(crate) use self::context::{TRACES_ENABLED, TraceIds};
#[cfg(feature = "controller")]
pub(crate) use self::reconcile::{Subject, Trail};

/// Target of the spans of reconciles, whose fields log lines have, too.
pub(crate) const RECONCILE: &str = "trishanku_framework::reconcile";
/// Target of the spans that are only for collectors.
pub(crate) const TARGET: &str = "trishanku_framework::telemetry";
