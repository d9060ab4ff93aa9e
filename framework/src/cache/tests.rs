//! Tests of caches without a cluster.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;

use super::*;

fn map(namespace: &str, name: &str, version: u32) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some(namespace.to_owned());
    map.metadata.name = Some(name.to_owned());
    map.metadata.resource_version = Some(version.to_string());
    map.metadata.managed_fields = Some(Vec::new());
    map
}

fn list(cache: &Cache<ConfigMap>, listing: &mut Listing<ConfigMap>, objects: Vec<ConfigMap>) {
    cache.apply(Event::Init, listing);
    objects.into_iter().for_each(|object| cache.apply(Event::InitApply(read(&object)), listing));
    cache.apply(Event::InitDone(None), listing);
}

/// Decodes a map as the apiserver sends it.
fn read(map: &ConfigMap) -> Read<ConfigMap> {
    read_text(&serde_json::to_string(map).unwrap())
}

fn read_text(text: &str) -> Read<ConfigMap> {
    Read::of(&Kind::known(), serde_json::from_str(text).unwrap()).unwrap().0
}

fn gone(map: &ConfigMap) -> Event<ConfigMap> {
    Event::Delete(Key::of(map), map.resource_version().and_then(|version| version.parse().ok()))
}

/// An invalid map: its data is a list.
fn misfit(name: &str, version: u32) -> Read<ConfigMap> {
    let mut text = serde_json::to_value(map("x", name, version)).unwrap();
    text["data"] = serde_json::json!(["secret"]);
    read_text(&text.to_string())
}

/// A cache, and the changes that a follower of it has received, as `name: old version -> new version`.
fn followed(watches: usize) -> (Cache<ConfigMap>, Arc<Mutex<Vec<String>>>) {
    let (cache, changes) = (Cache::<ConfigMap>::new(Kind::known(), watches), Arc::new(Mutex::new(Vec::new())));
    let received = changes.clone();
    cache.follow(move |change| {
        let version = |map: Option<&ConfigMap>| map.and_then(ResourceExt::resource_version).unwrap_or_default();
        let text = format!("{}: {} -> {}", change.object().name_any(), version(change.before), version(change.after));
        received.lock().unwrap().push(if change.initial { format!("initial {text}") } else { text });
    });
    (cache, changes)
}

fn take(changes: &Mutex<Vec<String>>) -> Vec<String> {
    let mut changes = std::mem::take(&mut *changes.lock().unwrap());
    changes.sort();
    changes
}

#[test]
fn a_list_after_a_gap_yields_exactly_what_vanished_changed_and_appeared() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    list(&cache, &mut listing, vec![map("x", "a", 1), map("x", "b", 2), map("x", "c", 3)]);
    assert_eq!(take(&changes), ["initial a:  -> 1", "initial b:  -> 2", "initial c:  -> 3"]);
    list(&cache, &mut listing, vec![map("x", "b", 2), map("x", "c", 4), map("x", "d", 5)]);
    assert_eq!(take(&changes), ["a: 1 -> ", "c: 3 -> 4", "d:  -> 5"]);
    assert_eq!((cache.len(), cache.get(&Key::namespaced("x", "a"))), (3, None));
    assert!(cache.all().iter().all(|map| map.metadata.managed_fields.is_none()));
}

#[test]
fn what_was_as_wanted_is_so_until_there_is_another_version() {
    let (cache, key) = (Cache::new(Kind::known(), 1), Key::namespaced("x", "a"));
    let mut listing = Listing::of(None);
    let settled = |cache: &Cache<ConfigMap>| cache.known(&key).and_then(|known| known.settled());
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    let object = cache.known(&key).unwrap();
    cache.settle(&key, &object, [1; 16]);
    // The same version once more, as after a gap.
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    assert_eq!(settled(&cache), Some([1; 16]));
    cache.apply(Event::Apply(read(&map("x", "a", 2))), &mut listing);
    assert_eq!(settled(&cache), None);
    // This object is the previous version.
    cache.settle(&key, &object, [1; 16]);
    assert_eq!(settled(&cache), None);
}

