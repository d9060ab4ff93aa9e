//! Edits a document only where its value changes: other lines keep their comments, order and style.
//!
//! An edit replaces, removes or adds a field or an item. Where the surrounding text does not allow that (an alias, a field behind
//! a question mark), the enclosing node is replaced as a whole.

use std::ops::Range;

use granit_parser::{ScalarStyle, StructureStyle};

use super::construct;
use super::pairs::pairs;
use super::tree::{Content, Node, Tree};
use super::write;
use crate::value::{Map, Value};

/// Returns the text with `new` instead of `old`, the value of `tree`; `None` if it has to be written from scratch.
pub(super) fn edit(tree: &Tree<'_>, old: &Value, new: &Value) -> Option<String> {
    let root = tree.root?;
    let newline = if tree.text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut editor = Editor { tree, edits: Vec::new(), newline };
    editor.collection(root, old, new)?;
    let mut edits = editor.edits;
    // Of edits at the same position, the one found first comes first.
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::with_capacity(tree.text.len() + 256);
    let mut at = 0;
    for (range, text) in edits {
        out.push_str(tree.text.get(at..range.start)?);
        out.push_str(&text);
        at = range.end;
    }
    out.push_str(&tree.text[at..]);
    Some(out)
}

struct Editor<'a, 't> {
    tree: &'a Tree<'t>,
    edits: Vec<(Range<usize>, String)>,
    newline: &'static str,
}

/// Position of a member of a collection.
struct Member {
    /// Start of its name or dash.
    start: usize,
    /// End of its colon or dash.
    value: usize,
    /// End of its value.
    end: usize,
    /// The node of its value.
    node: usize,
}

/// The style of a collection, for its members.
#[derive(Clone, Copy)]
enum Shape {
    /// Flow style, in brackets.
    Flow,
    /// Block style; members start in this column.
    Block(usize),
}

