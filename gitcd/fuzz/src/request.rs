//! Requests in their wire format, against a store with a journal (`gitcd::api`, `gitcd::store`, `gitcd::watch`).

mod branch;
mod service;
mod watch;

use gitcd::store::Store;
use gitcd::store::log::Entry;
use gitcd::store::revision::Revision;

use self::branch::Branch;
use self::service::Service;
use self::watch::Watch;
use super::input::Input;

/// Limit of requests for one input.
const MOST: usize = 64;

/// Treats `data` as a script: a byte for the method, then the message. In the end, watchers, journal and backup must agree with
/// the store.
pub fn run(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(requests(&mut Input(data)));
}

async fn requests(script: &mut Input<'_>) {
    let branch = Branch::start();
    let mut watch = Watch::start(&branch.store, script.byte() & 1 == 1);
    let service = Service::new(&branch.store);
    for _ in 0..MOST {
        if script.is_empty() {
            break;
        }
        let before = branch.store.revision();
        match script.byte() % 12 {
            0 => watch.request(script.piece()),
            1 => branch.store.committed(branch.store.revision(), [1; 20]),
            method => service.call(method, script.piece()).await,
        }
        let after = branch.store.revision();
        assert!(after == before || after == before.next(), "one request, {before} to {after}");
        assert_eq!(branch.store.poisoned(), None);
    }
    watch.finish(&branch.store).await;
    branch.finish().await;
}

/// Returns the whole stored log, from the compact revision on.
fn log(store: &Store) -> Vec<Entry> {
    store.log(Revision::ZERO, usize::MAX)
}
