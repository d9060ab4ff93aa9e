//! The client that controllers use: kube's, with what it leaves open when things go wrong.
//!
//! [`connect`] adds four layers to kube's own, each usable alone:
//!
//! - [`Pace`]: a watch that the server ends again and again is not opened again and again at full speed;
//! - [`RetryAfter`]: the time after which an overloaded server wants to be asked again is told in the error, where
//!   [`Failure`](crate::Failure) finds it;
//! - [`Calls`]: every request is in its trace, and counted;
//! - [`Fence`]: nothing is sent without the lease.

mod around;
mod calls;
mod pace;
mod path;
mod retry_after;

use kube::client::ClientBuilder;
use kube::{Client, Config};

pub use self::around::{Around, Surrounded};
pub use self::calls::Calls;
pub use self::pace::Pace;
pub use self::retry_after::RetryAfter;
use crate::lease::Fence;
use crate::metrics::Metrics;

/// A client with all layers. With [`Fence::open`] it needs no lease; with `metrics` its requests are counted.
///
/// It belongs to the runtime in which it is made. It tries nothing again by itself, whatever the configuration says: a retry in here would
/// hold a place of the queue, and would not know `Retry-After`.
///
/// # Errors
/// Those of [`Client::try_from`]: certificates or credentials that cannot be used.
pub fn connect(mut config: Config, fence: &Fence, metrics: Option<&Metrics>) -> kube::Result<Client> {
    config.default_retry = false;
    let calls = Calls::to(&config.cluster_url, metrics);
    // The fence is the first of the layers and sees every step of those below; what waits in the others waits before it.
    let builder = ClientBuilder::try_from(config)?.with_layer(fence).with_layer(&calls);
    Ok(builder.with_layer(&RetryAfter).with_layer(&Pace::default()).build())
}
