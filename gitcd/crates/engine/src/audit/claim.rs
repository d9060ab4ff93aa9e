//! What an audit event claims: that an actor wrote an object, at a revision or within a span of time.

use std::sync::Arc;

use gitcd_repo::actor::Actor;

use super::event::{Event, ObjectRef, User};

/// Subresources whose requests write nothing, or another object than the one that they name.
const READS: [&str; 6] = ["token", "exec", "attach", "portforward", "proxy", "log"];
/// Subresources that answer with a status, and write the object that they name.
const INDIRECT: [&str; 2] = ["binding", "eviction"];

/// A claim that an actor wrote an object.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who.
    pub actor: Arc<Actor>,
    /// Which object; without a name, all objects of the resource, in the namespace if there is one.
    pub object: ObjectRef,
    /// When the request arrived, in milliseconds since 1970, rounded down.
    pub from_ms: i64,
    /// When the response was sent.
    pub to_ms: i64,
    /// Which write.
    pub write: Write,
}

/// The write of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// That of the revision in the response.
    At(i64),
    /// That of the revision in the response; or if the object's last finalizer was removed, its deletion.
    AtOrDeletion(i64),
    /// The only deletion of the object in the time of the request.
    Deletion,
    /// The only write of the object in the time of the request.
    Any,
}

impl Claim {
    /// Returns what an event claims; `None` if the request wrote nothing: reads, failures, dry runs, and subresources that are no
    /// part of the object.
    pub fn of(event: &Event) -> Option<Self> {
        let code = event.response_status.as_ref().map_or(0, |status| status.code);
        let object = event.object_ref.as_ref()?;
        // Of a deletion with options in its body, kube-apiserver does not read the query.
        let is_dry_run = event.request_object.dry_run.unwrap_or_else(|| has_dry_run(&event.uri));
        if event.stage != "ResponseComplete" || !(200..300).contains(&code) || is_dry_run {
            return None;
        }
        if READS.contains(&object.subresource.as_str()) {
            return None;
        }
        let (from_ms, to_ms) = (event.request_received_timestamp.0?, event.stage_timestamp.0?);
        let write = write(event, object)?;
        let mut object = object.clone();
        if object.resource == "namespaces" {
            // For the authorization, a namespace is in itself.
            object.namespace.clear();
        }
        if event.verb == "deletecollection" {
            object.name.clear();
        } else if object.name.is_empty() {
            // `generateName`: only the response has the name.
            object.name = event.response_object.name.clone().filter(|name| !name.is_empty())?;
        }
        Some(Self { actor: Arc::new(actor(event, &object)), object, from_ms, to_ms, write })
    }

    /// Returns whether a write was accepted in the time of the request. `tolerance_ms` is for clocks that differ.
    pub(super) fn covers(&self, time_ms: i64, tolerance_ms: i64) -> bool {
        (self.from_ms - tolerance_ms..=self.to_ms + tolerance_ms).contains(&time_ms)
    }

    /// Returns the revision of the response.
    pub(super) fn revision(&self) -> Option<i64> {
        match self.write {
            Write::At(revision) | Write::AtOrDeletion(revision) => Some(revision),
            Write::Deletion | Write::Any => None,
        }
    }
}

fn write(event: &Event, object: &ObjectRef) -> Option<Write> {
    let response = &event.response_object;
    let revision = response.resource_version.as_deref().and_then(|version| version.parse::<i64>().ok());
    match (event.verb.as_str(), revision) {
        ("create" | "update" | "patch", _) if INDIRECT.contains(&object.subresource.as_str()) => Some(Write::Any),
        ("update" | "patch", Some(revision)) if response.is_terminating => Some(Write::AtOrDeletion(revision)),
        ("create" | "update" | "patch" | "delete", Some(revision)) => Some(Write::At(revision)),
        // At level `Metadata`, or of an event that kube-apiserver truncated.
        ("create" | "update" | "patch", None) => Some(Write::Any),
        ("delete", None) | ("deletecollection", _) => Some(Write::Deletion),
        _ => None,
    }
}

fn has_dry_run(uri: &str) -> bool {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|part| part.split_once('=').is_some_and(|(name, value)| name == "dryRun" && !value.is_empty()))
}

fn actor(event: &Event, object: &ObjectRef) -> Actor {
    let (user, impersonator) = match &event.impersonated_user {
        Some(User { username, groups }) => ((username, groups), event.user.username.clone()),
        None => ((&event.user.username, &event.user.groups), String::new()),
    };
    let actor = Actor {
        user: user.0.clone(),
        groups: user.1.clone(),
        verb: event.verb.clone(),
        subresource: object.subresource.clone(),
        agent: event.user_agent.clone(),
        // The client can choose all others by `X-Forwarded-For`.
        source: event.sources.last().cloned().unwrap_or_default(),
        impersonator,
    };
    actor.bounded()
}