#[test]
fn a_list_that_did_not_end_changes_nothing() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    take(&changes);
    cache.apply(Event::Init, &mut listing);
    cache.apply(Event::InitApply(read(&map("x", "b", 2))), &mut listing);
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    assert_eq!((take(&changes), cache.len()), (Vec::new(), 1));
}

#[test]
fn the_watch_of_one_namespace_says_nothing_of_others_and_all_have_to_be_complete() {
    let (cache, changes) = followed(2);
    let listing = |namespace: &str| Listing::of(Some(namespace.to_owned()));
    let (mut x, mut y) = (listing("x"), listing("y"));
    list(&cache, &mut x, vec![map("x", "a", 1)]);
    assert!(!cache.is_synced());
    list(&cache, &mut y, vec![map("y", "b", 2)]);
    assert!(cache.is_synced());
    take(&changes);
    list(&cache, &mut y, Vec::new());
    assert_eq!((take(&changes), cache.len()), (vec!["b: 2 -> ".to_owned()], 1));
}

#[test]
fn an_object_that_was_replaced_by_one_of_the_same_name_changed() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    take(&changes);
    let mut other = map("x", "a", 1);
    other.metadata.uid = Some("other".to_owned());
    cache.apply(Event::Apply(read(&other)), &mut listing);
    cache.apply(gone(&map("x", "a", 2)), &mut listing);
    cache.apply(gone(&map("x", "a", 2)), &mut listing);
    assert_eq!(take(&changes), ["a: 1 -> ", "a: 1 -> 1"]);
}

#[test]
fn what_an_owner_controls_follows_every_change() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    let ((cache, _), mut listing) = (followed(1), Listing::of(None));
    let owned = |name: &str, version: u32, uid: &str| {
        let mut map = map("x", name, version);
        let reference = OwnerReference { uid: uid.to_owned(), controller: Some(true), ..OwnerReference::default() };
        map.metadata.owner_references = Some(vec![reference]);
        map
    };
    let names = |uid: &str| {
        let mut names: Vec<_> = cache.owned_by(uid).iter().map(|map| map.name_any()).collect();
        names.sort();
        names
    };
    list(&cache, &mut listing, vec![owned("a", 1, "one"), owned("b", 2, "one"), map("x", "c", 3)]);
    assert_eq!(names("one"), ["a", "b"]);
    cache.apply(Event::Apply(read(&owned("a", 4, "other"))), &mut listing);
    cache.apply(gone(&owned("b", 5, "one")), &mut listing);
    assert_eq!((names("one"), names("other")), (vec![], vec!["a".to_owned()]));
    list(&cache, &mut listing, vec![owned("c", 6, "one")]);
    assert_eq!((names("one"), names("other")), (vec!["c".to_owned()], vec![]));
}

#[test]
fn the_response_to_a_write_counts_until_the_watch_is_newer_and_restores_nothing() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    list(&cache, &mut listing, vec![map("x", "a", 5)]);
    take(&changes);
    let version = || cache.get(&Key::namespaced("x", "a")).and_then(|map| map.resource_version());
    let lists = cache.lists();
    cache.learn(map("x", "a", 9), lists);
    assert_eq!((version().as_deref(), take(&changes)), (Some("9"), vec!["a: 5 -> 9".to_owned()]));
    // The watch delivers an older version, and this one.
    cache.apply(Event::Apply(read(&map("x", "a", 7))), &mut listing);
    cache.apply(Event::Apply(read(&map("x", "a", 9))), &mut listing);
    assert_eq!((version().as_deref(), take(&changes)), (Some("9"), vec![]));
    // It is deleted before the response to another write arrives.
    cache.apply(gone(&map("x", "a", 12)), &mut listing);
    cache.learn(map("x", "a", 11), lists);
    assert_eq!((version(), take(&changes)), (None, vec!["a: 9 -> ".to_owned()]));
    // A list shows its deletion before the response arrives.
    list(&cache, &mut listing, Vec::new());
    cache.learn(map("x", "a", 13), lists);
    assert_eq!((version(), take(&changes)), (None, vec![]));
}

