//! What a control plane costs while nothing happens: memory and processor time of all its processes, by program.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gitcd_bench::process;
use serde::Serialize;

/// The cost of all processes that run one program.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cost {
    /// The name of the program's file.
    pub(crate) program: String,
    /// Number of processes.
    pub(crate) processes: usize,
    /// Their memory in bytes: the sum of `Pss`, in which a page that several processes share counts once.
    pub(crate) memory: u64,
    /// Their processor time as a share of one core.
    pub(crate) share: f64,
}

/// Measures a process and all that it has started, for this time. Fails if one of them exits meanwhile, because its processor time
/// would be missing.
pub(crate) fn idle(root: u32, time: Duration) -> Result<Vec<Cost>> {
    let mut pids = process::children(root);
    pids.push(root);
    let mut before = BTreeMap::new();
    for pid in pids {
        before.insert(pid, process::cpu(pid)?);
    }
    let since = Instant::now();
    thread::sleep(time);
    let mut costs: BTreeMap<String, Cost> = BTreeMap::new();
    for (pid, used) in before {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let program = program.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
        let program = program.with_context(|| format!("process {pid} exited during the measurement"))?;
        let cost = costs.entry(program.to_owned()).or_default();
        cost.processes += 1;
        cost.memory += process::proportional(pid)?;
        cost.share += process::cpu(pid)?.saturating_sub(used).as_secs_f64() / since.elapsed().as_secs_f64();
    }
    ensure!(!costs.is_empty(), "process {root} has no processes");
    let mut costs: Vec<Cost> = costs.into_iter().map(|(program, cost)| Cost { program, ..cost }).collect();
    costs.sort_by_key(|cost| std::cmp::Reverse(cost.memory));
    Ok(costs)
}

/// The sum of all costs.
pub(crate) fn total(costs: &[Cost]) -> Cost {
    costs.iter().fold(Cost { program: "all".to_owned(), ..Cost::default() }, |sum, one| Cost {
        processes: sum.processes + one.processes,
        memory: sum.memory + one.memory,
        share: sum.share + one.share,
        ..sum
    })
}
