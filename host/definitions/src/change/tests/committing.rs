use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::{chain, set, to};
use crate::{
    Change, CommitError, DefinitionSet, Expected, FileChange, Recovery,
    change::commit::{self, Step},
    recover,
};

/// Two directories of definitions and one for the journal.
struct Place {
    root: tempfile::TempDir,
}

/// What is in a directory and those inside of it.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

impl Place {
    /// With `changed` and `gone` there, and `new` not.
    fn new() -> Self {
        let place = Self {
            root: tempfile::tempdir().unwrap(),
        };
        for directory in ["chains", "more", "history"] {
            fs::create_dir(place.path(directory)).unwrap();
        }
        fs::write(place.path("chains/changed.yaml"), "old").unwrap();
        fs::write(place.path("more/gone.yaml"), "gone").unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn journal(&self) -> PathBuf {
        self.path("history/journal")
    }

    /// Change a file, remove one and make one.
    fn files(&self) -> Vec<FileChange> {
        let file = |name: &str, before: Option<&str>, after: Option<&str>| FileChange {
            path: self.path(name),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        vec![
            file("chains/changed.yaml", Some("old"), Some("new")),
            file("more/gone.yaml", Some("gone"), None),
            file("chains/made.yaml", None, Some("made")),
        ]
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        for directory in ["chains", "more", "history"] {
            for entry in fs::read_dir(self.path(directory)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    tree.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        tree
    }

    fn restore(&self, tree: &Tree) {
        for path in self.tree().keys() {
            fs::remove_file(path).unwrap();
        }
        for (path, content) in tree {
            fs::write(path, content).unwrap();
        }
    }

    fn old(&self) -> Tree {
        let of = |name: &str, text: &str| (self.path(name), text.as_bytes().to_vec());
        [of("chains/changed.yaml", "old"), of("more/gone.yaml", "gone")].into()
    }

    fn new_tree(&self) -> Tree {
        let of = |name: &str, text: &str| (self.path(name), text.as_bytes().to_vec());
        [of("chains/changed.yaml", "new"), of("chains/made.yaml", "made")].into()
    }
}

/// What reading the directory would find.
fn visible(tree: &Tree) -> Tree {
    let is_visible = |path: &Path| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    let is_definition = |path: &Path| path.extension().is_some_and(|extension| extension == "yaml");
    tree.iter()
        .filter(|(path, _)| is_visible(path) && is_definition(path))
        .map(|(path, content)| (path.clone(), content.clone()))
        .collect()
}

const STEPS: [Step; 9] = [
    Step::Staged,
    Step::Staged,
    Step::Staged,
    Step::Decided,
    Step::Placed,
    Step::Placed,
    Step::Placed,
    Step::AllPlaced,
    Step::Finished,
];

#[test]
fn killed_after_each_step() {
    let place = Place::new();
    let mut moments = Vec::new();
    commit::commit(&place.files(), &place.journal(), &mut |step| {
        moments.push((step, place.tree()));
        Ok(())
    })
    .unwrap();
    assert_eq!(place.tree(), place.new_tree());
    let steps: Vec<Step> = moments.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, STEPS);
    for (index, (step, tree)) in moments.iter().enumerate() {
        let is_decided = index >= 3;
        // Once, and when the program is killed in recovering too.
        for _ in 0..2 {
            place.restore(tree);
            let recovery = recover(&place.journal()).unwrap();
            let expected = if is_decided { place.new_tree() } else { place.old() };
            assert_eq!(visible(&place.tree()), expected, "{step:?}");
            if is_decided {
                assert_eq!(place.tree(), expected, "{step:?}");
            }
            assert_eq!(
                recovery.is_some(),
                is_decided && *step != Step::Finished,
                "{step:?}"
            );
            assert_eq!(recover(&place.journal()).unwrap(), None);
        }
        // What is left of a commit that had not begun is in the way of none.
        if !is_decided {
            commit::commit(&place.files(), &place.journal(), &mut |_| Ok(())).unwrap();
            assert_eq!(place.tree(), place.new_tree());
        }
    }
}

#[test]
fn a_step_that_fails_changes_nothing() {
    for failing in 0..7 {
        let place = Place::new();
        let mut step = 0;
        let error = commit::commit(&place.files(), &place.journal(), &mut |_| {
            step += 1;
            if step == failing + 1 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            Ok(())
        })
        .unwrap_err();
        assert!(
            matches!(error, CommitError::NothingChanged { .. }),
            "{failing}: {error}"
        );
        assert!(
            error
                .to_string()
                .ends_with("so nothing was changed: no storage space"),
            "{error}"
        );
        assert_eq!(place.tree(), place.old(), "{failing}");
        assert_eq!(recover(&place.journal()).unwrap(), None);
    }
}

/// A disk that takes no more, neither the change nor what was there before.
#[test]
fn what_cannot_be_undone_is_finished_later() {
    let place = Place::new();
    let in_the_way = place.path("chains/made.yaml");
    let error = commit::commit(&place.files(), &place.journal(), &mut |step| {
        if step == Step::Decided {
            // Something comes to be where the new file should, and its text cannot be read.
            fs::create_dir(&in_the_way)?;
        }
        Ok(())
    })
    .unwrap_err();
    let CommitError::Unfinished { journal, path, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((journal, path), (&place.journal(), &in_the_way));
    assert!(
        error
            .to_string()
            .contains("the rest is written at the next start, from"),
        "{error}"
    );
    let told = recover(&place.journal()).unwrap_err().to_string();
    assert!(told.starts_with("the change of definitions that "), "{told}");
    fs::remove_dir(&in_the_way).unwrap();
    // The next commit does it too.
    let next = FileChange {
        path: place.path("chains/next.yaml"),
        before: None,
        after: Some("next".to_owned()),
    };
    commit::commit(&[next], &place.journal(), &mut |_| Ok(())).unwrap();
    let mut expected = place.new_tree();
    expected.insert(place.path("chains/next.yaml"), b"next".to_vec());
    assert_eq!(place.tree(), expected);
}

#[test]
fn recovery_leaves_what_others_changed() {
    let place = Place::new();
    let mut decided = Tree::new();
    commit::commit(&place.files(), &place.journal(), &mut |step| {
        if step == Step::Decided {
            decided = place.tree();
        }
        Ok(())
    })
    .unwrap();
    place.restore(&decided);
    fs::write(place.path("chains/changed.yaml"), "mine").unwrap();
    let real = |name: &str| fs::canonicalize(place.root.path()).unwrap().join(name);
    assert_eq!(
        recover(&place.journal()).unwrap(),
        Some(Recovery::Finished {
            files: vec![real("more/gone.yaml"), real("chains/made.yaml")],
            left: vec![real("chains/changed.yaml")],
        })
    );
    assert_eq!(fs::read(place.path("chains/changed.yaml")).unwrap(), b"mine");
}

#[test]
fn a_journal_that_is_not_whole_is_discarded() {
    let place = Place::new();
    let mut journal = Vec::new();
    commit::commit(&place.files(), &place.journal(), &mut |step| {
        if step == Step::Decided {
            journal = fs::read(place.journal())?;
        }
        Ok(())
    })
    .unwrap();
    place.restore(&place.old());
    let mut flipped = journal.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let cuts = (0..journal.len()).step_by(7).map(|end| journal[..end].to_vec());
    for torn in cuts.chain([flipped]) {
        fs::write(place.journal(), &torn).unwrap();
        assert_eq!(recover(&place.journal()).unwrap(), Some(Recovery::Discarded));
        assert_eq!(place.tree(), place.old());
    }
    fs::write(place.journal(), &journal).unwrap();
    assert!(matches!(
        recover(&place.journal()).unwrap(),
        Some(Recovery::Finished { .. })
    ));
    assert_eq!(place.tree(), place.new_tree());
}

#[test]
fn files_that_are_not_what_they_were() {
    for (name, text) in [
        ("chains/changed.yaml", Some("other")),
        ("more/gone.yaml", Some("other")),
        ("chains/made.yaml", Some("made")),
        ("more/gone.yaml", None),
    ] {
        let place = Place::new();
        match text {
            Some(text) => fs::write(place.path(name), text).unwrap(),
            None => fs::remove_file(place.path(name)).unwrap(),
        }
        let before = place.tree();
        let error = commit::commit(&place.files(), &place.journal(), &mut |_| Ok(())).unwrap_err();
        assert!(
            matches!(error, CommitError::ChangedMeanwhile { .. }),
            "{name}: {error}"
        );
        assert!(
            error.to_string().ends_with("nothing was written, try again"),
            "{error}"
        );
        assert_eq!(place.tree(), before);
    }
}

/// What comes to be at the last moment is not written over.
#[test]
fn a_new_file_replaces_none() {
    let place = Place::new();
    let made = place.path("chains/made.yaml");
    let error = commit::commit(&place.files(), &place.journal(), &mut |step| {
        if step == Step::Decided {
            fs::write(&made, "mine")?;
        }
        Ok(())
    })
    .unwrap_err();
    assert!(matches!(error, CommitError::NothingChanged { .. }), "{error}");
    let mut expected = place.old();
    expected.insert(made, b"mine".to_vec());
    assert_eq!(place.tree(), expected);
}

#[test]
fn links_and_modes_stay() {
    let place = Place::new();
    for name in ["chains/changed.yaml", "more/gone.yaml"] {
        let target = place.path(&format!(
            "history/{}",
            Path::new(name).file_name().unwrap().display()
        ));
        fs::rename(place.path(name), &target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&target, place.path(name)).unwrap();
    }
    commit::commit(&place.files(), &place.journal(), &mut |_| Ok(())).unwrap();
    assert!(place.path("chains/changed.yaml").is_symlink());
    let target = place.path("history/changed.yaml");
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    // Of what is removed the link goes, and what it led to stays.
    assert!(!place.path("more/gone.yaml").is_symlink());
    assert_eq!(fs::read(place.path("history/gone.yaml")).unwrap(), b"gone");
}

#[test]
fn a_journal_that_cannot_be_written() {
    let place = Place::new();
    fs::remove_dir(place.path("history")).unwrap();
    let error = commit::commit(&place.files(), &place.journal(), &mut |_| Ok(())).unwrap_err();
    let expected = format!(
        "{} cannot be written, so nothing was changed: ",
        place.journal().display()
    );
    assert!(error.to_string().starts_with(&expected), "{error}");
    fs::create_dir(place.path("history")).unwrap();
    assert_eq!(place.tree(), place.old());
}

#[test]
fn a_whole_change() {
    let place = Place::new();
    let directory = place.path("set");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a.yaml"), chain("a")).unwrap();
    let read = || DefinitionSet::read(std::slice::from_ref(&directory)).unwrap();
    let commit = |change: Change| change.commit(&place.journal()).unwrap();
    let text = format!("{}---\n{}", chain("b"), chain("a").replace("CREATE", "UPDATE"));
    let change = read()
        .apply(&text, "new", Expected::Any, &to(&directory))
        .unwrap();
    commit(change.clone());
    assert_eq!(read(), change.set);
    // Nothing to do, and nowhere to do it.
    let nothing = read()
        .apply(&text, "new", Expected::Any, &to(&directory))
        .unwrap();
    nothing.commit(Path::new("/nowhere/journal")).unwrap();
    let change = read().delete(&"AdmissionChain/b".parse().unwrap()).unwrap();
    commit(change.clone());
    assert_eq!(read(), change.set);
    assert_eq!(place.tree(), place.old());
    assert_eq!(set(&[]), DefinitionSet::default());
}
