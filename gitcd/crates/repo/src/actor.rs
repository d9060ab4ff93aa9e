//! Who made a change, as a trailer of the commit: `Actor: {"user":"jane","verb":"patch"}`.
//!
//! The value is one JSON object on one line. JSON quotes whatever a name contains, so a name can neither end the line nor
//! imitate another field or another trailer. Control characters and characters that change the direction of text are escaped.
//! Every part has a length limit.
//!
//! A commit of one change has one trailer, without `keys`. A commit of several changes has one for each actor, with the keys
//! (relative to the key prefix) that the actor changed; a key without a known actor is in none of them.
//! Source of the format: `docs/design/audit.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use gitcd_core::keyspace::{KeySpace, Placement};
use serde::{Deserialize, Serialize};

/// The name of the trailer.
const TRAILER: &str = "Actor: ";
/// Maximum length of a user name, user agent and so on, in bytes.
const MAX_TEXT: usize = 256;
/// Maximum number of groups.
const MAX_GROUPS: usize = 16;
/// Maximum length of all trailers of a commit, in bytes. Actors beyond it are omitted.
const MAX_TRAILERS: usize = 64 << 10;
/// The group of all authenticated users: it adds nothing to the name.
const AUTHENTICATED: &str = "system:authenticated";

/// Who made a request to kube-apiserver, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Actor {
    /// The user: the impersonated one of a request that impersonates. `system:serviceaccount:<namespace>:<name>` for a service
    /// account.
    pub user: String,
    /// The user's groups, without `system:authenticated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The verb of the request: `create`, `update`, `patch`, `delete`, `deletecollection`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verb: String,
    /// The subresource of the request: `status`, `scale`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    /// The user agent, which the client chose.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The address that connected to kube-apiserver: of the client, or of a proxy before kube-apiserver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The user that impersonated `user`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub impersonator: String,
}

impl Actor {
    /// Cuts every part to its length limit, and drops the group of all authenticated users.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.groups.retain(|group| group != AUTHENTICATED);
        self.groups.truncate(MAX_GROUPS);
        let Self { user, groups, verb, subresource, agent, source, impersonator } = &mut self;
        for text in groups.iter_mut().chain([user, verb, subresource, agent, source, impersonator]) {
            if text.len() > MAX_TEXT {
                text.truncate(text.floor_char_boundary(MAX_TEXT - '…'.len_utf8()));
                text.push('…');
            }
        }
        self
    }
}

impl std::fmt::Display for Actor {
    /// Formats the user, and who impersonated it: `jane`, `jane (impersonated by admin)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.user)?;
        if self.impersonator.is_empty() { Ok(()) } else { write!(f, " (impersonated by {})", self.impersonator) }
    }
}

/// Returns the name of a key in a trailer: relative to the key prefix, or the whole key if it is not in the data tree.
pub fn key_name<'k>(keys: &KeySpace, key: &'k [u8]) -> &'k [u8] {
    if keys.placement(key) == Placement::Data { keys.relative(key) } else { key }
}

/// An actor, and the keys that it changed in a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// The actor.
    #[serde(flatten)]
    pub actor: Actor,
    /// The keys, relative to the key prefix; `None` for all of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
}

impl Attribution {
    /// Attributes all changes of a commit to one actor.
    pub fn whole(actor: Actor) -> Self {
        Self { actor, keys: None }
    }

    /// Attributes changes to the actors of their keys. `changes` are all changed keys of a commit, relative to the key prefix.
    pub fn of<'a>(changes: impl IntoIterator<Item = (&'a [u8], Option<&'a Actor>)>) -> Vec<Self> {
        let (mut actors, mut count, mut unknown) = (BTreeMap::<&Actor, Vec<String>>::new(), 0, 0);
        for (key, actor) in changes {
            count += 1;
            // Keys of kube-apiserver are text.
            match (actor, std::str::from_utf8(key)) {
                (Some(actor), Ok(key)) => actors.entry(actor).or_default().push(key.to_owned()),
                (Some(actor), Err(_)) if count == 1 => drop(actors.entry(actor).or_default()),
                _ => unknown += 1,
            }
        }
        if actors.len() == 1 && unknown == 0 {
            return actors.into_keys().map(|actor| Self::whole(actor.clone())).collect();
        }
        actors.into_iter().map(|(actor, keys)| Self { actor: actor.clone(), keys: Some(keys) }).collect()
    }

    /// Returns the actors of one key, relative to the key prefix, from the message of a commit; without a key, those of all keys.
    /// Lines that are no valid trailers are ignored.
    pub fn actors(message: &str, key: Option<&str>) -> Vec<Actor> {
        let mut actors = Vec::new();
        for line in message.lines().skip(1).filter_map(|line| line.strip_prefix(TRAILER)) {
            let Ok(Self { actor, keys }) = serde_json::from_str(line) else { continue };
            let is_named = match (key, &keys) {
                (Some(key), Some(keys)) => keys.iter().any(|named| named == key),
                _ => true,
            };
            if is_named && !actor.user.is_empty() && !actors.contains(&actor) {
                actors.push(actor);
            }
        }
        actors
    }
}

/// Formats the trailers, one line each.
pub(super) fn trailers(attributions: &[Attribution]) -> String {
    let mut text = String::new();
    for attribution in attributions {
        let json = serde_json::to_string(attribution).expect("texts can be written as JSON");
        if text.len() + TRAILER.len() + json.len() < MAX_TRAILERS {
            writeln!(text, "{TRAILER}{}", escaped(&json)).expect("writing to a string does not fail");
        }
    }
    text
}

