//! The client of controllers: kube's, hardened against failing servers.
//!
//! [`connect`] adds four layers to kube's own, each usable alone:
//!
//! - [`Pace`] limits the rate at which a watch that the server keeps ending is reopened;
//! - [`RetryAfter`] puts the delay that an overloaded server asks for into the error, where [`Failure`](crate::Failure) finds it;
//! - [`Calls`] adds every request to its trace, and counts it;
//! - [`Fence`] blocks requests without the lease.

mod calls;
mod pace;
mod path;
mod retry_after;

use kube::client::ClientBuilder;
use kube::{Client, Config};

pub use self::calls::Calls;
pub use self::pace::Pace;
pub use self::retry_after::RetryAfter;
pub use crate::around::{Around, Surrounded};
use crate::lease::Fence;
use crate::metrics::Metrics;

/// Creates a client with all layers. With [`Fence::open`] it needs no lease; with `metrics` its requests are counted.
///
/// It belongs to the runtime in which it is created. It never retries, whatever the configuration says: a retry in the client
/// would occupy a slot of the queue, and ignore `Retry-After`.
///
/// # Errors
/// Those of [`Client::try_from`]: unusable certificates or credentials.
pub fn connect(mut config: Config, fence: &Fence, metrics: Option<&Metrics>) -> kube::Result<Client> {
    config.default_retry = false;
    let calls = Calls::to(&config.cluster_url, metrics);
    // The fence is the outermost layer. It polls the others, so a request that waits in one of them is checked again.
    let builder = ClientBuilder::try_from(config)?.with_layer(fence).with_layer(&calls);
    Ok(builder.with_layer(&RetryAfter).with_layer(&Pace::default()).build())
}
