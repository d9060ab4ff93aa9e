//! Simulation of servers with imprecise clocks, a lossy and slow network, and machines that sleep: no two servers ever
//! acknowledge writes at the same time.

use std::time::Duration;

use git2::Oid;
use gitcd_core::fence::Moment;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Found, Holding, Look, Record, Step, Waiting, renewal};

/// A compare-and-swap request in transit, or its response.
#[derive(Debug)]
struct Letter {
    arrives: u64,
    from: usize,
    expected: Option<Oid>,
    new: Oid,
    is_held: bool,
    duration: Duration,
    /// `None` for a request; in a response, whether the swap succeeded.
    answer: Option<bool>,
}

#[derive(Debug)]
enum Role {
    Waiting(Waiting, Option<(Oid, Moment)>),
    Holding(Holding),
}

#[derive(Debug)]
struct Server {
    /// The rate of its clock in thousandths, and its first value.
    rate: u64,
    start: u64,
    duration: Duration,
    role: Role,
    next: u64,
    /// Suspended until then; its clock keeps running.
    sleeps: u64,
    /// Whether it has handed its lease over; then it does nothing more.
    is_gone: bool,
}

impl Server {
    fn clock(&self, time: u64) -> Moment {
        Moment::of(Duration::from_micros(self.start * 1000 + time * self.rate))
    }

    fn acknowledges(&self, time: u64) -> bool {
        matches!(&self.role, Role::Holding(holding) if self.clock(time) < holding.until() && !self.is_gone)
    }
}

struct World {
    rng: StdRng,
    ids: u64,
    reference: Option<(Oid, Record)>,
    letters: Vec<Letter>,
    /// Rate of lost messages and failed reads in thousandths.
    loss: u32,
    slowest: u64,
    terms: u64,
}

impl World {
    fn id(&mut self) -> Oid {
        self.ids += 1;
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.ids.to_be_bytes());
        Oid::from_bytes(&bytes).unwrap()
    }

    fn post(&mut self, mut letter: Letter, time: u64) {
        if self.rng.random_range(0..1000) >= self.loss {
            // Most arrive soon; some arrive very late, after messages of other servers.
            let slowest = if self.rng.random_range(0..10) == 0 { self.slowest * 20 } else { self.slowest };
            letter.arrives = time + self.rng.random_range(1..=slowest);
            self.letters.push(letter);
        }
    }

    fn deliver(&mut self, servers: &mut [Server], time: u64) {
        let (due, later) = self.letters.drain(..).partition(|letter| letter.arrives <= time);
        self.letters = later;
        let due: Vec<Letter> = due;
        for letter in due {
            let Some(done) = letter.answer else {
                let done = self.reference.as_ref().map(|(oid, _)| *oid) == letter.expected;
                if done {
                    let (holder, host) = (letter.from.to_string(), String::new());
                    let record = Record { is_held: letter.is_held, epoch: 0, holder, host, duration: letter.duration };
                    self.reference = Some((letter.new, record));
                }
                self.post(Letter { answer: Some(done), ..letter }, time);
                continue;
            };
            let server = &mut servers[letter.from];
            match &mut server.role {
                Role::Holding(holding) if done => holding.has(letter.new),
                Role::Waiting(_, Some((taken, sent))) if done && *taken == letter.new => {
                    self.terms += 1;
                    server.role = Role::Holding(Holding::new(server.duration, *taken, *sent));
                }
                _ => {}
            }
        }
    }

    /// Runs one step of a server.
    fn act(&mut self, servers: &mut [Server], at: usize, time: u64) {
        let now = servers[at].clock(time);
        let duration = servers[at].duration;
        // A read takes no time, or fails: a server reads its clock after it, so a slow read only delays the server.
        let reads = self.rng.random_range(0..1000) >= self.loss;
        let found = self.reference.clone();
        let (new, leaves) = (self.id(), self.rng.random_range(0..200) == 0);
        let letter =
            |expected, is_held| Letter { arrives: 0, from: at, expected, new, is_held, duration, answer: None };
        let server = &mut servers[at];
        let mut post = None;
        match &mut server.role {
            Role::Waiting(waiting, taking) if reads => {
                let oid = found.as_ref().map(|(oid, _)| *oid);
                if let Some((taken, sent)) = taking
                    && oid == Some(*taken)
                {
                    self.terms += 1;
                    server.role = Role::Holding(Holding::new(duration, *taken, *sent));
                } else {
                    let record = found.as_ref().map(|(_, record)| record);
                    let (is_own, has_branch, usual) = (false, true, Duration::from_secs(10));
                    let look = Look { found: oid, record, is_own, has_branch, now, usual };
                    if waiting.look(look) == Step::Take {
                        *taking = Some((new, now));
                        post = Some(letter(oid, true));
                    }
                }
                server.next = time + 100;
            }
            Role::Waiting(..) => server.next = time + 100,
            Role::Holding(holding) => {
                server.next = time + renewal(duration).as_millis() as u64;
                if holding.is_in_doubt() && !reads {
                    server.next = time + 100;
                } else if holding.is_in_doubt() && holding.finds(found.map(|(oid, _)| oid)) == Found::Others {
                    // Another server has the lease: wait for it again.
                    server.role = Role::Waiting(Waiting::default(), None);
                } else if leaves {
                    // It stops acknowledging writes, then hands over.
                    server.is_gone = true;
                    server.next = u64::MAX;
                    post = Some(letter(Some(holding.confirmed()), false));
                } else {
                    holding.sends(new, now);
                    post = Some(letter(Some(holding.confirmed()), true));
                }
            }
        }
        if let Some(letter) = post {
            self.post(letter, time);
        }
    }
}

/// Returns how often the lease was taken.
fn simulate(seed: u64, loss: u32, slowest: u64, durations: [u64; 4]) -> Result<u64, TestCaseError> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut servers: Vec<Server> = durations
        .into_iter()
        .map(|ms| Server {
            rate: rng.random_range(952..=1048),
            start: rng.random_range(0..1_000_000),
            duration: Duration::from_millis(ms),
            role: Role::Waiting(Waiting::default(), None),
            next: rng.random_range(0..1000),
            sleeps: 0,
            is_gone: false,
        })
        .collect();
    let mut world = World { rng, ids: 0, reference: None, letters: Vec::new(), loss, slowest, terms: 0 };
    // Milliseconds.
    for time in 0..300_000 {
        world.deliver(&mut servers, time);
        for at in 0..servers.len() {
            if servers[at].next <= time && servers[at].sleeps <= time {
                world.act(&mut servers, at, time);
                if world.rng.random_range(0..100) == 0 {
                    servers[at].sleeps = time + world.rng.random_range(0..20_000);
                }
            }
        }
        let who: Vec<usize> = (0..servers.len()).filter(|at| servers[*at].acknowledges(time)).collect();
        prop_assert!(who.len() <= 1, "at {time} ms: {who:?} {servers:#?} {:?}", world.reference);
    }
    Ok(world.terms)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn no_two_acknowledge_at_the_same_time(
        seed: u64, loss in 0..400_u32, slowest in 1..2000_u64, durations in proptest::array::uniform4(1000..6000_u64),
    ) {
        simulate(seed, loss, slowest, durations)?;
    }
}

#[test]
fn the_lease_is_taken_again_and_again() {
    let terms = simulate(7, 100, 50, [3000; 4]).unwrap();
    assert!(terms >= 4, "{terms}");
}