#[test]
fn a_deletion_that_was_learned_is_reported_once_and_concerns_no_other_object_of_that_name() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    let of = |uid: &str, version| {
        let mut map = map("x", "a", version);
        map.metadata.uid = Some(uid.to_owned());
        map
    };
    list(&cache, &mut listing, vec![of("one", 5)]);
    take(&changes);
    let key = Key::namespaced("x", "a");
    cache.learn_deletion(&key, Some("other"));
    assert_eq!((cache.len(), take(&changes)), (1, vec![]));
    cache.learn_deletion(&key, Some("one"));
    assert_eq!((cache.len(), take(&changes)), (0, vec!["a: 5 -> ".to_owned()]));
    // The watch reports it after the object was created again.
    cache.learn(of("two", 9), cache.lists());
    cache.apply(gone(&of("one", 7)), &mut listing);
    assert_eq!((cache.len(), take(&changes)), (1, vec!["a:  -> 9".to_owned()]));
}

#[test]
fn nothing_is_learned_whose_deletion_no_watch_would_report() {
    let mut labelled = map("x", "a", 5);
    labelled.metadata.labels = Some([("kind".to_owned(), "tank".to_owned())].into());
    let of = |caches: &Caches, labels| caches.cache_of(&Kind::<ConfigMap>::known(), labels);
    let (everywhere, one) = (Caches::new(Scope::All), Caches::new(Scope::namespaces(["x"])));
    let names = |cache: &Cache<ConfigMap>| cache.all().iter().map(|map| map.name_any()).collect::<Vec<_>>();

    let cache = of(&one, None);
    cache.learn(map("y", "elsewhere", 9), cache.lists());
    cache.learn(map("x", "here", 9), cache.lists());
    assert_eq!(names(&cache), ["here"]);

    let (cache, mut listing) = (of(&everywhere, Some("kind=tank")), Listing::of(None));
    list(&cache, &mut listing, vec![labelled.clone()]);
    cache.learn(map("x", "without", 9), cache.lists());
    labelled.metadata.resource_version = Some("9".to_owned());
    cache.learn(labelled.clone(), cache.lists());
    assert_eq!(names(&cache), ["a"]);
    assert_eq!(cache.all()[0].resource_version().as_deref(), Some("9"));
    cache.learn(map("x", "a", 10), cache.lists());
    assert_eq!(cache.all()[0].resource_version().as_deref(), Some("9"), "the selector no longer matches it");
    (labelled.metadata.name, labelled.metadata.uid) = (Some("new".to_owned()), Some("another".to_owned()));
    cache.learn(labelled.clone(), cache.lists());
    assert_eq!(cache.len(), 2, "a new object that the selector matches is learned");

    // Only the apiserver evaluates this selector.
    let (cache, mut listing) = (of(&everywhere, Some("kind in (tank)")), Listing::of(None));
    list(&cache, &mut listing, vec![labelled.clone()]);
    labelled.metadata.resource_version = Some("10".to_owned());
    cache.learn(labelled.clone(), cache.lists());
    assert_eq!(cache.all()[0].resource_version().as_deref(), Some("10"));
    labelled.metadata.name = Some("other".to_owned());
    cache.learn(labelled, cache.lists());
    assert_eq!(names(&cache), ["new"]);
}

#[test]
fn what_was_written_while_a_list_was_read_stays_until_the_next_list() {
    let ((cache, _), mut listing) = (followed(1), Listing::of(None));
    let versions = || {
        let mut all: Vec<_> = cache.all().iter().map(|map| (map.name_any(), map.resource_version().unwrap())).collect();
        all.sort();
        all.into_iter().map(|(name, version)| format!("{name} at {version}")).collect::<Vec<_>>()
    };
    list(&cache, &mut listing, vec![map("x", "a", 5), map("x", "c", 6)]);
    cache.apply(Event::Init, &mut listing);
    cache.apply(Event::InitApply(read(&map("x", "a", 5))), &mut listing);
    cache.apply(Event::InitApply(misfit("c", 7)), &mut listing);
    for written in [map("x", "a", 9), map("x", "b", 10), map("x", "c", 11)] {
        cache.learn(written, cache.lists());
    }
    cache.apply(Event::InitDone(Some(8)), &mut listing);
    assert_eq!(versions(), ["a at 9", "b at 10", "c at 11"]);
    assert!(cache.misfits().is_empty());

    // A list that is later shows more than the responses did.
    cache.apply(Event::Init, &mut listing);
    cache.learn(map("x", "d", 12), cache.lists());
    cache.apply(Event::InitDone(Some(12)), &mut listing);
    assert_eq!(versions(), Vec::<String>::new());

    // So does one that began later, of a store that was restored from a backup.
    cache.learn(map("x", "a", 14), cache.lists());
    cache.apply(Event::Init, &mut listing);
    cache.apply(Event::InitApply(read(&map("x", "a", 3))), &mut listing);
    cache.apply(Event::InitDone(Some(4)), &mut listing);
    assert_eq!(versions(), ["a at 3"]);
}

