//! The scenarios: the branch and the settings of each script.

use std::path::Path;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::browser::Parts;
use crate::hostile;
use crate::shop::{self, Shop};
use crate::stage::Stage;
use crate::world::World;

/// Commits of a long history.
const MANY: usize = 10_000;
/// Older commits of the shop: more than a page has.
const OLDER: usize = 120;

/// Milliseconds that a paint or an update may take; checked on request only, since other programs may use the machine.
fn limit() -> Option<u64> {
    std::env::var("TRISHANKU_PAGE_LIMIT").ok().map(|limit| limit.parse().expect("TRISHANKU_PAGE_LIMIT is a number"))
}

/// Returns a page of each kind.
fn pages(shop: &Shop) -> Vec<String> {
    let Shop { commit, merge, .. } = shop;
    let (object, deleted) = (shop::OBJECT, shop::DELETED);
    [
        "/".to_owned(),
        "/?namespace=shop&kind=deploy".to_owned(),
        "/?user=none".to_owned(),
        format!("/commit/{commit}"),
        format!("/commit/{merge}"),
        object.to_owned(),
        deleted.to_owned(),
        format!("{object}?whole=1"),
        "/health".to_owned(),
        format!("/commit/{merge}/undo"),
        "/search".to_owned(),
        "/search?q=shop".to_owned(),
        "/commit/0123456789".to_owned(),
    ]
    .into()
}

/// Answers a script that asks for nothing.
fn nothing(question: &str) -> Value {
    panic!("the script asks for {question:?}")
}

pub(crate) fn first_paint(parts: &Parts) -> Result<(), Failed> {
    let mut world = World::named(&["desk"]);
    let put = |number: usize| {
        let name = format!("map-{}", number % 500);
        let key = format!("/registry/configmaps/ns-{}/{name}", number % 10);
        (key, crate::world::map(&name, &number.to_string()))
    };
    world.put_each(0, "jane", (0..MANY).map(put));
    let stage = Stage::new(&world);
    let settings = json!({"url": stage.url(), "commits": MANY, "rows": 100, "limit": limit()});
    parts.play("first-paint", settings, nothing)
}

pub(crate) fn live(parts: &Parts) -> Result<(), Failed> {
    let mut shop = Shop::new(OLDER);
    let stage = Stage::new(&shop.world);
    let settings = json!({"url": stage.url(), "object": shop::OBJECT, "limit": limit()});
    parts.play("live", settings, |question| match question {
        "write" => json!({"commit": shop.scale().to_string()}),
        "writes" => {
            for _ in 0..20 {
                shop.scale();
            }
            json!({})
        }
        other => nothing(other),
    })
}

pub(crate) fn keyboard(parts: &Parts) -> Result<(), Failed> {
    let shop = Shop::new(OLDER);
    let stage = Stage::new(&shop.world);
    let commit = shop.commit.to_string();
    let settings = json!({"url": stage.url(), "pages": pages(&shop), "object": shop::OBJECT, "commit": commit});
    parts.play("keyboard", settings, nothing)
}

pub(crate) fn accessibility(parts: &Parts) -> Result<(), Failed> {
    let shop = Shop::new(OLDER);
    let stage = Stage::new(&shop.world);
    parts.play("accessibility", json!({"url": stage.url(), "pages": pages(&shop)}), nothing)
}

pub(crate) fn hostile(parts: &Parts) -> Result<(), Failed> {
    let world = hostile::world();
    let stage = Stage::new(&world);
    let names = hostile::NAMES.map(|(_, shown)| shown);
    let texts: Vec<&str> = names.into_iter().chain(hostile::VALUES).collect();
    let attack = "%22%3E%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E";
    let starts = [
        "/".to_owned(),
        "/search?q=shop".to_owned(),
        format!("/search?q={attack}"),
        format!("/?name={attack}&user={attack}"),
        format!("/commit/{attack}"),
        format!("/object/{attack}"),
        format!("/{attack}"),
    ];
    let long = json!({"path": hostile::LONG_PATH, "characters": hostile::LONG});
    let objects = names.len() + 1;
    let settings = json!({"url": stage.url(), "starts": starts, "texts": texts, "objects": objects, "long": long});
    parts.play("hostile", settings, nothing)
}

pub(crate) fn scriptless(parts: &Parts) -> Result<(), Failed> {
    let shop = Shop::new(OLDER);
    let stage = Stage::new(&shop.world);
    let commit = shop.commit.to_string();
    let settings = json!({"url": stage.url(), "pages": pages(&shop), "object": shop::OBJECT, "commit": commit});
    parts.play("scriptless", settings, nothing)
}

pub(crate) fn undo(parts: &Parts) -> Result<(), Failed> {
    let shop = Shop::new(0);
    let stage = Stage::new(&shop.world);
    let settings = json!({"url": stage.url(), "commit": shop.merge.to_string()});
    parts.play("undo", settings, |question| match question {
        "undone" => json!({"count": stage.scripted.undone()}),
        other => nothing(other),
    })
}

pub(crate) fn connection(parts: &Parts) -> Result<(), Failed> {
    let mut shop = Shop::new(0);
    let mut stage = Stage::new(&shop.world);
    parts.play("connection", json!({"url": stage.url()}), |question| match question {
        "write" => json!({"commit": shop.scale().to_string()}),
        "stop" => {
            stage.stop();
            json!({})
        }
        "restart" => {
            stage.start(&shop.world);
            json!({})
        }
        other => nothing(other),
    })
}

/// Takes the pictures; those of the documentation only on request, since they differ with the fonts of the machine.
pub(crate) fn pictures(parts: &Parts) -> Result<(), Failed> {
    let shop = Shop::new(OLDER);
    let stage = Stage::new(&shop.world);
    let scratch = tempfile::tempdir()?;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let images = docs.join("images");
    let folder = if std::env::var_os("TRISHANKU_WRITE_SCREENSHOTS").is_some() { &images } else { scratch.path() };
    let merge = format!("/commit/{}", shop.merge);
    let pictures = [
        ("page-commits", "/", "light", "desktop"),
        ("page-commit", &merge, "dark", "desktop"),
        ("page-object", shop::OBJECT, "light", "desktop"),
        ("page-phone", "/", "dark", "phone"),
    ];
    let settings = json!({"url": stage.url(), "folder": folder, "pictures": pictures});
    parts.play("pictures", settings, nothing)?;
    let text = std::fs::read_to_string(docs.join("page.md"))?;
    for (name, ..) in pictures {
        assert!(folder.join(format!("{name}.png")).is_file(), "{name} was taken");
        assert!(images.join(format!("{name}.png")).is_file(), "make screenshots writes {name}");
        assert!(text.contains(&format!("](images/{name}.png)")), "docs/page.md shows {name}");
    }
    Ok(())
}
