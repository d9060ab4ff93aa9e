//! The client that controllers use: kube's, with what it leaves open when things go wrong.
//!
//! [`connect`] adds three layers to kube's own, each usable alone:
//!
//! - [`Pace`]: a watch that the server ends again and again is not opened again and again at full speed;
//! - [`RetryAfter`]: the time after which an overloaded server wants to be asked again is told in the error, where
//!   [`Failure`](crate::Failure) finds it;
//! - [`Fence`]: nothing is sent without the lease.

mod pace;
mod retry_after;

use kube::client::ClientBuilder;
use kube::{Client, Config};

pub use self::pace::Pace;
pub use self::retry_after::RetryAfter;
use crate::lease::Fence;

/// A client with all layers. With [`Fence::open`] it needs no lease.
///
/// It belongs to the runtime in which it is made.
///
/// # Errors
/// Those of [`Client::try_from`]: certificates or credentials that cannot be used.
pub fn connect(config: Config, fence: &Fence) -> kube::Result<Client> {
    // The fence is the first of the layers and sees every step of those below; what waits in the others waits before it.
    let builder =
        ClientBuilder::try_from(config)?.with_layer(fence).with_layer(&RetryAfter).with_layer(&Pace::default());
    Ok(builder.build())
}