#[test]
fn an_index_follows_every_change_and_has_what_was_there_before_it() {
    let (cache, mut listing) = (Arc::new(Cache::<ConfigMap>::new(Kind::known(), 1)), Listing::of(None));
    let on = |name: &str, version: u32, nodes: &[&str]| {
        let mut map = map("x", name, version);
        map.data = Some(nodes.iter().map(|node| ((*node).to_owned(), String::new())).collect());
        map
    };
    let of = |map: &ConfigMap| map.data.iter().flatten().map(|(node, _)| node.clone()).collect();
    let early = cache.index(of);
    list(&cache, &mut listing, vec![on("a", 1, &["one"]), on("b", 2, &["one", "two"]), on("c", 3, &[])]);
    let late = cache.index(of);
    let check = |expected: [&[&str]; 2]| {
        for index in [&early, &late] {
            for (value, expected) in ["one", "two"].into_iter().zip(expected) {
                let mut names: Vec<_> = index.get(value).iter().map(|map| map.name_any()).collect();
                names.sort();
                assert_eq!(names, expected, "{value}");
                assert_eq!(index.keys(value).len(), expected.len(), "{value}");
            }
        }
    };
    check([&["a", "b"], &["b"]]);
    cache.apply(Event::Apply(read(&on("a", 4, &["two"]))), &mut listing);
    cache.apply(gone(&on("b", 5, &[])), &mut listing);
    check([&[], &["a"]]);
    cache.learn(on("c", 6, &["one"]), cache.lists());
    check([&["c"], &["a"]]);
    list(&cache, &mut listing, Vec::new());
    check([&[], &[]]);
    let nothing_left = format!("{early:?}");
    assert_eq!(nothing_left, "Index { values: 0, .. }");
}

#[test]
fn an_object_that_does_not_fit_its_type_is_left_out_and_counted_until_it_fits_or_goes() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    let misfits = |cache: &Cache<ConfigMap>| {
        let mut misfits: Vec<_> = cache.misfits().iter().map(|it| format!("{} at {}", it.key, it.version)).collect();
        misfits.sort();
        assert_eq!(cache.misfits.get(), misfits.len() as i64);
        misfits
    };
    let mut misfit_notices = cache.another_misfit();
    let mut is_news = || {
        let news = misfit_notices.has_changed().unwrap();
        misfit_notices.mark_unchanged();
        news
    };
    cache.apply(Event::Init, &mut listing);
    for object in [read(&map("x", "a", 1)), misfit("b", 2), read(&map("x", "c", 3)), misfit("d", 4)] {
        cache.apply(Event::InitApply(object), &mut listing);
    }
    cache.apply(Event::InitDone(None), &mut listing);
    assert_eq!(
        (cache.is_synced(), take(&changes)),
        (true, vec!["initial a:  -> 1".to_owned(), "initial c:  -> 3".into()])
    );
    assert_eq!((misfits(&cache), is_news()), (vec!["x/b at 2".to_owned(), "x/d at 4".into()], true));
    let why = &cache.misfits()[0].why;
    assert_eq!(why, "data: invalid type: sequence, expected a map");

    // One becomes valid, one becomes invalid, one is deleted, and a new one is invalid.
    cache.apply(Event::Apply(read(&map("x", "b", 5))), &mut listing);
    cache.apply(Event::Apply(misfit("c", 6)), &mut listing);
    cache.apply(Event::Delete(Key::namespaced("x", "d"), Some(7)), &mut listing);
    cache.apply(Event::Apply(misfit("e", 8)), &mut listing);
    assert_eq!(take(&changes), ["b:  -> 5", "c: 3 -> "]);
    assert_eq!((misfits(&cache), is_news()), (vec!["x/c at 6".to_owned(), "x/e at 8".into()], true));
    assert_eq!(cache.len(), 2);

    // The same list again reports nothing; a list without them removes them.
    for (listed, expected) in [(vec![misfit("c", 6)], vec!["x/c at 6".to_owned()]), (vec![], vec![])] {
        cache.apply(Event::Init, &mut listing);
        listed.into_iter().for_each(|object| cache.apply(Event::InitApply(object), &mut listing));
        cache.apply(Event::InitDone(None), &mut listing);
        assert_eq!((misfits(&cache), is_news()), (expected, false));
    }
}