/// Escapes the characters of a JSON text that a terminal or a pager would not print as they are. JSON has them in texts only, and
/// `serde_json` escapes those below U+0020.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() || is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}").expect("writing to a string does not fail");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Returns whether a character is a line separator, changes the direction of text, or takes no space.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jane() -> Actor {
        Actor { user: "jane".into(), verb: "patch".into(), agent: "kubectl/v1.36.3".into(), ..Actor::default() }
    }

    fn message(attributions: &[Attribution]) -> String {
        format!("update pods/n/a\n\nRevision: 7\n{}", trailers(attributions))
    }

    #[test]
    fn one_change_has_one_trailer_that_is_found_with_grep() {
        let text = message(&Attribution::of([(&b"pods/n/a"[..], Some(&jane()))]));
        assert!(
            text.ends_with("Actor: {\"user\":\"jane\",\"verb\":\"patch\",\"agent\":\"kubectl/v1.36.3\"}\n"),
            "{text}"
        );
        assert_eq!(Attribution::actors(&text, Some("pods/n/a")), [jane()]);
        assert_eq!(Attribution::actors(&text, None), [jane()]);
    }

    #[test]
    fn several_changes_lead_each_key_to_its_actor() {
        let bob = Actor { user: "bob".into(), ..Actor::default() };
        let changes = [
            (&b"pods/n/a"[..], Some(&bob)),
            (b"pods/n/b", Some(&jane())),
            (b"pods/n/c", Some(&bob)),
            (b"pods/n/d", None),
        ]
        .map(|(key, actor)| (key, actor.cloned()));
        let text = message(&Attribution::of(changes.iter().map(|(key, actor)| (*key, actor.as_ref()))));
        let of = |key| Attribution::actors(&text, key).into_iter().map(|actor| actor.user).collect::<Vec<_>>();
        assert_eq!(of(Some("pods/n/a")), ["bob"]);
        assert_eq!(of(Some("pods/n/b")), ["jane"]);
        assert_eq!(of(Some("pods/n/c")), ["bob"]);
        assert!(of(Some("pods/n/d")).is_empty(), "{text}");
        assert_eq!(of(None), ["bob", "jane"]);
    }

    #[test]
    fn an_unknown_actor_is_not_replaced_by_the_only_known_one() {
        let text = message(&Attribution::of([(&b"a"[..], Some(&jane())), (b"b", None)]));
        assert!(Attribution::actors(&text, Some("b")).is_empty(), "{text}");
        assert_eq!(Attribution::actors(&text, Some("a")), [jane()]);
    }

    #[test]
    fn other_trailers_and_damaged_ones_are_ignored() {
        for wrong in
            ["Actor: jane", "Actor: {\"user\":7}", "Actor: {", "Actor:{\"user\":\"x\"}", "Actor: {}", "Client: x"]
        {
            assert!(Attribution::actors(&format!("s\n\n{wrong}\n"), None).is_empty(), "{wrong}");
        }
        assert!(Attribution::actors("Actor: {\"user\":\"subject\"}\n", None).is_empty(), "a subject is no trailer");
        let newer = "s\n\nActor: {\"user\":\"jane\",\"session\":{\"id\":3}}\n";
        assert_eq!(Attribution::actors(newer, None)[0].user, "jane", "fields of later releases are ignored");
    }

    #[test]
    fn a_long_list_of_keys_does_not_make_a_message_grow_without_limit() {
        let keys: Vec<_> = (0..10_000).map(|n| format!("configmaps/{}/{n}", "n".repeat(60))).collect();
        let (bob, jane) = (Actor { user: "bob".into(), ..Actor::default() }, jane());
        let changes = keys.iter().enumerate().map(|(n, key)| (key.as_bytes(), Some(if n > 3 { &bob } else { &jane })));
        let text = trailers(&Attribution::of(changes));
        assert!(text.len() <= MAX_TRAILERS && text.contains("jane"), "{}", text.len());
    }

    proptest! {
        #[test]
        fn no_name_can_add_a_line_or_become_another_name(
            texts in prop::collection::vec(any::<String>(), 6), groups in prop::collection::vec(any::<String>(), 0..20),
        ) {
            let [user, verb, agent, source, impersonator, subresource] =
                texts.try_into().expect("there are six texts");
            let actor = Actor { user: format!("u{user}"), groups, verb, subresource, agent, source, impersonator }.bounded();
            let text = trailers(&[Attribution::whole(actor.clone())]);
            prop_assert_eq!(text.matches('\n').count(), 1);
            let begins = text.starts_with("Actor: {\"user\":\"u");
            prop_assert!(text.ends_with('\n') && begins);
            prop_assert!(!text.trim_end_matches('\n').chars().any(|c| c.is_control() || is_invisible(c)), "{:?}", text);
            prop_assert!(text.len() < 64 << 10);
            prop_assert_eq!(Attribution::actors(&message(&[Attribution::whole(actor.clone())]), None), vec![actor]);
        }
    }

    #[test]
    fn hostile_names_stay_in_their_quotes() {
        for name in [
            "x\nRevision: 9",
            "x\r\nActor: {\"user\":\"root\"}",
            "\",\"user\":\"root",
            "\u{2028}\u{202e}toor\u{85}\u{1b}[31m",
            "\\",
        ] {
            let text = trailers(&[Attribution::whole(Actor { user: name.into(), ..Actor::default() })]);
            assert_eq!(text.lines().count(), 1, "{text:?}");
            assert_eq!(Attribution::actors(&format!("s\n\n{text}"), None)[0].user, name, "{text:?}");
        }
        let long = Actor { user: "é".repeat(400), ..Actor::default() }.bounded();
        assert!(long.user.len() <= MAX_TEXT && long.user.ends_with('…'));
    }
}