/// Resources whose keys have another name (`SpecialDefaultResourcePrefixes` of kube-apiserver).
const RENAMED: [(&str, &str); 5] = [
    ("replicationcontrollers", "controllers"),
    ("endpoints", "services/endpoints"),
    ("services", "services/specs"),
    ("nodes", "minions"),
    ("ingresses", "ingress"),
];

/// Returns whether a key of kube-apiserver, relative to the branch's prefix, is that of an object: `<resource>/<namespace>/<name>`, or
/// with the API group before it.
pub(super) fn is_key_of(key: &[u8], object: &ObjectRef) -> bool {
    let ObjectRef { api_group, resource, namespace, name, .. } = object;
    let inner = if name.is_empty() {
        key.iter().rposition(|byte| *byte == b'/').map(|at| &key[..at])
    } else {
        strip(key, name)
    };
    // A collection of all namespaces.
    let any_namespace = name.is_empty() && namespace.is_empty();
    let resources = match inner {
        Some(inner) if namespace.is_empty() => inner,
        Some(inner) => match strip(inner, namespace) {
            Some(resources) => resources,
            None => return false,
        },
        None => return false,
    };
    let leads = |resources: &[u8]| {
        let Some(before) = strip(resources, resource) else {
            let is_renamed = |(from, to): &(&str, &str)| resource == from && ends_with(resources, to);
            return api_group_is_renamed(api_group) && RENAMED.iter().any(is_renamed);
        };
        // Built-in kinds have no group in their keys, custom ones have.
        let group = before.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        !group.contains(&b'.') || group == api_group.as_bytes()
    };
    leads(resources)
        || any_namespace && resources.iter().rposition(|byte| *byte == b'/').is_some_and(|at| leads(&resources[..at]))
}

fn api_group_is_renamed(group: &str) -> bool {
    matches!(group, "" | "extensions" | "networking.k8s.io")
}

/// Removes the last component of a path.
fn strip<'k>(path: &'k [u8], last: &str) -> Option<&'k [u8]> {
    if path == last.as_bytes() {
        return Some(b"");
    }
    path.strip_suffix(last.as_bytes())?.strip_suffix(b"/")
}

