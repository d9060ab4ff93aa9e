//! Turns of all contestants.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::contestant::{Kind, Programs};
use crate::turn::{self, Plan, Turn};

/// A contestant with its turns, one in each round.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The contestant.
    pub kind: Kind,
    /// Its results.
    pub turns: Vec<Turn>,
}

/// Runs all contestants in each round: first to last, then last to first, and so on, so that none always has the warmer or
/// noisier turn.
///
/// # Errors
/// A program is missing, or a turn fails.
pub async fn run(kinds: &[Kind], programs: &Programs, plan: Plan, rounds: u32) -> Result<Vec<Side>> {
    let paths = kinds.iter().map(|kind| programs.of(*kind)).collect::<Result<Vec<_>>>()?;
    ensure!(!kinds.is_empty(), "there are no contestants");
    let mut sides: Vec<_> = kinds.iter().map(|kind| Side { kind: *kind, turns: Vec::new() }).collect();
    let start = Instant::now();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for number in order {
            let turn = turn::take(kinds[number], &paths[number], plan).await?;
            eprintln!(
                "{:6.0} s  round {}  {:12}  ready {:6.2} s, {:5.2} s CPU; start {:5.2} s, {:5.2} s CPU; resync {:5.2} s, {:5.2} s CPU; {} MiB",
                start.elapsed().as_secs_f64(),
                round + 1,
                kinds[number],
                turn.making.seconds,
                turn.making.cpu_seconds,
                turn.restart.seconds,
                turn.restart.cpu_seconds,
                turn.resync.seconds,
                turn.resync.cpu_seconds,
                turn.made.resident >> 20,
            );
            sides[number].turns.push(turn);
        }
    }
    Ok(sides)
}