#[test]
fn a_learned_object_equals_the_watched_one_of_its_version_in_any_encoding() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    list(&cache, &mut listing, vec![map("x", "a", 5)]);
    take(&changes);
    let key = Key::namespaced("x", "a");
    cache.learn(map("x", "a", 9), cache.lists());
    let learned = cache.known(&key).unwrap();
    cache.settle(&key, &learned, [1; 16]);
    let text = r#"{"data":null,"metadata":{"resourceVersion":"9","namespace":"x","name":"a"},"more":1}"#;
    cache.apply(Event::Apply(read_text(text)), &mut listing);
    let known = cache.known(&key).unwrap();
    assert_eq!((take(&changes), known.settled()), (vec!["a: 5 -> 9".to_owned()], Some([1; 16])));
    // From now on the text is the apiserver's.
    assert_eq!(known.object().value()["more"], 1);
    list(&cache, &mut listing, vec![map("x", "a", 9)]);
    assert_eq!(take(&changes), ["a: 9 -> 9"]);
}

#[test]
fn what_was_made_anew_is_not_taken_for_what_was_there_before() {
    let ((cache, changes), mut listing) = (followed(1), Listing::of(None));
    let of = |uid: &str, version| {
        let mut map = map("x", "a", version);
        map.metadata.uid = Some(uid.to_owned());
        map
    };
    list(&cache, &mut listing, vec![of("old", 5)]);
    cache.learn(of("new", 9), cache.lists());
    assert_eq!(take(&changes), ["a: 5 -> 9", "initial a:  -> 5"]);
    // The watch delivers the deletion of the old one.
    cache.apply(Event::Apply(read(&of("old", 7))), &mut listing);
    cache.apply(gone(&of("old", 8)), &mut listing);
    cache.apply(Event::Apply(read(&of("new", 9))), &mut listing);
    assert_eq!((take(&changes), cache.len()), (vec![], 1));
    cache.apply(gone(&of("new", 10)), &mut listing);
    assert_eq!((take(&changes), cache.len()), (vec!["a: 9 -> ".to_owned()], 0));
}

#[test]
fn changes_are_delivered_in_order_from_any_source() {
    const LAST: u32 = 40_000;
    let cache = Cache::<ConfigMap>::new(Kind::known(), 1);
    let (last, mut listing) = (Arc::new(Mutex::new(0)), Listing::of(None));
    let seen = last.clone();
    cache.follow(move |change| {
        let version: u32 = change.after.and_then(ResourceExt::resource_version).unwrap().parse().unwrap();
        let before = std::mem::replace(&mut *seen.lock().unwrap(), version);
        assert!(before < version, "{version} was reported after {before}");
    });
    list(&cache, &mut listing, vec![map("x", "a", 1)]);
    let next = AtomicU32::new(2);
    let versions = || std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::SeqCst)).filter(|next| *next < LAST));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            versions().for_each(|version| cache.apply(Event::Apply(read(&map("x", "a", version))), &mut listing));
            cache.apply(Event::Apply(read(&map("x", "a", LAST))), &mut listing);
        });
        scope.spawn(|| versions().for_each(|version| cache.learn(map("x", "a", version), cache.lists())));
    });
    assert_eq!(*last.lock().unwrap(), LAST);
}
