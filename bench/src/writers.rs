//! Clients that update random keys, at full speed or at a given rate.

use std::time::{Duration, Instant};

use anyhow::Result;
use gitcd::proto::etcdserverpb::kv_client::KvClient;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::Channel;

use crate::client::{put, revision_in};
use crate::data::KeySpace;
use crate::load::{Done, Step, Tally, closed_loop};
use crate::target::{Target, WRITERS};

/// Puts to random keys of a space from 64 clients for `length`, with at most `rate` puts a second in total.
pub(crate) async fn write(target: &Target, space: KeySpace, length: Duration, rate: Option<u64>) -> Result<Tally> {
    let start = Instant::now();
    let every = rate.map(|rate| Duration::from_secs_f64(WRITERS as f64 / rate as f64));
    let clients = (0..WRITERS).map(|number| Writer {
        kv: target.client.kv(number),
        space,
        random: StdRng::from_os_rng(),
        // Spread over the first interval.
        next: every.map(|every| (start + every.mul_f64(number as f64 / WRITERS as f64), every)),
    });
    closed_loop(target, clients.collect(), length).await
}

struct Writer {
    kv: KvClient<Channel>,
    space: KeySpace,
    random: StdRng,
    /// When the next put is due, and the interval.
    next: Option<(Instant, Duration)>,
}

impl Step for Writer {
    async fn step(&mut self) -> Result<Done> {
        if let Some((due, every)) = &mut self.next {
            tokio::time::sleep_until((*due).into()).await;
            *due += *every;
        }
        let number = self.random.random_range(0..self.space.keys);
        let generation = self.random.random_range(1..10_000);
        let value = self.space.value(number, generation, self.random.random());
        let answer = self.kv.put(put(self.space.key(number), value)).await?.into_inner();
        Ok(Done { revision: revision_in(answer.header.as_ref()), conflicts: 0 })
    }
}
