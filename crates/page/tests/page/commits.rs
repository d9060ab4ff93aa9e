//! Commits, objects and the search.

use crate::world::{World, map};

const A: &str = "/registry/configmaps/shop/a";

fn rows(body: &str) -> Vec<String> {
    let links = body.split("class=\"subject\" href=\"/commit/").skip(1);
    links.map(|rest| rest[..40].to_owned()).collect()
}

#[tokio::test]
async fn pages_have_every_commit_once_newest_first() {
    let mut world = World::new(1);
    let mut made: Vec<String> =
        (0..249).map(|number| world.put(0, &[(A, Some(&map("a", &number.to_string())))]).to_string()).collect();
    made.reverse();
    let (_served, client) = world.open().await;
    let (mut seen, mut counts, mut next) = (Vec::new(), Vec::new(), Some("/".to_owned()));
    while let Some(target) = next {
        let page = client.page(&target).await;
        let rows = rows(&page.body);
        counts.push(rows.len());
        seen.extend(rows);
        next = page.next();
    }
    assert_eq!(counts, [100, 100, 50]);
    // The last one starts the empty store.
    assert_eq!(seen[..249], made);
    let response = client.get("/?before=0123456789012345678901234567890123456789").await;
    assert_eq!(response.status, 404, "{}", response.body);
}

#[tokio::test]
async fn merges_have_lanes_and_conflicts_have_both_values() {
    let mut world = World::new(2);
    world.put(0, &[(A, Some(&map("a", "1")))]);
    let theirs = world.put(1, &[(A, Some(&map("a", "2")))]);
    let notes = format!("Conflict: {A} data.tea: kept \"1\", lost \"2\"\n");
    let merge = world.merge(1, &[("/registry/configmaps/shop/b", Some(&map("b", "1")))], &notes);
    let (_served, client) = world.open().await;
    let page = client.page("/").await;
    assert!(page.body.contains("1 conflict") && page.body.contains("lane-1"), "{}", page.body);
    let rows = rows(&page.body);
    assert_eq!(rows[..2], [merge.to_string(), theirs.to_string()], "the merged commit follows its merge");

    let page = client.page(&format!("/commit/{merge}")).await;
    assert!(
        page.body.contains("kept <code><bdi>&quot;1&quot;</bdi></code>, lost <code><bdi>&quot;2&quot;</bdi></code>")
    );
    assert!(page.body.contains(&format!("trishanku undo {}", &merge.to_string()[..10])), "{}", page.body);
    let page = client.page("/object/configmaps/shop/a").await;
    assert!(page.body.contains("lost <code>"), "the object has the conflict, too: {}", page.body);
}

#[tokio::test]
async fn filters_find_commits_by_object_and_user() {
    let mut world = World::new(1);
    let first = world.put_by(0, "jane", &[(A, Some(&map("a", "1")))]).to_string();
    let second = world.put_by(0, "bob", &[("/registry/services/specs/shop/web", Some("{}"))]).to_string();
    let third = world.put_by(0, "bob", &[("/registry/configmaps/other/b", Some(&map("b", "1")))]).to_string();
    let (_served, client) = world.open().await;
    for (filter, expected) in [
        ("kind=cm", vec![&third, &first]),
        ("kind=Service&namespace=shop", vec![&second]),
        ("namespace=shop", vec![&second, &first]),
        ("name=WE", vec![&second]),
        ("user=BOB", vec![&third, &second]),
        ("user=bob&namespace=shop", vec![&second]),
        ("name=none", vec![]),
    ] {
        let page = client.page(&format!("/?{filter}")).await;
        assert_eq!(rows(&page.body).iter().collect::<Vec<_>>(), expected, "{filter}");
    }
}

#[tokio::test]
async fn an_object_has_its_versions_and_who_set_its_fields() {
    let mut world = World::new(1);
    let first = world.put_by(0, "jane", &[(A, Some(&map("a", "4")))]);
    let second = world.put_by(0, "bob", &[(A, Some(&map("a", "5")))]);
    let (_served, client) = world.open().await;
    let page = client.page("/object/configmaps/shop/a").await;
    let at = |text: &str| page.body.find(text).unwrap_or_else(|| panic!("{text} is not in {}", page.body));
    // By blame: the name is of the first commit, the value of the second.
    let (name, value) = (at("<bdi>  name:</bdi>"), at("<bdi>  tea:</bdi>"));
    let writer = |after: usize| page.body[after..].split("/commit/").nth(1).expect("a commit follows")[..40].to_owned();
    assert_eq!((writer(name), writer(value)), (first.to_string(), second.to_string()));
    assert!(at("removed: </span><bdi>&quot;4&quot;") < at("added: </span><bdi>&quot;5&quot;"));
    let response = client.get("/object/configmaps/shop/never").await;
    assert_eq!(response.status, 404);
    assert!(response.body.contains("there is and was no object"), "{}", response.body);
}

#[tokio::test]
async fn a_deleted_object_keeps_its_page_and_is_found() {
    let mut world = World::new(1);
    let first = world.put(0, &[(A, Some(&map("a", "4")))]);
    let deletion = world.put(0, &[(A, None), ("/registry/configmaps/shop/ab", Some(&map("ab", "1")))]);
    let (_served, client) = world.open().await;
    let page = client.page("/object/configmaps/shop/a").await;
    assert!(page.body.contains("The fields are those before the deletion"), "{}", page.body);
    for commit in [first, deletion] {
        assert!(page.body.contains(&format!("/commit/{commit}")), "{commit}: {}", page.body);
    }
    let found = client.page("/search?q=SHOP/A").await;
    let links = found.links();
    let objects: Vec<_> = links.iter().filter(|link| link.starts_with("/object")).collect();
    assert_eq!(objects, ["/object/configmaps/shop/ab", "/object/configmaps/shop/a"]);
    assert!(links.contains(&format!("/commit/{deletion}")));
}
