//! Response bodies in flight.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use tokio::sync::watch;

use super::{Reply, broken, healed};

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Broken,
    Orderly,
}

/// The state of all streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams {
    /// Nothing gets through.
    pub(super) parted: bool,
    /// How often all were ended, and how they last were.
    ended: u64,
    way: Option<Way>,
}

impl Streams {
    pub(super) fn end(&mut self, way: Way) {
        self.ended += 1;
        self.way = Some(way);
    }
}

/// Forwards a body. It ends early when all streams are broken or, if it is that of a watch, when all watches are ended.
pub(super) fn through(body: Body, streams: watch::Receiver<Streams>, is_watch: bool) -> Reply {
    let born = streams.borrow().ended;
    let frames = stream::unfold(Some((body.into_data_stream(), streams)), move |state| async move {
        let (mut body, mut streams) = state?;
        let mut orders = streams.clone();
        let concerns = |way| is_watch || way == Some(Way::Broken);
        let ended = orders.wait_for(|streams| streams.ended > born && concerns(streams.way));
        let next = async {
            let next = body.next().await;
            healed(&mut streams).await;
            next
        };
        tokio::select! {
            biased;
            Ok(order) = ended => match order.way {
                Some(Way::Orderly) => None,
                _ => Some((Err(broken()), None)),
            },
            next = next => match next? {
                Ok(data) => Some((Ok::<Frame<Bytes>, std::io::Error>(Frame::data(data)), Some((body, streams)))),
                Err(error) => Some((Err(std::io::Error::other(error)), None)),
            },
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
