use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::history::tests::entry;

#[test]
fn revisions_on_disk_are_read_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/history");
    let directory = HistoryDirectory::open(&path).unwrap();
    let (first, second) = (entry(9, "a"), entry(10, "b"));
    directory.write(&second).unwrap();
    directory.write(&first).unwrap();
    drop(directory);
    let directory = HistoryDirectory::open(&path).unwrap();
    assert_eq!(directory.read_entries().unwrap(), [first, second.clone()]);
    directory.remove_before(9);
    assert_eq!(directory.read_entries().unwrap().len(), 2);
    directory.remove_before(10);
    directory.remove_before(10);
    assert_eq!(directory.read_entries().unwrap(), [second]);
}

#[test]
fn only_the_owner_may_read_the_history_directory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/history");
    let directory = HistoryDirectory::open(&path).unwrap();
    directory.write(&entry(1, "a")).unwrap();
    directory.write_disabled_stages(&[]).unwrap();
    let files = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path());
    let parents = [folder.path().join("a"), path.clone()];
    let mut path_count = 0;
    for entry_path in files.chain(parents) {
        let mode = fs::metadata(&entry_path).unwrap().permissions().mode();
        let is_public = mode & 0o077 != 0;
        assert!(
            !is_public || entry_path == path.join("lock"),
            "{}: {mode:o}",
            entry_path.display()
        );
        path_count += 1;
    }
    assert_eq!(path_count, 5);
}

#[test]
fn temporary_files_that_a_killed_program_left_in_the_history_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let entry = entry(1, "a");
    let directory = HistoryDirectory::open(folder.path()).unwrap();
    directory.write(&entry).unwrap();
    drop(directory);
    for name in [".tmpAb3dEf", ".tmp"] {
        fs::write(folder.path().join(name), "half").unwrap();
    }
    let directory = HistoryDirectory::open(folder.path()).unwrap();
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["0000000001.revision", "lock"]);
    assert_eq!(directory.read_entries().unwrap(), [entry]);
}

#[test]
fn a_second_program_cannot_open_the_history_directory() {
    let folder = tempfile::tempdir().unwrap();
    let first = HistoryDirectory::open(folder.path()).unwrap();
    let error = HistoryDirectory::open(folder.path()).unwrap_err();
    let expected = format!("it is in use by process {}", std::process::id());
    assert!(error.to_string().contains(&expected), "{error}");
    drop(first);
    HistoryDirectory::open(folder.path()).unwrap();
}

#[test]
fn a_damaged_revision_file_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let directory = HistoryDirectory::open(folder.path()).unwrap();
    for (damage, number) in [("cut", 1), ("changed", 2), ("empty", 3)] {
        directory.write(&entry(number, "text")).unwrap();
        let path = directory.revision_path(number);
        let mut bytes = fs::read(&path).unwrap();
        match damage {
            "cut" => bytes.truncate(bytes.len() - 1),
            "changed" => *bytes.last_mut().unwrap() = b' ',
            _ => bytes.clear(),
        }
        fs::write(&path, bytes).unwrap();
    }
    let complete_entry = entry(4, "text");
    directory.write(&complete_entry).unwrap();
    assert_eq!(directory.read_entries().unwrap(), [complete_entry]);
}
