//! Lanes of the commits: that of the branch, and those of merged branches.
//!
//! Each row has a drawing as high as the row. The text of a row says the same, so drawings are hidden from screen readers.

use std::collections::HashMap;

use maud::{Markup, html};

/// Lanes of merged branches; further branches share the last one.
const MERGED: usize = 4;
/// Distance of lanes, in pixels.
const STEP: usize = 14;
/// Where the first lane is.
const LEFT: usize = 8;
/// Where the dot of a commit is, from the top of its row.
const DOT: usize = 15;
/// Width of a drawing.
const WIDTH: usize = LEFT + STEP * MERGED + LEFT;

/// Assigns lanes to branches, by the authors of their commits.
#[derive(Default)]
pub(super) struct Lanes(HashMap<String, usize>);

impl Lanes {
    pub(super) fn of(&mut self, author: &str) -> usize {
        let next = (self.0.len() + 1).min(MERGED);
        *self.0.entry(author.to_owned()).or_insert(next)
    }
}

/// What is drawn in a row.
#[derive(Clone, Copy)]
pub(super) struct Drawing {
    /// Whether the branch starts with this commit.
    pub(super) is_first: bool,
    /// The lane of a merged branch, for a merge and for the commits that it brought.
    pub(super) merged: Option<usize>,
    /// Whether this is a commit of the merged branch.
    pub(super) is_merged: bool,
    /// Whether the merged branch has another commit below.
    pub(super) continues: bool,
}

impl Drawing {
    pub(super) fn render(self) -> Markup {
        let at = |lane: usize| LEFT + STEP * lane;
        let dot = if self.is_merged { self.merged.unwrap_or_default() } else { 0 };
        let own_end = if self.is_first { DOT.to_string() } else { "100%".to_owned() };
        html! {
            svg.lanes width=(WIDTH) height="100%" aria-hidden="true" focusable="false" {
                line.lane.lane-0 x1=(at(0)) y1="0" x2=(at(0)) y2=(own_end) {}
                @if let Some(lane) = self.merged {
                    @let class = format!("lane lane-{lane}");
                    @if self.is_merged {
                        line class=(class) x1=(at(lane)) y1="0" x2=(at(lane)) y2=(if self.continues { "100%".to_owned() } else { DOT.to_string() }) {}
                    } @else {
                        line class=(class) x1=(at(0)) y1=(DOT) x2=(at(lane)) y2="100%" {}
                    }
                }
                circle class={ "dot lane-" (dot) } cx=(at(dot)) cy=(DOT) r="5" {}
            }
        }
    }
}
