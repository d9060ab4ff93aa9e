//! Lanes of the drawing, and the lines between them.
//!
//! A branch stays in its lane until it ends; then a new branch may use the lane. So only the lines from a commit to its
//! parents leave their lane, and the one row below it has room for all of them.

use git2::Oid;

/// The commit that each lane leads to; `None` if the lane is free.
#[derive(Debug, Default)]
pub(super) struct Lanes(Vec<Option<Oid>>);

/// The drawing of one line of the graph.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Beside the text.
    pub(super) beside: String,
    /// The row below; `None` if no line leaves its lane.
    pub(super) below: Option<String>,
}

impl Lanes {
    /// Draws a commit with this mark.
    pub(super) fn draw(&mut self, oid: Oid, parents: &[Oid], mark: char) -> Drawn {
        let at = self.of(oid).unwrap_or_else(|| self.place(oid, 0));
        let beside = self.row(|lane, waits| match (lane == at, waits) {
            (true, _) => (mark, ' '),
            (_, true) => ('│', ' '),
            _ => (' ', ' '),
        });
        self.0[at] = None;
        let passing = self.0.clone();
        // A parent that no lane leads to continues in this lane; if there is none, a lane on the right joins it.
        let new = parents.iter().find(|parent| self.of(**parent).is_none());
        let comes = || parents.iter().find(|parent| self.of(**parent).is_some_and(|lane| lane > at));
        let straight = new.or_else(comes).copied();
        let mut targets = Vec::new();
        for parent in parents {
            let known = self.of(*parent);
            if straight == Some(*parent) {
                known.into_iter().for_each(|lane| self.0[lane] = None);
                self.0[at] = Some(*parent);
                targets.extend(known);
            } else {
                targets.push(known.unwrap_or_else(|| self.place(*parent, at + 1)));
            }
        }
        let passes = |lane: usize| passing.get(lane).is_some_and(Option::is_some);
        let below = (!targets.is_empty()).then(|| self.connect(at, &targets, passes));
        while self.0.last() == Some(&None) {
            self.0.pop();
        }
        Drawn { beside, below }
    }

    fn of(&self, oid: Oid) -> Option<usize> {
        self.0.iter().position(|waits| *waits == Some(oid))
    }

    /// Puts a commit into a free lane, not left of `from`, or into a new one.
    fn place(&mut self, oid: Oid, from: usize) -> usize {
        let free = (from..self.0.len()).find(|lane| self.0[*lane].is_none());
        let lane = free.unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[lane] = Some(oid);
        lane
    }

    fn row(&self, cell: impl Fn(usize, bool) -> (char, char)) -> String {
        let cells = self.0.iter().enumerate().map(|(lane, waits)| cell(lane, waits.is_some()));
        let text: String = cells.flat_map(|(own, gap)| [own, gap]).collect();
        text.trim_end().to_owned()
    }

    /// Draws the lines from a commit's lane to those of its parents.
    fn connect(&self, at: usize, targets: &[usize], passes: impl Fn(usize) -> bool) -> String {
        let first = targets.iter().copied().min().unwrap_or(at).min(at);
        let last = targets.iter().copied().max().unwrap_or(at).max(at);
        self.row(|lane, _| {
            let gap = if (first..last).contains(&lane) { '─' } else { ' ' };
            let (left, right) = (first < lane && lane <= last, first <= lane && lane < last);
            let goes_on = self.0[lane].is_some();
            let own = if lane == at {
                corner([true, goes_on, left, right])
            } else if targets.contains(&lane) {
                corner([passes(lane), goes_on, left, right])
            } else if passes(lane) {
                // Lines that cross are not connected.
                '│'
            } else if left && right {
                '─'
            } else {
                ' '
            };
            (own, gap)
        })
    }
}

/// Returns the character with lines up, down, left, right.
fn corner(lines: [bool; 4]) -> char {
    match lines {
        [true, true, true, true] => '┼',
        [true, true, true, false] => '┤',
        [true, true, false, true] => '├',
        [true, false, true, true] => '┴',
        [true, false, true, false] => '╯',
        [true, false, false, true] => '╰',
        [false, true, true, true] => '┬',
        [false, true, true, false] => '╮',
        [false, true, false, true] => '╭',
        _ => '│',
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// Draws commits, given by number with their parents, newest first.
    fn drawing(commits: &[(u8, &[u8])]) -> String {
        let id = |number: u8| Oid::from_bytes(&[number; 20]).unwrap();
        let mut lanes = Lanes::default();
        let mut text = String::new();
        for (commit, parents) in commits {
            let parents: Vec<_> = parents.iter().map(|parent| id(*parent)).collect();
            let drawn = lanes.draw(id(*commit), &parents, '●');
            writeln!(text, "{} {commit}", drawn.beside).unwrap();
            text.extend(drawn.below.map(|below| below + "\n"));
        }
        text
    }

    #[test]
    fn a_branch_leaves_and_comes_back() {
        let expected = "\
● 5
├─╮
● │ 4
│ ● 3
● │ 2
├─╯
● 1
";
        assert_eq!(drawing(&[(5, &[4, 3]), (4, &[2]), (3, &[1]), (2, &[1]), (1, &[])]), expected);
    }

    #[test]
    fn lines_cross_lanes_that_go_on() {
        let expected = "\
● 9
├─┬─╮
● │ │ 8
├─│─╯
│ ● 7
● │ 6
├─╯
● 5
";
        let commits = [(9, &[8, 7, 6][..]), (8, &[6]), (7, &[5]), (6, &[5]), (5, &[])];
        assert_eq!(drawing(&commits), expected);
    }

    #[test]
    fn a_free_lane_is_taken_by_the_next_branch() {
        let expected = "\
● 9
│ ● 8
├─╯
● 7
│ ● 6
├─╯
● 5
";
        assert_eq!(drawing(&[(9, &[7]), (8, &[7]), (7, &[5]), (6, &[5]), (5, &[])]), expected);
    }
}
