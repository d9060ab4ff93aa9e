//! Which fields of a version another version has with the same value, and where.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use gitcd_merge::schema::Node;
use gitcd_merge::value::{Map, Value};
use gitcd_merge::{ItemId, item_ids};

/// A step to a field in one version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FieldStep {
    Name(Rc<str>),
    Index(usize),
}

/// The place of a field in one version of an object.
pub(super) type At = Rc<[FieldStep]>;

/// Fields by number, in the order of the blamed version, each with its place in some version. So the fields of a map or a list are
/// next to each other in every version.
pub(super) type Fields = BTreeMap<usize, At>;

/// What another version has in place of a field.
#[derive(Debug)]
pub(super) enum FieldMatch<'t> {
    /// The same value, at this place.
    Same(At),
    /// Another value.
    Other(&'t Value),
}

/// Returns the fields that `to` has with the same value as `from`, with their places there. List items are matched as in a merge,
/// wherever they are in the list.
///
/// Takes a pass over the parts of both versions that have these fields.
pub(super) fn carried(from: &Value, to: &Value, node: Option<Node<'_>>, fields: &Fields) -> Fields {
    let same = |(number, found)| match found {
        FieldMatch::Same(at) => Some((number, at)),
        FieldMatch::Other(_) => None,
    };
    matches(from, to, node, fields).into_iter().filter_map(same).collect()
}

/// Returns what `to` has in place of each field of `from`, by number and in order; nothing for a field that `to` lacks.
///
/// Takes a pass over the parts of both versions that have these fields.
pub(super) fn matches<'t>(
    from: &Value,
    to: &'t Value,
    node: Option<Node<'_>>,
    fields: &Fields,
) -> Vec<(usize, FieldMatch<'t>)> {
    let fields: Vec<(usize, &At)> = fields.iter().map(|(number, at)| (*number, at)).collect();
    let mut carry = Carry { here: Vec::new(), there: Vec::new(), found: Vec::new() };
    carry.descend(from, to, node, &fields);
    carry.found
}

/// From this number of fields on, the fields of a map are found by an index.
const MANY: usize = 8;

struct Carry<'t> {
    /// The current place in both versions.
    here: Vec<FieldStep>,
    there: Vec<FieldStep>,
    found: Vec<(usize, FieldMatch<'t>)>,
}

impl<'t> Carry<'t> {
    fn descend(&mut self, from: &Value, to: &'t Value, node: Option<Node<'_>>, fields: &[(usize, &At)]) {
        if from == to {
            self.take_all(fields);
            return;
        }
        let depth = self.here.len();
        // A field that ends here is the only one.
        if let Some((number, _)) = fields.iter().find(|(_, at)| at.len() == depth) {
            self.found.push((*number, FieldMatch::Other(to)));
            return;
        }
        match (from, to) {
            (Value::Map(from), Value::Map(to)) => self.maps(from, to, node, fields),
            (Value::List(from), Value::List(to)) => self.lists(from, to, node, fields),
            _ => {}
        }
    }

    /// Takes all fields below the current place.
    fn take_all(&mut self, fields: &[(usize, &At)]) {
        let depth = self.here.len();
        let is_same = self.here == self.there;
        for (number, at) in fields {
            let at = if is_same { Rc::clone(at) } else { [&self.there, &at[depth..]].concat().into() };
            self.found.push((*number, FieldMatch::Same(at)));
        }
    }

    fn maps(&mut self, from: &Map, to: &'t Map, node: Option<Node<'_>>, fields: &[(usize, &At)]) {
        let (from, to) = (ByName::new(from, fields.len()), ByName::new(to, fields.len()));
        for group in groups(fields, self.here.len()) {
            let place = &group[0].1[self.here.len()];
            let FieldStep::Name(name) = place else { continue };
            if let (Some(one), Some(other)) = (from.get(name), to.get(name)) {
                let below = node.and_then(|node| node.field(name));
                self.below(place.clone(), place.clone(), |carry| carry.descend(one, other, below, group));
            }
        }
    }

    fn lists(&mut self, from: &[Value], to: &'t [Value], node: Option<Node<'_>>, fields: &[(usize, &At)]) {
        let Some([ours, theirs]) = item_ids([from, to], field_of_metadata(&self.here), node) else { return };
        let places: HashMap<&ItemId, usize> = theirs.iter().zip(0..).collect();
        let below = node.and_then(|node| node.items());
        for group in groups(fields, self.here.len()) {
            let place = &group[0].1[self.here.len()];
            let FieldStep::Index(index) = place else { continue };
            if let Some(other) = ours.get(*index).and_then(|id| places.get(id)) {
                let there = FieldStep::Index(*other);
                self.below(place.clone(), there, |carry| carry.descend(&from[*index], &to[*other], below, group));
            }
        }
    }

    fn below(&mut self, here: FieldStep, there: FieldStep, descend: impl FnOnce(&mut Self)) {
        self.here.push(here);
        self.there.push(there);
        descend(self);
        self.here.pop();
        self.there.pop();
    }
}

/// Returns the fields by their step at a depth.
fn groups<'f, 'a>(fields: &'f [(usize, &'a At)], depth: usize) -> impl Iterator<Item = &'f [(usize, &'a At)]> {
    fields.chunk_by(move |(_, one), (_, other)| one[depth] == other[depth])
}

/// A map, with an index if many of its fields are needed.
enum ByName<'v> {
    Few(&'v Map),
    Many(HashMap<Cow<'v, str>, &'v Value>),
}

impl<'v> ByName<'v> {
    fn new(map: &'v Map, needed: usize) -> Self {
        if needed > MANY { Self::Many(map.iter().collect()) } else { Self::Few(map) }
    }

    fn get(&self, name: &str) -> Option<&'v Value> {
        match self {
            Self::Few(map) => map.get(name),
            Self::Many(map) => map.get(name).copied(),
        }
    }
}

/// Returns the name of a field of `metadata` at this place.
pub(super) fn field_of_metadata(at: &[FieldStep]) -> Option<&str> {
    match at {
        [FieldStep::Name(part), FieldStep::Name(name)] if &**part == "metadata" => Some(name),
        _ => None,
    }
}
