use std::{
    collections::BTreeMap,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;

/// A temporary directory with three subdirectories. `chains` and `more` contain definition files, and `other` contains
/// files to which symbolic links point.
struct WriteDirectory {
    root: tempfile::TempDir,
}

type DirectoryTree = BTreeMap<PathBuf, Vec<u8>>;

impl WriteDirectory {
    fn new() -> Self {
        let new_directory = Self {
            root: tempfile::tempdir().unwrap(),
        };
        for directory in ["chains", "more", "other"] {
            fs::create_dir(new_directory.path(directory)).unwrap();
        }
        fs::write(new_directory.path("chains/changed.yaml"), "old").unwrap();
        fs::write(new_directory.path("more/gone.yaml"), "gone").unwrap();
        new_directory
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn changes(&self) -> [FileChange; 3] {
        let change = |name: &str, before: Option<&str>, after: Option<&str>| FileChange {
            path: self.path(name),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        [
            change("chains/changed.yaml", Some("old"), Some("new")),
            change("more/gone.yaml", Some("gone"), None),
            change("chains/made.yaml", None, Some("made")),
        ]
    }

    fn tree(&self) -> DirectoryTree {
        let mut tree = DirectoryTree::new();
        for directory in ["chains", "more", "other"] {
            for entry in fs::read_dir(self.path(directory)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    tree.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        tree
    }

    fn tree_of(&self, files: &[(&str, &str)]) -> DirectoryTree {
        let file = |(name, text): &(&str, &str)| (self.path(name), text.as_bytes().to_vec());
        files.iter().map(file).collect()
    }

    fn old_tree(&self) -> DirectoryTree {
        self.tree_of(&[("chains/changed.yaml", "old"), ("more/gone.yaml", "gone")])
    }

    fn new_tree(&self) -> DirectoryTree {
        self.tree_of(&[("chains/changed.yaml", "new"), ("chains/made.yaml", "made")])
    }
}

#[test]
fn a_failed_change_is_undone() {
    let directory = WriteDirectory::new();
    let changes = directory.changes();
    write(&changes).unwrap();
    assert_eq!(directory.tree(), directory.new_tree());
    for change_count in 0..=changes.len() {
        undo(&changes).unwrap();
        assert_eq!(directory.tree(), directory.old_tree(), "{change_count}");
        write(&changes[..change_count]).unwrap();
    }
    fs::write(directory.path("chains/changed.yaml"), "mine").unwrap();
    undo(&changes).unwrap();
    let expected = directory.tree_of(&[("chains/changed.yaml", "mine"), ("more/gone.yaml", "gone")]);
    assert_eq!(directory.tree(), expected);
}

#[test]
fn one_unwritable_file_prevents_the_whole_change() {
    let directory = WriteDirectory::new();
    let error = |changes: &[FileChange]| {
        let error = write(changes).unwrap_err();
        assert!(matches!(error, StoreError::NotWritten { .. }), "{error}");
        error.to_string()
    };
    // The third change creates the file `chains/made.yaml`. It fails, because a directory has this path.
    fs::create_dir(directory.path("chains/made.yaml")).unwrap();
    let message = error(&directory.changes());
    let expected = format!(
        "{} cannot be written, so nothing was changed: ",
        directory.path("chains/made.yaml").display()
    );
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(directory.tree(), directory.old_tree());
    let mut changes = directory.changes();
    changes[2].path = directory.path("nowhere/made.yaml");
    error(&changes);
    assert_eq!(directory.tree(), directory.old_tree());
}

#[test]
fn files_changed_by_other_programs_are_not_overwritten() {
    for (name, text) in [
        ("chains/changed.yaml", Some("other")),
        ("more/gone.yaml", Some("other")),
        ("chains/made.yaml", Some("made")),
        ("more/gone.yaml", None),
    ] {
        let directory = WriteDirectory::new();
        match text {
            Some(text) => fs::write(directory.path(name), text).unwrap(),
            None => fs::remove_file(directory.path(name)).unwrap(),
        }
        let before = directory.tree();
        let error = write(&directory.changes()).unwrap_err();
        assert!(matches!(error, StoreError::ChangedMeanwhile { .. }), "{name}: {error}");
        assert!(error.to_string().ends_with("nothing was written, try again"), "{error}");
        assert_eq!(directory.tree(), before);
    }
}

#[test]
fn a_new_file_does_not_overwrite_a_file_that_appeared_meanwhile() {
    let directory = WriteDirectory::new();
    let [.., made] = directory.changes();
    let staged = StagedChange::new(&made).unwrap();
    fs::write(&made.path, "mine").unwrap();
    assert_eq!(staged.put().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let mut expected = directory.old_tree();
    expected.insert(made.path, b"mine".to_vec());
    assert_eq!(directory.tree(), expected);
}

#[test]
fn symbolic_links_and_file_modes_are_kept_when_a_file_is_replaced() {
    let directory = WriteDirectory::new();
    for name in ["chains/changed.yaml", "more/gone.yaml"] {
        let target = directory.path(&format!("other/{}", Path::new(name).file_name().unwrap().display()));
        fs::rename(directory.path(name), &target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&target, directory.path(name)).unwrap();
    }
    write(&directory.changes()).unwrap();
    assert!(directory.path("chains/changed.yaml").is_symlink());
    let target = directory.path("other/changed.yaml");
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(!directory.path("more/gone.yaml").is_symlink());
    assert_eq!(fs::read(directory.path("other/gone.yaml")).unwrap(), b"gone");
    let mode = fs::metadata(directory.path("chains/made.yaml"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o600, 0o600);
}
