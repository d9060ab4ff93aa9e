//! Checks that Git passes versions of one object to the driver.
//!
//! Git detects renames by similarity, and objects are similar: if one side deletes `staging` and adds `production`, Git merges
//! the other side's edit of `staging` with `production`.

use anyhow::bail;

use gitcd_merge::value::Value;

/// Fields that identify an object. Not its version, which changes, nor its uid: an object may be deleted and created again.
const IDENTITY: [&[&str]; 3] = [&["kind"], &["metadata", "namespace"], &["metadata", "name"]];

/// Refuses versions of different objects. Files that are no objects, or lack these fields, are not checked.
pub(super) fn same(what: &str, versions: [(&str, &[u8]); 3]) -> anyhow::Result<()> {
    let parsed = versions.map(|(side, value)| (side, Value::parse(value).map(|(value, _)| value)));
    for path in IDENTITY {
        let said = parsed.iter().filter_map(|(side, value)| Some((side, value.as_ref()?.given(path)?.into_owned())));
        let said: Vec<_> = said.collect();
        let [(first, one), others @ ..] = &said[..] else { continue };
        if let Some((second, other)) = others.iter().find(|(_, other)| other != one) {
            let field = path.join(".");
            bail!(
                "{what}: {field} is {one:?} in {first} and {other:?} in {second}: Git mistakes different objects for a rename; \
                 ours is not changed. Abort, and merge again with `-s recursive -X no-renames`"
            );
        }
    }
    Ok(())
}
