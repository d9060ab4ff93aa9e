//! The nodes of a YAML document with their positions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

use super::{Unreadable, strict};

/// Maximum nesting of collections.
pub(super) const MAX_DEPTH: usize = 200;

/// The prefix of the tags that YAML itself defines.
pub(super) const CORE: &str = "tag:yaml.org,2002:";

/// A node.
#[derive(Debug)]
pub(super) struct Node<'t> {
    /// The bytes of its content, without anchor and tag.
    pub(super) span: Range<usize>,
    /// Start of its anchor, tag or content.
    pub(super) start: usize,
    /// The line of the start of its content, from 1.
    pub(super) line: usize,
    /// The full tag.
    pub(super) tag: Option<String>,
    /// Its content.
    pub(super) content: Content<'t>,
}

/// The content of a node. Other nodes are given by index.
#[derive(Debug)]
pub(super) enum Content<'t> {
    /// A scalar with its text.
    Scalar(Cow<'t, str>, ScalarStyle),
    /// A reference to an anchored node.
    Alias(usize),
    /// A list of items.
    List(Vec<usize>, StructureStyle),
    /// A mapping: names and values in turn.
    Map(Vec<usize>, StructureStyle),
}

/// A document.
#[derive(Debug)]
pub(super) struct Tree<'t> {
    /// The parsed text.
    pub(super) text: &'t str,
    /// Every node.
    pub(super) nodes: Vec<Node<'t>>,
    /// The index of the root; `None` if the document is empty.
    pub(super) root: Option<usize>,
    /// The number of comments.
    pub(super) comments: usize,
}

struct Builder<'t> {
    tree: Tree<'t>,
    open: Vec<usize>,
    anchors: HashMap<usize, usize>,
    last: usize,
    documents: usize,
}

impl<'t> Tree<'t> {
    /// Parses a document, which must be the only one of `text`.
    pub(super) fn parse(text: &'t str) -> Result<Self, Unreadable> {
        strict::check_characters(text)?;
        // Offsets are those of the whole text, so the mark is masked, not removed.
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let skipped = text.len() - body.len();
        let tree = Tree { text, nodes: Vec::new(), root: None, comments: 0 };
        let mut builder = Builder { tree, open: Vec::new(), anchors: HashMap::new(), last: 0, documents: 0 };
        let options = granit_parser::options! { emit_anchor_events: true };
        for next in Parser::new_from_str_with_options(body, options) {
            let (event, span) = next.map_err(|error| Unreadable::new(error.marker().line(), error.info()))?;
            let at = |marker: granit_parser::Marker| marker.byte_offset().unwrap_or_default() + skipped;
            let range = at(span.start)..at(span.end).max(at(span.start));
            builder.event(event, range, span.tag_start().map(at), span.start.line())?;
        }
        strict::check(&builder.tree)?;
        Ok(builder.tree)
    }
}

impl<'t> Builder<'t> {
    /// Returns whether a block ends with the text instead of a line break: for Kubernetes, its value then has none.
    fn ends_open(&self, value: &str, span: &Range<usize>) -> bool {
        let text = self.tree.text;
        if span.end < text.len() || text.ends_with(['\n', '\r']) {
            return false;
        }
        let breaks = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        let last = text.rsplit('\n').next().unwrap_or_default();
        let header = text[..span.end].rfind(['|', '>']).unwrap_or(span.start);
        let is_blank = value.bytes().all(|byte| byte == b'\n');
        let written = if is_blank { breaks(&text[header..]).saturating_sub(1) } else { breaks(&text[span.clone()]) };
        !last.trim_ascii().is_empty() || breaks(value) > written
    }

    fn event(
        &mut self,
        event: Event<'t>,
        span: Range<usize>,
        tag_start: Option<usize>,
        line: usize,
    ) -> Result<(), Unreadable> {
        let start = tag_start.map_or(span.start, |tag| tag.min(span.start));
        let tag_of = |tag: &Option<Cow<'t, granit_parser::Tag>>| {
            tag.as_ref().map(|tag| format!("{}{}", tag.handle(), tag.suffix()))
        };
        let (content, anchor, tag) = match event {
            Event::Scalar(mut value, style, anchor, tag) => {
                if style == ScalarStyle::Plain && span.is_empty() {
                    value = Cow::Borrowed("");
                }
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) && self.ends_open(&value, &span) {
                    value = value.strip_suffix('\n').map_or(value.clone(), |line| line.to_owned().into());
                }
                (Content::Scalar(value, style), anchor, tag_of(&tag))
            }
            Event::SequenceStart(style, anchor, tag) => (Content::List(Vec::new(), style), anchor, tag_of(&tag)),
            Event::MappingStart(style, anchor, tag) => (Content::Map(Vec::new(), style), anchor, tag_of(&tag)),
            Event::Alias(id) => {
                let target = self.anchors.get(&id).copied();
                let target = target.ok_or_else(|| Unreadable::new(line, "an alias refers to no anchor".into()))?;
                (Content::Alias(target), 0, None)
            }
            Event::Anchor(..) => {
                let node = &mut self.tree.nodes[self.last];
                node.start = node.start.min(span.start);
                return Ok(());
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(closed) = self.open.pop() {
                    let node = &mut self.tree.nodes[closed];
                    node.span.end = span.end.max(node.span.start);
                }
                return Ok(());
            }
            Event::Comment(..) => {
                self.tree.comments += 1;
                return Ok(());
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                self.anchors.clear();
                return Ok(());
            }
            _ => return Ok(()),
        };
        if self.documents > 1 && self.open.is_empty() {
            // An end marker with nothing after it is not a document.
            return match content {
                Content::Scalar(text, ScalarStyle::Plain) if text.is_empty() && tag.is_none() && anchor == 0 => Ok(()),
                _ => Err(Unreadable::new(line, "it has more than one document".into())),
            };
        }
        let index = self.tree.nodes.len();
        match self.open.last() {
            None => self.tree.root = Some(index),
            Some(parent) => match &mut self.tree.nodes[*parent].content {
                Content::List(children, _) | Content::Map(children, _) => children.push(index),
                Content::Scalar(..) | Content::Alias(_) => {}
            },
        }
        if matches!(content, Content::List(..) | Content::Map(..)) {
            if self.open.len() >= MAX_DEPTH {
                return Err(Unreadable::new(line, format!("it is nested deeper than {MAX_DEPTH} levels")));
            }
            self.open.push(index);
        }
        if anchor != 0 {
            self.anchors.insert(anchor, index);
        }
        self.last = index;
        self.tree.nodes.push(Node { span, start, line, tag, content });
        Ok(())
    }
}
