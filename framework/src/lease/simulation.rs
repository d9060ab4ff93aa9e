//! Property: two replicas never work at once, although their clocks run at different speeds, their wall clocks are wrong,
//! stand still and are set back, their machines sleep, the network delays and loses requests, and the lease is deleted.
//!
//! A response shows the lease as it was when the request arrived, and may take any time to come back. It counts as seen when
//! it comes back, as in [`Candidate::saw`]: the record may have been written after the request was sent. A replica that
//! counts from the request fails this test.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::Settings;
use super::candidate::{Candidate, Record, Step};
use super::election::renewal;
use crate::clock::Moment;

/// Milliseconds of true time.
type Time = u64;

const TICK: Time = 50;

/// A replica's machine and network.
#[derive(Clone, Debug)]
struct Conditions {
    /// Thousandths of the true speed.
    clock_speed: u64,
    clock_start: u64,
    /// The machine sleeps at these times: nothing runs, except the clock.
    sleeps: Vec<(Time, Time)>,
    /// How long requests and responses take; used in turn. The longest are as good as lost.
    delays: Vec<(Time, Time)>,
    wall: Wall,
}

/// A machine's time of day.
#[derive(Clone, Debug)]
enum Wall {
    Stands,
    /// Off by `offset`, until it is set back.
    Goes {
        offset: Time,
        set_back: (Time, Time),
    },
}

impl Wall {
    fn at(&self, now: Time) -> Timestamp {
        let millis = match self {
            Self::Stands => 0,
            Self::Goes { offset, set_back: (at, by) } if now >= *at => (offset + now).saturating_sub(*by),
            Self::Goes { offset, .. } => offset + now,
        };
        Timestamp::from_millisecond(millis.cast_signed()).expect("it is in this century")
    }
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let delay = prop_oneof![6 => 0..200_u64, 1 => 0..40_000_u64];
    let wall = (0..1_000_000_000_u64, (0..300_000_u64, 0..600_000_u64))
        .prop_map(|(offset, set_back)| Wall::Goes { offset, set_back });
    let sleep = (0..200_000_u64, 0..60_000_u64).prop_map(|(from, length)| (from, from + length));
    (
        850..1150_u64,
        0..1_000_000_u64,
        prop::collection::vec(sleep, 0..4),
        prop::collection::vec((delay.clone(), delay), 1..40),
        prop_oneof![1 => Just(Wall::Stands), 2 => wall],
    )
        .prop_map(|(clock_speed, clock_start, sleeps, delays, wall)| Conditions {
            clock_speed,
            clock_start,
            sleeps,
            delays,
            wall,
        })
}

#[derive(Default)]
struct Server {
    record: Option<Record>,
    version: u64,
}

#[derive(Clone)]
enum Request {
    Read,
    /// The new record, and the version that it replaces.
    Write(Record, u64),
}

#[derive(Clone)]
enum Answer {
    Is(Option<Record>, u64),
    /// The new record, and its version.
    Written(Record, u64),
    Conflict,
}

struct Flight {
    asked: Moment,
    request: Request,
    arrives: Time,
    back: Time,
    answer: Option<Answer>,
    /// The replica no longer waits for the response.
    given_up: bool,
}

struct Replica {
    name: &'static str,
    conditions: Conditions,
    settings: Settings,
    candidate: Candidate,
    /// What it wrote last, if no request has been sent since: renewed without reading it again.
    held: Option<(Record, u64)>,
    knows: bool,
    flights: Vec<Flight>,
    next: Moment,
    works_until: Moment,
    sent: usize,
    led: bool,
}

impl Replica {
    fn new(name: &'static str, conditions: Conditions) -> Self {
        let zero = Moment::since_start(Duration::ZERO);
        let settings = Settings::new("test", "test");
        let candidate = Candidate::new(name);
        Self {
            name,
            conditions,
            settings,
            candidate,
            held: None,
            knows: false,
            flights: Vec::new(),
            next: zero,
            works_until: zero,
            sent: 0,
            led: false,
        }
    }

    fn clock(&self, now: Time) -> Moment {
        let Conditions { clock_speed, clock_start, .. } = self.conditions;
        Moment::since_start(Duration::from_millis(clock_start + now * clock_speed / 1000))
    }

    fn works(&self, now: Time) -> bool {
        !self.works_until.since(self.clock(now)).is_zero()
    }

    fn sleeps(&self, now: Time) -> bool {
        self.conditions.sleeps.iter().any(|(from, until)| (*from..*until).contains(&now))
    }