impl<'t> Editor<'_, 't> {
    fn node(&self, index: usize) -> &Node<'t> {
        &self.tree.nodes[index]
    }

    /// Edits members of a collection; `None`, with no edits added, if it must be replaced.
    fn collection(&mut self, index: usize, old: &Value, new: &Value) -> Option<()> {
        let before = self.edits.len();
        let done = match (old, new) {
            (Value::Map(old), Value::Map(new)) => self.map(index, old, new),
            (Value::List(old), Value::List(new)) => self.list(index, old, new),
            _ => None,
        };
        if done.is_none() {
            self.edits.truncate(before);
        }
        done
    }

    /// Edits the value of a member: within it, or as a whole.
    fn member(&mut self, member: &Member, shape: Shape, old: &Value, new: &Value, is_item: bool) -> Option<()> {
        if old == new || self.collection(member.node, old, new).is_some() {
            return Some(());
        }
        let style = match &self.node(member.node).content {
            Content::Scalar(_, style) => *style,
            _ => ScalarStyle::Plain,
        };
        let text = match shape {
            Shape::Flow => format!(" {}", write::flow(new, style)?),
            // What follows on the line would become a part of the last line.
            Shape::Block(_) if !self.line_rest(member.end).trim().is_empty() => {
                format!(" {}", write::flow(new, style)?)
            }
            Shape::Block(indent) if is_item => write::behind_dash(new, indent, style)?,
            Shape::Block(indent) => write::behind_colon(new, indent, style)?,
        };
        // Keep the blanks before the value.
        let gap = &self.tree.text[member.value..self.begin(member.node)?.max(member.value)];
        let is_gap = !gap.is_empty() && gap.bytes().all(|byte| byte == b' ');
        match text.strip_prefix(' ') {
            Some(text) if is_gap => self.replace(member.value + gap.len()..member.end, text.to_owned()),
            _ => self.replace(member.value..member.end, text),
        }
        Some(())
    }

    fn map(&mut self, index: usize, old: &Map, new: &Map) -> Option<()> {
        let Content::Map(children, style) = &self.node(index).content else { return None };
        let children = children.clone();
        if new.is_empty() || children.is_empty() && *style == StructureStyle::Block {
            return None;
        }
        let names = construct::names(self.tree, &children)?;
        let shape = self.shape(*style, children.first().copied())?;
        let members = self.fields(&children, shape)?;
        let mut kept = vec![true; members.len()];
        let mut written = std::collections::HashSet::new();
        let mut last = None;
        let (old_places, new_places) = (old.names(), new.names());
        let of_old = |name: &str| old_places.get(name).map(|at| old.field(*at).1);
        let of_new = |name: &str| new_places.get(name).map(|at| new.field(*at).1);
        for (place, name) in names.iter().enumerate() {
            let Some(name) = name else {
                last = Some(place);
                continue;
            };
            written.insert(name.as_str());
            match (of_old(name), of_new(name)) {
                (Some(old), Some(new)) => {
                    self.member(&members[place], shape, old, new, false)?;
                    last = Some(place);
                }
                (_, None) => kept[place] = false,
                (None, Some(_)) => return None,
            }
        }
        if old.iter().any(|(name, _)| !written.contains(&*name) && of_new(&name).is_none()) {
            // The field comes from a merge key, which would have to be removed.
            return None;
        }
        // Add new fields after the last kept one, in their order.
        let added: Vec<(String, &Value)> = new
            .iter()
            .filter(|(name, value)| !written.contains(&**name) && of_old(name) != Some(*value))
            .map(|(name, value)| (name.into_owned(), value))
            .collect();
        self.remove(&members, &kept, shape)?;
        if added.is_empty() {
            return Some(());
        }
        let mut texts = Vec::new();
        for (name, value) in added {
            texts.push(match shape {
                Shape::Flow => write::flow_field(&name, value)?,
                Shape::Block(indent) => {
                    let mut text = String::new();
                    write::field(&mut text, &name, value, indent)?;
                    text
                }
            });
        }
        self.add(index, &members, (last, &kept), &texts, shape)
    }

    fn list(&mut self, index: usize, old: &[Value], new: &[Value]) -> Option<()> {
        let Content::List(children, style) = &self.node(index).content else { return None };
        let children = children.clone();
        if new.is_empty() || children.is_empty() && *style == StructureStyle::Block || children.len() != old.len() {
            return None;
        }
        let shape = self.list_shape(*style, children.first().copied())?;
        let members = self.items(&children, shape)?;
        let pairs = pairs(old, new)?;
        let mut kept = vec![false; old.len()];
        let mut last = None;
        let mut waiting = Vec::new();
        let mut additions: Vec<(Option<usize>, Vec<String>)> = Vec::new();
        let mut partners = pairs.iter().peekable();
        for (place, item) in new.iter().enumerate() {
            if let Some((old_place, _)) = partners.next_if(|(_, partner)| *partner == place) {
                if !waiting.is_empty() {
                    additions.push((last, std::mem::take(&mut waiting)));
                }
                self.member(&members[*old_place], shape, &old[*old_place], item, true)?;
                kept[*old_place] = true;
                last = Some(*old_place);
                continue;
            }
            waiting.push(match shape {
                Shape::Flow => write::flow(item, ScalarStyle::Plain)?,
                Shape::Block(indent) => format!("-{}", write::behind_dash(item, indent, ScalarStyle::Plain)?),
            });
        }
        if !waiting.is_empty() {
            additions.push((last, waiting));
        }
        if !kept.contains(&true) {
            return None;
        }
        self.remove(&members, &kept, shape)?;
        for (after, texts) in additions {
            self.add(index, &members, (after, &kept), &texts, shape)?;
        }
        Some(())
    }

    /// Removes the members that are not kept; at least one must be.
    fn remove(&mut self, members: &[Member], kept: &[bool], shape: Shape) -> Option<()> {
        if kept.iter().all(|kept| *kept) {
            return Some(());
        }
        if !kept.contains(&true) {
            return None;
        }
        let first_kept = kept.iter().position(|kept| *kept)?;
        let moves = matches!(shape, Shape::Block(_)) && !self.begins_line(members.first()?.start);
        for (place, member) in members.iter().enumerate().filter(|(place, _)| !kept[*place]) {
            if moves && place > 0 && place < first_kept {
                continue;
            }
            let range = match shape {
                // From the start of the member to the next one, or from the end of the previous one.
                Shape::Flow if place < first_kept => member.start..members[place + 1].start,
                Shape::Flow => members[place - 1].end..member.end,
                Shape::Block(_) if self.begins_line(member.start) => {
                    self.line_start(member.start)..self.entry_end(member)
                }
                // The first member follows a dash: move the kept one there.
                Shape::Block(_) => member.start..members.get(first_kept)?.start,
            };
            self.replace(range, String::new());
        }
        Some(())
    }

    /// Adds members after another one, or before the first kept one.
    fn add(
        &mut self,
        index: usize,
        members: &[Member],
        (after, kept): (Option<usize>, &[bool]),
        texts: &[String],
        shape: Shape,
    ) -> Option<()> {
        let first = members.iter().zip(kept).find(|(_, kept)| **kept).map(|(member, _)| member);
        match (shape, after, first) {
            (Shape::Flow, Some(after), _) => {
                let text = format!(", {}", texts.join(", "));
                self.replace(members[after].end..members[after].end, text);
            }
            (Shape::Flow, None, Some(first)) => {
                let text = format!("{}, ", texts.join(", "));
                self.replace(first.start..first.start, text);
            }
            (Shape::Flow, None, None) => {
                let span = self.node(index).span.clone();
                let (open, close) = (&self.tree.text[span.start..=span.start], &self.tree.text[span.end - 1..span.end]);
                self.replace(span, format!("{open}{}{close}", texts.join(", ")));
            }
            (Shape::Block(indent), Some(after), _) => {
                let at = self.entry_end(&members[after]);
                let pad = " ".repeat(indent);
                let lines = format!("{pad}{}\n", texts.join(&format!("\n{pad}")));
                if self.tree.text[..at].ends_with('\n') {
                    self.replace(at..at, lines);
                } else {
                    self.replace(at..at, format!("\n{}", lines.trim_end_matches('\n')));
                }
            }
            (Shape::Block(indent), None, Some(first)) => {
                let pad = format!("\n{}", " ".repeat(indent));
                let text = texts.join(&pad) + &pad;
                self.replace(first.start..first.start, text);
            }
            (Shape::Block(_), None, None) => return None,
        }
        Some(())
    }

    /// Replaces a range, with the line breaks of the document.
    fn replace(&mut self, range: Range<usize>, text: String) {
        let text = if self.newline == "\n" { text } else { text.replace('\n', self.newline) };
        self.edits.push((range, text));
    }

    fn shape(&self, style: StructureStyle, first: Option<usize>) -> Option<Shape> {
        match style {
            StructureStyle::Flow => Some(Shape::Flow),
            StructureStyle::Block => Some(Shape::Block(self.column(self.node(first?).start))),
        }
    }

    fn list_shape(&self, style: StructureStyle, first: Option<usize>) -> Option<Shape> {
        match style {
            StructureStyle::Flow => Some(Shape::Flow),
            StructureStyle::Block => Some(Shape::Block(self.column(self.dash_before(self.begin(first?)?)?))),
        }
    }

    /// Returns the start of a node, including its anchor and tag.
    fn begin(&self, index: usize) -> Option<usize> {
        let node = self.node(index);
        match &node.content {
            // The parser reports the start after its first dash.
            Content::List(children, StructureStyle::Block) if node.start >= node.span.start => {
                self.dash_before(self.begin(*children.first()?)?)
            }
            // And that of a block scalar after its indicator.
            Content::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded) if node.start >= node.span.start => {
                let before = self.tree.text[..node.span.start].trim_end();
                let line = self.line_start(before.len());
                let is_header = |rest: &str| {
                    let rest = rest.trim_start_matches(|digit: char| matches!(digit, '-' | '+' | '0'..='9'));
                    rest.is_empty() || rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#')
                };
                let mut indicators = before[line..].match_indices(['|', '>']);
                indicators.find(|(at, _)| is_header(&before[line + at + 1..])).map(|(at, _)| line + at)
            }
            _ => Some(node.start),
        }
    }

    /// Returns the position of an item's dash, with only blanks, line breaks and comments in between.
    fn dash_before(&self, start: usize) -> Option<usize> {
        let mut end = start;
        loop {
            let line = self.line_start(end);
            let before = &self.tree.text[line..end];
            let before = match before.find(" #") {
                Some(at) if end < start => &before[..at],
                _ => before,
            };
            let trimmed = before.trim_end();
            if let Some(rest) = trimmed.strip_suffix('-') {
                return Some(line + rest.len());
            }
            if !(trimmed.is_empty() || trimmed.trim_start().starts_with('#')) || line == 0 {
                return None;
            }
            end = line - 1;
        }
    }

    fn fields(&self, children: &[usize], shape: Shape) -> Option<Vec<Member>> {
        let mut members = Vec::with_capacity(children.len() / 2);
        for pair in children.chunks_exact(2) {
            let (name, value) = (self.node(pair[0]), pair[1]);
            let gap = &self.tree.text[name.span.end..];
            let colon = name.span.end + (gap.len() - gap.trim_start_matches([' ', '\t']).len());
            if self.tree.text.as_bytes().get(colon) != Some(&b':') {
                return None;
            }
            if let Shape::Block(indent) = shape
                && self.column(name.start) != indent
            {
                return None;
            }
            let end = self.end(value, colon + 1)?;
            members.push(Member { start: name.start, value: colon + 1, end, node: value });
        }
        Some(members)
    }

    fn items(&self, children: &[usize], shape: Shape) -> Option<Vec<Member>> {
        let mut members = Vec::with_capacity(children.len());
        for child in children {
            let node = self.node(*child);
            let member = match shape {
                Shape::Flow => {
                    Member { start: node.start, value: node.start, end: self.end(*child, node.start)?, node: *child }
                }
                Shape::Block(indent) => {
                    let dash = self.dash_before(self.begin(*child)?)?;
                    if self.column(dash) != indent {
                        return None;
                    }
                    Member { start: dash, value: dash + 1, end: self.end(*child, dash + 1)?, node: *child }
                }
            };
            members.push(member);
        }
        Some(members)
    }

    /// Returns the end of a node that follows `value`.
    fn end(&self, index: usize, value: usize) -> Option<usize> {
        let node = self.node(index);
        match &node.content {
            Content::Scalar(_, ScalarStyle::Plain) if node.span.is_empty() => {
                // The node is empty, unless it has an anchor or a tag.
                (node.tag.is_none() && node.start == node.span.start).then_some(value)
            }
            Content::Scalar(text, ScalarStyle::Literal | ScalarStyle::Folded) => {
                let raw = &self.tree.text[node.span.clone()];
                // Blank lines at the end of a block may belong to its value.
                let kept = if text.is_empty() || text.ends_with("\n\n") || text.as_ref() == "\n" {
                    raw.strip_suffix('\n').unwrap_or(raw)
                } else {
                    // Blanks at the end of its last line do.
                    let line = raw.trim_end().len();
                    &raw[..line + raw[line..].bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count()]
                };
                Some(node.span.start + kept.len())
            }
            Content::Map(children, StructureStyle::Block) => {
                let pair = children.last_chunk::<2>()?;
                let members = self.fields(pair, Shape::Flow)?;
                Some(members.first()?.end)
            }
            Content::List(children, StructureStyle::Block) => {
                let last = *children.last()?;
                self.end(last, self.dash_before(self.begin(last)?)? + 1)
            }
            _ => Some(node.span.end),
        }
    }

    /// Returns the end of a member's last line.
    fn entry_end(&self, member: &Member) -> usize {
        self.tree.text[member.end..].find('\n').map_or(self.tree.text.len(), |at| member.end + at + 1)
    }

    fn line_start(&self, at: usize) -> usize {
        self.tree.text[..at].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_rest(&self, at: usize) -> &'t str {
        self.tree.text[at..].split('\n').next().unwrap_or_default()
    }

    fn begins_line(&self, at: usize) -> bool {
        self.tree.text[self.line_start(at)..at].bytes().all(|byte| byte == b' ')
    }

    /// Returns the number of characters before a position in its line.
    fn column(&self, at: usize) -> usize {
        self.tree.text[self.line_start(at)..at].trim_start_matches('\u{feff}').chars().count()
    }
}
