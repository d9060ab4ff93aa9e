//! The output of `gitcd blame`.

use serde_json::{Value, json};

use super::{Repository, Store, gitcd, gitcd_json};
use crate::support::{build, eventually};

const KEY: &str = "/registry/configmaps/shop/prices";

fn prices(tea: &str, more: &str) -> String {
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"prices\",\"namespace\":\"shop\",\"uid\":\"u\"}},\"data\":{{\"tea\":\"{tea}\"{more}}}}}\n"
    )
}

#[tokio::test]
async fn every_line_of_the_object_has_the_commit_that_wrote_it() {
    let mut store = Store::start(&["--commit-granularity=revision"]).await;
    let first = store.put(KEY, &prices("3", ",\"salt.fine\":\"9\"")).await;
    let second = store.put(KEY, &prices("4", ",\"milk\":\"1\",\"salt.fine\":\"9\"")).await;
    let there = store.committed().await;
    // Ann commits in a clone and pushes to the repository.
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    let paths = [there.path(), &clone].map(|path| path.display().to_string());
    Repository::at(folder.path()).git(&["clone", "-q", &paths[0], &paths[1]]);
    let work = Repository::at(&clone);
    let file = clone.join("configmaps/shop/prices");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"tea\": \"4\"", "\"tea\": \"5\"")).unwrap();
    let author = "Ann ".to_owned() + &"x".repeat(60);
    work.git(&["commit", "-qam", "tea is 5", &format!("--author={author} <ann@example.org>")]);
    let commit = work.reference("HEAD");
    work.git(&["push", "-q", "origin", "HEAD:main"]);
    eventually("the merge", async || {
        let found = store.client.range(build::get(KEY)).await.result().ok()?;
        String::from_utf8_lossy(&found.kvs.first()?.value).contains("\"5\"").then_some(())
    })
    .await;
    let repository = store.committed().await;
    let output = gitcd(repository.path(), &["blame", "configmaps/shop/prices"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |ends: &str| text.lines().find(|line| line.ends_with(ends)).unwrap_or_else(|| panic!("{ends}: {text}"));
    assert!(text.starts_with("COMMIT      REVISION  BRANCH") && !text.contains('\u{1b}'), "{text}");
    assert!(
        line("   tea: \"5\"").starts_with(&commit[..10])
            && line("tea: \"5\"").contains(&format!("{}…  ", &author[..39])),
        "{text}"
    );
    assert!(
        line("  milk: \"1\"").contains(&format!("  {second}  ")) && line("milk: \"1\"").contains("  main  "),
        "{text}"
    );
    assert!(line("  kind: ConfigMap").contains(&format!("  {first}  ")), "{text}");
    // The lines are the object.
    let column = text.lines().next().and_then(|head| head.find("VALUE")).expect("the head names the column");
    let yaml: Vec<_> = text.lines().skip(1).map(|line| line.chars().skip(column).collect::<String>()).collect();
    let read: Value = gitcd::merge::yaml::from_str(&yaml.join("\n")).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(read["data"], json!({"tea": "5", "milk": "1", "salt.fine": "9"}), "{text}");

    let all = gitcd_json(repository.path(), &["blame", "--json", "--field=data", KEY]);
    let fields: Vec<_> =
        all["fields"].as_array().unwrap().iter().map(|field| (field["path"].clone(), field["value"].clone())).collect();
    for field in [("data.tea", "5"), ("data.milk", "1"), ("data[\"salt.fine\"]", "9")] {
        assert!(fields.contains(&(json!(field.0), json!(field.1))), "{all:#}");
    }
    let tea = all["fields"].as_array().unwrap().iter().find(|field| field["path"] == "data.tea").unwrap();
    assert_eq!(
        (&tea["commit"], &tea["author"], &tea["boundary"]),
        (&json!(commit), &json!(author), &json!(false)),
        "{tea:#}"
    );
    // An earlier moment, and one field.
    let at = format!("--at={first}");
    let earlier = gitcd_json(repository.path(), &["blame", "--json", &at, "--field=data[\"salt.fine\"]", KEY]);
    let salt = &earlier["fields"][0];
    assert_eq!((&salt["revision"], &salt["branch"]), (&json!(first), &json!("main")), "{earlier:#}");
}

#[tokio::test]
async fn blame_hides_secrets_and_names_what_exists_instead_of_what_does_not() {
    let mut store = Store::start(&[]).await;
    let secret = "{\"kind\":\"Secret\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"db\",\"uid\":\"u\"},\"data\":{\"password\":\"aHVudGVyMg==\"}}";
    store.put("/registry/secrets/shop/db", secret).await;
    store.put(KEY, &prices("3", "")).await;
    let repository = store.committed().await;
    let listed = gitcd(repository.path(), &["blame", "--json", "--secret-kinds=ConfigMap", KEY]);
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert!(listed.contains("(secret)") && listed.contains("\"prices\"") && !listed.contains("tea"), "{listed}");
    for (arguments, is_shown) in [
        (&["blame", "secrets/shop/db"][..], false),
        (&["blame", "--whole", "secrets/shop/db"], false),
        (&["blame", "--json", "secrets/shop/db"], false),
        (&["blame", "--field=data.password", "secrets/shop/db"], false),
        (&["blame", "--show-secrets", "secrets/shop/db"], true),
        (&["blame", "--show-secrets", "--json", "secrets/shop/db"], true),
    ] {
        let output = gitcd(repository.path(), arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("password"), "{arguments:?}: {output:?}");
        assert_eq!(
            (text.contains("aHVudGVyMg=="), text.contains("(secret)")),
            (is_shown, !is_shown),
            "{arguments:?}: {text}"
        );
    }
    for (arguments, words) in [
        (
            &["blame", "configmaps/shop/price"][..],
            "configmaps/shop/ has prices; `gitcd log configmaps/shop/price` shows when it existed",
        ),
        (&["blame", "--field=data.coffee", KEY], "has no field data.coffee at revision 3: data has tea"),
        (&["blame", "--field=data[", KEY], "a bracket is not closed"),
        (&["blame", "--at=4711", KEY], "revision 4711 is not in Git; the last one is 3"),
    ] {
        let output = gitcd(repository.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty() && said.contains(words), "{arguments:?}: {said}");
    }
}
