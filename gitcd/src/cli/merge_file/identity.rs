//! Whether Git hands the driver versions of one object.
//!
//! Git looks for renames among similar files, and objects are similar: where one side deletes `staging` and adds `production`, the
//! other side's edit of `staging` comes with `production` as the other version.

use anyhow::bail;

use gitcd_merge::value::Value;

/// Fields that say which object it is. Not its version, which changes, nor its uid: an object may be deleted and created again.
const IDENTITY: [&[&str]; 3] = [&["kind"], &["metadata", "namespace"], &["metadata", "name"]];

/// Refuses versions of different objects. What is no object, or does not say which one it is, is not looked at.
pub(super) fn same(what: &str, versions: [(&str, &[u8]); 3]) -> anyhow::Result<()> {
    let parsed = versions.map(|(side, value)| (side, Value::parse(value).map(|(value, _)| value)));
    for path in IDENTITY {
        let said = parsed.iter().filter_map(|(side, value)| Some((side, value.as_ref()?.given(path)?.into_owned())));
        let said: Vec<_> = said.collect();
        let [(first, one), others @ ..] = &said[..] else { continue };
        if let Some((second, other)) = others.iter().find(|(_, other)| other != one) {
            let field = path.join(".");
            bail!(
                "{what}: {field} is {one:?} in {first} and {other:?} in {second}: Git takes different objects for one that was renamed; \
                 ours is left as it is. Abort, and merge again with `-s recursive -X no-renames`"
            );
        }
    }
    Ok(())
}
