//! What a control plane consists of: its settings from run to run, and whether a running one is what is requested.

use std::hash::{DefaultHasher, Hasher as _};

use super::{Adaptations, Up, UpError, What};
use crate::headless::Topology;
use crate::heavens::ManifestError;
use crate::plane::state::{Form, Settings, State};

impl Up {
    /// Compares what is requested with what runs: `up` without files continues with anything of its form.
    ///
    /// # Errors
    /// [`UpError::RunsOthers`], [`UpError::OtherForm`] and [`UpError::OtherStore`] say that it is something else;
    /// [`UpError::Manifest`] names a file that cannot be read.
    pub fn compare(&self, running: &State) -> Result<(), UpError> {
        let others = || UpError::RunsOthers { dir: self.home.dir().into() };
        if self.settle(running)? != running.settings {
            return Err(others());
        }
        let (given, is_all) = match &self.what {
            What::Central { .. } => return Ok(()),
            What::Anything(given) | What::Headless(_, given) => (given, false),
            What::Manifests(given) => (given, true),
        };
        if !is_all && *given == Adaptations::default() {
            return Ok(());
        }
        if running.manifests.as_ref() == Some(&given.digest()?) { Ok(()) } else { Err(others()) }
    }

    /// Returns the settings of this run, given those of the previous one.
    pub(super) fn settle(&self, state: &State) -> Result<Settings, UpError> {
        let mut settings = state.settings.clone();
        let has_data =
            self.home.repository().exists() || self.home.etcd_data().exists() || self.home.heavens().exists();
        if !has_data {
            settings.form = Form::Undecided;
        }
        let wanted = match (&self.what, settings.form) {
            (What::Anything(_), Form::Undecided) => Form::Headless(Topology::default()),
            // The files of the previous run are not recorded.
            (What::Anything(given), Form::Manifests) if given.files.is_empty() => Form::Headless(Topology::default()),
            (What::Anything(_), form) => form,
            (What::Central { .. }, _) => Form::Central,
            (What::Headless(topology, _), _) => Form::Headless(*topology),
            (What::Manifests(_), _) => Form::Manifests,
        };
        match (settings.form, wanted) {
            // The topology can change without affecting the branches.
            (Form::Undecided, _) | (Form::Headless(_), Form::Headless(_)) => {}
            (has, wanted) if has != wanted => {
                return Err(UpError::OtherForm { dir: self.home.dir().into(), has, wanted });
            }
            _ => {}
        }
        settings.form = wanted;
        settings.audit = self.audit.unwrap_or(settings.audit);
        let What::Central { store, storage_media_type } = &self.what else { return Ok(settings) };
        match *store {
            Some(wanted) if wanted != settings.store && has_data => {
                return Err(UpError::OtherStore { dir: self.home.dir().into(), has: settings.store, wanted });
            }
            Some(wanted) => settings.store = wanted,
            None => {}
        }
        if let Some(media_type) = storage_media_type {
            settings.storage_media_type.clone_from(media_type);
        }
        Ok(settings)
    }
}

impl Adaptations {
    /// Returns a digest of the contents of the files, and of the changes to them. Another compiler may compute another
    /// one, so that a control plane that was started by another version seems to run other manifests.
    ///
    /// # Errors
    /// [`ManifestError::Read`] names a file that cannot be read.
    pub(super) fn digest(&self) -> Result<String, ManifestError> {
        let mut hasher = DefaultHasher::new();
        let mut add = |part: &[u8]| {
            // With its length, so that no two lists of parts are the same bytes.
            hasher.write_usize(part.len());
            hasher.write(part);
        };
        for file in &self.files {
            let read = |source| ManifestError::Read { file: file.clone(), source };
            add(&std::fs::read(file).map_err(read)?);
        }
        let Self { files: _, images, remotes, dropped_flags, added_flags } = self;
        add(format!("{images:?} {remotes:?} {dropped_flags:?} {added_flags:?}").as_bytes());
        Ok(format!("{:016x}", hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::heavens::ImagePrograms;
    use crate::plane::Home;

    #[test]
    fn a_running_control_plane_is_compared_with_what_is_requested() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("plane"));
        std::fs::create_dir_all(home.heavens()).unwrap();
        let file = |name: &str, text: &str| {
            let path: PathBuf = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let files = |files: &[&PathBuf]| {
            let files = files.iter().map(|file| (*file).clone()).collect();
            Adaptations { files, ..Adaptations::default() }
        };
        let running = |form: Form, given: &Adaptations| {
            let settings = Settings { form, ..Settings::default() };
            State { settings, manifests: Some(given.digest().unwrap()), ..State::default() }
        };
        let compare = |what: What, state: &State| {
            let (home, ready_within) = (home.clone(), Duration::ZERO);
            let up = Up { home, assets: None, gitcd: None, what, audit: None, ready_within };
            up.compare(state)
        };
        let (one, same, other) = (file("one", "a: 1"), file("same", "a: 1"), file("other", "a: 2"));
        let state = running(Form::Manifests, &files(&[&one]));
        assert!(compare(What::Manifests(files(&[&one])), &state).is_ok());
        // The content counts, not the name.
        assert!(compare(What::Manifests(files(&[&same])), &state).is_ok());
        let programs = ImagePrograms::read(None, &["app=/bin/app".parse().unwrap()]).unwrap();
        let with_program = Adaptations { images: programs, ..files(&[&one]) };
        for given in [files(&[&other]), files(&[&one, &other]), with_program] {
            let compared = compare(What::Manifests(given.clone()), &state);
            assert!(matches!(compared, Err(UpError::RunsOthers { .. })), "{given:?}: {compared:?}");
        }
        let missing = dir.path().join("missing");
        assert!(matches!(compare(What::Manifests(files(&[&missing])), &state), Err(UpError::Manifest(_))));
        assert!(matches!(compare(What::Anything(files(&[])), &state), Err(UpError::OtherForm { .. })));

        let state = running(Form::Headless(Topology::Star), &files(&[&one]));
        for what in
            [What::Anything(files(&[])), What::Anything(files(&[&same])), What::Headless(Topology::Star, files(&[]))]
        {
            assert!(compare(what.clone(), &state).is_ok(), "{what:?}");
        }
        for what in [What::Anything(files(&[&other])), What::Headless(Topology::Mesh, files(&[]))] {
            let compared = compare(what.clone(), &state);
            assert!(matches!(compared, Err(UpError::RunsOthers { .. })), "{what:?}: {compared:?}");
        }
        let central = What::Central { store: None, storage_media_type: None };
        assert!(matches!(compare(central, &state), Err(UpError::OtherForm { .. })));
    }
}