fn ends_with(path: &[u8], last: &str) -> bool {
    strip(path, last).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::event::EventList;
    use super::*;

    fn object(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectRef {
        let [api_group, resource, namespace, name] = [group, resource, namespace, name].map(ToOwned::to_owned);
        ObjectRef { api_group, resource, namespace, name, subresource: String::new() }
    }

    #[test]
    fn keys_of_kube_apiserver_lead_to_their_objects() {
        for (key, of) in [
            ("/registry/configmaps/shop/prices", object("", "configmaps", "shop", "prices")),
            ("/registry/deployments/shop/web", object("apps", "deployments", "shop", "web")),
            ("/registry/services/specs/shop/web", object("", "services", "shop", "web")),
            ("/registry/services/endpoints/shop/web", object("", "endpoints", "shop", "web")),
            ("/registry/minions/one", object("", "nodes", "", "one")),
            ("/registry/namespaces/shop", object("", "namespaces", "", "shop")),
            ("/registry/ingress/shop/web", object("networking.k8s.io", "ingresses", "shop", "web")),
            ("/registry/clusterroles/view", object("rbac.authorization.k8s.io", "clusterroles", "", "view")),
            ("/registry/example.org/gauges/shop/rain", object("example.org", "gauges", "shop", "rain")),
            (
                "/registry/apiregistration.k8s.io/apiservices/v1.",
                object("apiregistration.k8s.io", "apiservices", "", "v1."),
            ),
            ("configmaps/shop/prices", object("", "configmaps", "shop", "")),
            ("configmaps/shop/prices", object("", "configmaps", "", "")),
        ] {
            assert!(is_key_of(key.as_bytes(), &of), "{key}: {of:?}");
        }
    }

    #[test]
    fn other_keys_do_not() {
        for (key, of) in [
            ("/registry/configmaps/shop/prices", object("", "configmaps", "shop", "rices")),
            ("/registry/configmaps/shop/prices", object("", "secrets", "shop", "prices")),
            ("/registry/configmaps/shop/prices", object("", "configmaps", "kube-system", "prices")),
            ("/registry/configmaps/shop/prices", object("", "configmaps", "other", "")),
            ("/registry/services/specs/shop/web", object("", "endpoints", "shop", "web")),
            ("/registry/example.org/gauges/shop/rain", object("other.org", "gauges", "shop", "rain")),
            ("/registry/serving.knative.dev/services/shop/web", object("", "services", "shop", "web")),
            ("/registry/xconfigmaps/shop/prices", object("", "configmaps", "shop", "prices")),
            ("prices", object("", "configmaps", "shop", "prices")),
            ("", object("", "configmaps", "", "")),
        ] {
            assert!(!is_key_of(key.as_bytes(), &of), "{key}: {of:?}");
        }
    }

    /// Returns what the only event of a list claims, with fields replaced.
    fn claim(replace: &[(&str, &str)]) -> Option<Claim> {
        let mut json = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"stage":"ResponseComplete",
            "requestURI":"/api/v1/namespaces/shop/configmaps/prices?fieldManager=kubectl-edit","verb":"patch",
            "user":{"username":"admin","groups":["system:masters","system:authenticated"]},
            "sourceIPs":["1.2.3.4","10.0.0.7"],"userAgent":"kubectl/v1.36.3",
            "objectRef":{"resource":"configmaps","namespace":"shop","name":"prices","apiVersion":"v1"},
            "responseStatus":{"metadata":{},"code":200},"requestObject":{"data":{"tea":"5"}},
            "responseObject":{"kind":"ConfigMap","metadata":{"name":"prices","resourceVersion":"4711"}},
            "requestReceivedTimestamp":"2026-11-27T07:00:00.000100Z","stageTimestamp":"2026-11-27T07:00:00.010900Z"}]}"#
            .to_owned();
        for (from, to) in replace {
            assert!(json.contains(from), "{from}");
            json = json.replace(from, to);
        }
        let list = EventList::parse(json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"));
        Claim::of(&list.items[0])
    }

    #[test]
    fn a_patch_claims_the_revision_of_its_response() {
        let claim = claim(&[]).expect("a patch writes");
        assert_eq!(claim.write, Write::At(4711));
        assert_eq!(claim.to_ms - claim.from_ms, 10);
        let Actor { user, groups, verb, agent, source, impersonator, .. } = &*claim.actor;
        assert_eq!([user, verb, agent, source, impersonator], ["admin", "patch", "kubectl/v1.36.3", "10.0.0.7", ""]);
        assert_eq!(groups, &["system:masters"]);
    }

    #[test]
    fn an_impersonated_user_is_the_actor_and_the_real_one_is_named() {
        let as_jane = (r#""sourceIPs""#, r#""impersonatedUser":{"username":"jane","groups":["dev"]},"sourceIPs""#);
        let claim = claim(&[as_jane]).expect("a patch writes");
        let Actor { user, groups, impersonator, .. } = &*claim.actor;
        assert_eq!((user.as_str(), impersonator.as_str(), &groups[..]), ("jane", "admin", &["dev".to_owned()][..]));
    }

    #[test]
    fn requests_that_write_nothing_claim_nothing() {
        for replace in [
            (r#""verb":"patch""#, r#""verb":"get""#),
            (r#""code":200"#, r#""code":409"#),
            ("ResponseComplete", "ResponseStarted"),
            ("fieldManager=kubectl-edit", "fieldManager=x&dryRun=All"),
            (r#""requestObject":{"data":{"tea":"5"}}"#, r#""requestObject":{"kind":"DeleteOptions","dryRun":["All"]}"#),
            (r#""apiVersion":"v1"}"#, r#""subresource":"token"}"#),
            ("2026-11-27T07:00:00.000100Z", "never"),
        ] {
            assert!(claim(&[replace]).is_none(), "{replace:?}");
        }
    }

    #[test]
    fn the_body_of_a_deletion_decides_whether_it_is_a_dry_run() {
        let deletion = (r#""verb":"patch""#, r#""verb":"delete""#);
        let options = (r#""requestObject":{"data":{"tea":"5"}}"#, r#""requestObject":{"kind":"DeleteOptions"}"#);
        let query = ("fieldManager=kubectl-edit", "fieldManager=x&dryRun=All");
        assert!(claim(&[deletion, query]).is_none());
        assert!(claim(&[deletion, query, options]).is_some());
    }

    #[test]
    fn a_response_without_a_revision_claims_the_only_write_of_its_time() {
        let without = (r#","resourceVersion":"4711""#, "");
        let write = |replace: &[(&str, &str)]| claim(replace).expect("it writes").write;
        let status = (r#""apiVersion":"v1"}"#, r#""subresource":"status"}"#);
        let delete = (r#""verb":"patch""#, r#""verb":"delete""#);
        let binding = (r#""apiVersion":"v1"}"#, r#""subresource":"binding"}"#);
        let terminating = (r#""resourceVersion""#, r#""deletionTimestamp":"2026-11-27T06:00:00Z","resourceVersion""#);
        assert_eq!(write(&[without]), Write::Any);
        assert_eq!(write(&[status]), Write::At(4711));
        assert_eq!(write(&[delete, without]), Write::Deletion);
        assert_eq!(write(&[delete]), Write::At(4711));
        assert_eq!(write(&[binding]), Write::Any);
        assert_eq!(write(&[terminating]), Write::AtOrDeletion(4711));
        let collection = claim(&[(r#""verb":"patch""#, r#""verb":"deletecollection""#)]).unwrap();
        assert_eq!((collection.write, collection.object.name.as_str()), (Write::Deletion, ""));
    }

    #[test]
    fn the_response_has_the_name_that_the_server_chose() {
        let chosen = claim(&[(r#""name":"prices","apiVersion":"v1"}"#, r#""apiVersion":"v1"}"#)]).unwrap();
        assert_eq!(chosen.object.name, "prices");
    }
}
