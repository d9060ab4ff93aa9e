//! Network partitions between two addresses.

use anyhow::{Context, ensure};

use super::Inside;

/// Traffic through the node, to it, and from it.
const CHAINS: [&str; 3] = ["FORWARD", "INPUT", "OUTPUT"];

/// Inserts rules for both directions before all others.
pub(super) fn make(node: &dyn Inside, one: &str, other: &str) -> anyhow::Result<()> {
    rules(node, "--insert", one, other)
}

pub(super) fn take_back(node: &dyn Inside, one: &str, other: &str) -> anyhow::Result<()> {
    rules(node, "--delete", one, other)
}

fn rules(node: &dyn Inside, what: &str, one: &str, other: &str) -> anyhow::Result<()> {
    for (from, to) in [(one, other), (other, one)] {
        for chain in CHAINS {
            let words = ["--wait", what, chain, "--source", from, "--destination", to, "--jump", "DROP"];
            node.run("iptables", &words)?;
        }
    }
    Ok(())
}

/// The number of packets dropped by these rules.
pub(super) fn dropped(node: &dyn Inside, one: &str, other: &str) -> anyhow::Result<u64> {
    let mut all = 0;
    for chain in CHAINS {
        let printed = node.run("iptables", &["--wait", "--verbose", "--list-rules", chain])?;
        for (from, to) in [(one, other), (other, one)] {
            all += counted(&printed, from, to)?;
        }
    }
    Ok(all)
}

/// The packets of the rules for one direction, from the output of iptables for a chain: `-A FORWARD -s 10.0.0.1/32 -d
/// 10.0.0.2/32 -c 3 180 -j DROP`.
fn counted(printed: &str, from: &str, to: &str) -> anyhow::Result<u64> {
    let (from, to) = (format!("{from}/32"), format!("{to}/32"));
    let (mut packets, mut is_there) = (0, false);
    for line in printed.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let after = |flag: &str| words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1]);
        if after("-s") == Some(&from) && after("-d") == Some(&to) && after("-j") == Some("DROP") {
            let count = after("-c").with_context(|| format!("no packet count in {line}"))?;
            packets += count.parse::<u64>().with_context(|| format!("not a packet count: {count:?}"))?;
            is_there = true;
        }
    }
    ensure!(is_there, "nothing is cut from {from} to {to}");
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
-P FORWARD ACCEPT -c 7 420
-A FORWARD -s 10.244.0.6/32 -d 10.244.0.5/32 -c 2 104 -j DROP
-A FORWARD -s 10.244.0.5/32 -d 10.244.0.6/32 -c 0 0 -j DROP
-A FORWARD -s 10.244.0.6/32 -d 10.244.0.50/32 -c 90 5400 -j DROP
-A FORWARD -m comment --comment \"kubernetes forwarding rules\" -c 31 9999 -j KUBE-FORWARD
";

    #[test]
    fn the_packets_of_a_cut_are_those_of_its_own_rules() {
        assert_eq!(counted(PRINTED, "10.244.0.6", "10.244.0.5").unwrap(), 2);
        assert_eq!(counted(PRINTED, "10.244.0.5", "10.244.0.6").unwrap(), 0);
        let none = counted(PRINTED, "10.244.0.5", "10.244.0.50").unwrap_err().to_string();
        assert!(none.contains("nothing is cut"), "{none}");
    }
}