    fn send(&mut self, request: Request, asked: Moment, now: Time) {
        let (there, back) = self.conditions.delays[self.sent % self.conditions.delays.len()];
        self.sent += 1;
        let arrives = now + there;
        self.flights.push(Flight { asked, request, arrives, back: arrives + back, answer: None, given_up: false });
    }

    fn step(&mut self, now: Time) {
        let local = self.clock(now);
        let waits = self.flights.iter().position(|flight| !flight.given_up);
        match waits {
            Some(index) if self.flights[index].back <= now && self.flights[index].answer.is_some() => {
                let flight = self.flights.remove(index);
                self.answered(flight, local, now);
            }
            Some(index) if local.since(self.flights[index].asked) >= self.settings.work / 2 => {
                // The request may still take effect.
                self.flights[index].given_up = true;
                self.next = local + self.settings.every;
            }
            None if local >= self.next => match self.held.take() {
                Some((record, version)) => self.decide(Some(record), version, local, local, now),
                None => self.send(Request::Read, local, now),
            },
            _ => {}
        }
    }

    fn decide(&mut self, record: Option<Record>, version: u64, asked: Moment, local: Moment, now: Time) {
        self.knows |= record.is_some();
        match self.candidate.saw(record.clone(), self.works(now), local) {
            Step::Leave(_) => self.works_until = Moment::since_start(Duration::ZERO),
            step => {
                let before = record.unwrap_or_default();
                let last = before.renewed.parse().ok().map(MicroTime).filter(|_| step == Step::Renew);
                let MicroTime(renewed) = renewal(last.as_ref(), self.conditions.wall.at(now));
                let (holder, duration) = (self.name.to_owned(), self.settings.duration);
                let transitions = before.transitions + i32::from(step == Step::Take);
                let next = Record { holder, renewed: renewed.to_string(), duration, transitions, ..before };
                self.send(Request::Write(next, version), asked, now);
            }
        }
    }

    fn answered(&mut self, flight: Flight, local: Moment, now: Time) {
        self.next = local + self.settings.every;
        match flight.answer.expect("the response was checked") {
            Answer::Is(record, version) => self.decide(record, version, flight.asked, local, now),
            Answer::Written(record, version) => {
                self.works_until = flight.asked + self.settings.work;
                self.candidate.saw(Some(record.clone()), true, local);
                (self.held, self.knows, self.led) = (Some((record, version)), true, true);
            }
            Answer::Conflict => {}
        }
    }
}

fn serve(server: &mut Server, flight: &mut Flight) {
    flight.answer = Some(match &flight.request {
        Request::Read => Answer::Is(server.record.clone(), server.version),
        Request::Write(record, version) if *version == server.version => {
            let uid = server.record.take().map_or_else(|| server.version.to_string(), |before| before.uid);
            let record = Record { uid, ..record.clone() };
            server.record = Some(record.clone());
            server.version += 1;
            Answer::Written(record, server.version)
        }
        Request::Write(..) => Answer::Conflict,
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn never_do_two_replicas_work_at_once(one in conditions(), other in conditions(), deleted in 0..400_000_u64) {
        let (mut server, mut deleted) = (Server::default(), Some(deleted));
        let mut replicas = [Replica::new("one", one), Replica::new("other", other)];
        for now in (0..300_000).step_by(TICK as usize) {
            let mut arriving: Vec<_> = replicas.iter_mut().flat_map(|replica| &mut replica.flights)
                .filter(|flight| flight.answer.is_none() && flight.arrives <= now).collect();
            arriving.sort_by_key(|flight| flight.arrives);
            for flight in arriving {
                serve(&mut server, flight);
            }
            // A replica that has never seen the lease does not know of a holder.
            if replicas.iter().all(|replica| replica.knows) && deleted.take_if(|at| *at <= now).is_some() {
                server = Server { record: None, version: server.version + 1 };
            }
            for replica in &mut replicas {
                if !replica.sleeps(now) {
                    replica.step(now);
                }
                replica.flights.retain(|flight| !(flight.given_up && flight.answer.is_some()));
            }
            let working = replicas.iter().filter(|replica| replica.works(now)).count();
            prop_assert!(working < 2, "both work at {now}");
        }
        // Otherwise the property would hold for replicas that never lead.
        let calm = |replica: &Replica| replica.conditions.delays.iter().all(|(there, back)| there + back < 1000);
        if replicas.iter().all(calm) {
            prop_assert!(replicas.iter().any(|replica| replica.led));
        }
    }
}
