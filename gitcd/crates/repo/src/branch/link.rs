//! Hard links to the objects of another repository, as `git clone --local` makes them.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gitcd_core::durable;

use super::super::alternates;

/// Files that belong to a pack. The index is linked last: a pack is used once it has one.
const OF_PACK: [&str; 3] = ["pack", "rev", "idx"];
/// How often the objects are listed again because maintenance moves them.
const ATTEMPTS: usize = 100;

/// Links all objects that the repository in the Git directory `origin` has, and those that it reads from others, into the folder
/// `objects` of a new repository. Copies files that cannot be linked, for example to another file system.
pub(super) fn link_objects(origin: &Path, to: &Path) -> Result<(), durable::Error> {
    for from in alternates::folders(origin) {
        let mut attempt = 1;
        // An object that is not found has been packed, or its pack has been combined with others.
        while let Some(gone) = link_folder(&from, to)? {
            if attempt == ATTEMPTS {
                return Err(durable::Error::of("link", &gone)(ErrorKind::NotFound.into()));
            }
            attempt += 1;
        }
    }
    let folders = durable::entries(to)?.into_iter().filter(|path| path.is_dir());
    folders.chain([to.to_owned()]).try_for_each(|folder| durable::sync(&folder))
}

/// Links what is in one folder. Returns a file that was removed meanwhile: what it had may be in one that is not linked.
fn link_folder(from: &Path, to: &Path) -> Result<Option<PathBuf>, durable::Error> {
    let mut gone = None;
    // Before packs: an object that is packed meanwhile is in a pack then.
    for folder in durable::entries(from)?.into_iter().filter(|path| is_hex(path, 2)) {
        let into = to.join(folder.file_name().unwrap_or_default());
        durable::make_folder(&into)?;
        for file in durable::entries(&folder)?.into_iter().filter(|path| is_hex(path, 38)) {
            gone = link(&file, &into)?.or(gone);
        }
    }
    let (from, to) = (from.join("pack"), to.join("pack"));
    durable::make_folder(&to)?;
    let is_there = |file: &PathBuf| file.symlink_metadata().is_ok();
    for pack in packs(&from)? {
        for file in OF_PACK.iter().map(|extension| pack.with_extension(extension)).filter(is_there) {
            gone = link(&file, &to)?.or(gone);
        }
    }
    // A list may lack a pack that appeared meanwhile, and those that it replaced.
    let missing = |pack: &PathBuf| !to.join(pack.file_name().unwrap_or_default()).exists();
    Ok(gone.or(packs(&from)?.into_iter().find(missing)))
}

/// Links a file into a folder. Returns it if it does not exist any more.
///
/// A symbolic link is an error, as in `git clone --local` since CVE-2022-39253: it may lead to a file outside the repository, whose content
/// would become a part of the fork.
fn link(file: &Path, into: &Path) -> Result<Option<PathBuf>, durable::Error> {
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_file() => {}
        Ok(_) => {
            let error = io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
            return Err(durable::Error::of("link", file)(error));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(file.to_owned())),
        Err(error) => return Err(durable::Error::of("read", file)(error)),
    }
    let to = into.join(file.file_name().unwrap_or_default());
    match fs::hard_link(file, &to) {
        Ok(()) => Ok(None),
        // The same objects, of another repository.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(file.to_owned())),
        // Another file system, another owner (protected_hardlinks in proc_sys_fs(5)), or too many links.
        Err(_) => match fs::copy(file, &to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(file.to_owned())),
            copied => {
                copied.map_err(durable::Error::of("copy", file))?;
                durable::sync(&to)?;
                Ok(None)
            }
        },
    }
}

/// Returns the indexes of the packs in a folder.
fn packs(folder: &Path) -> Result<Vec<PathBuf>, durable::Error> {
    let is_index = |path: &PathBuf| {
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        stem.starts_with("pack-") && path.extension().is_some_and(|extension| extension == "idx")
    };
    Ok(durable::entries(folder)?.into_iter().filter(is_index).collect())
}

fn is_hex(path: &Path, length: usize) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.len() == length && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn all_objects_are_linked_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [origin, shared, to] = ["origin", "shared", "to"].map(|name| folder.path().join(name));
        let loose = format!("objects/ab/{}", "c".repeat(38));
        write(&origin.join(&loose), "loose");
        write(&origin.join("objects/ab/tmp_obj_a"), "unfinished");
        for (of, name) in [(&origin, "1"), (&shared, "2")] {
            for extension in ["pack", "idx", "rev", "keep", "bitmap"] {
                write(&of.join(format!("objects/pack/pack-{name}.{extension}")), extension);
            }
        }
        write(&origin.join("objects/pack/pack-3.pack"), "without an index");
        write(&origin.join("objects/pack/tmp_pack_a"), "unfinished");
        write(&origin.join("objects/info/alternates"), "../../shared/objects\n");
        link_objects(&origin, &to.join("objects")).unwrap();
        let mut found: Vec<String> = Vec::new();
        for folder in ["ab", "pack"] {
            let files = durable::entries(&to.join("objects").join(folder)).unwrap();
            found.extend(files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()));
        }
        found.sort();
        let packs = ["pack-1.idx", "pack-1.pack", "pack-1.rev", "pack-2.idx", "pack-2.pack", "pack-2.rev"];
        assert_eq!(found[1..], packs);
        assert_eq!(fs::metadata(to.join(&loose)).unwrap().ino(), fs::metadata(origin.join(&loose)).unwrap().ino());
    }

    #[test]
    fn what_vanishes_while_it_is_linked_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        fs::create_dir(&to).unwrap();
        let file = folder.path().join("file");
        assert_eq!(link(&file, &to).unwrap(), Some(file.clone()));
        fs::write(&file, "content").unwrap();
        assert_eq!(link(&file, &to).unwrap(), None);
        assert_eq!(link(&file, &to).unwrap(), None, "it is there");
    }

    #[test]
    fn a_symbolic_link_is_neither_linked_nor_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "not of the repository").unwrap();
        let loose = format!("objects/ab/{}", "c".repeat(38));
        for name in [loose.as_str(), "objects/pack/pack-1.pack"] {
            for target in [outside.clone(), folder.path().join("missing")] {
                let origin = tempfile::tempdir_in(folder.path()).unwrap();
                let to = origin.path().join("to");
                write(&origin.path().join("objects/pack/pack-1.idx"), "idx");
                let file = origin.path().join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(target, &file).unwrap();
                let error = link_objects(origin.path(), &to).unwrap_err();
                assert_eq!((error.action, &error.path), ("link", &file), "{name}");
                assert_eq!(error.source.kind(), ErrorKind::InvalidInput, "{name}");
                let linked = to.join(Path::new(name).strip_prefix("objects").unwrap());
                assert!(fs::symlink_metadata(linked).is_err(), "{name}");
            }
        }
    }
}
