use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

/// The maximum number of symbolic links that are followed in one path, which is Linux's limit.
const MAX_LINKS: usize = 40;

/// Returns the directories on the way to this path, including the way through symbolic links. A change in any of these
/// directories may alter what the path leads to.
pub(crate) fn find_directories(path: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    collect_directories(path, &mut directories);
    if let Ok(entries) = std::fs::read_dir(path) {
        // An entry of a directory may be a link to a file in another directory, as in mounted ConfigMaps.
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                collect_directories(&entry.path(), &mut directories);
            }
        }
    }
    directories
}

fn collect_directories(path: &Path, directories: &mut BTreeSet<PathBuf>) {
    let mut directory = PathBuf::from(".");
    let mut rest: Vec<OsString> = Vec::new();
    push_parts(&mut rest, path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let next = directory.join(&name);
        let Ok(metadata) = next.symlink_metadata() else {
            directories.insert(directory);
            return;
        };
        if metadata.is_symlink() {
            directories.insert(directory.clone());
            links += 1;
            match std::fs::read_link(&next) {
                Ok(target) if links <= MAX_LINKS => push_parts(&mut rest, &target),
                _ => return,
            }
            continue;
        }
        if rest.is_empty() {
            directories.insert(directory);
            if metadata.is_dir() {
                directories.insert(next);
            }
            return;
        }
        directory = next;
    }
}

/// Pushes the components of a path onto the stack, so that the first one is popped first.
fn push_parts(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned());
    let start = rest.len();
    rest.extend(parts);
    if let Some(new_parts) = rest.get_mut(start..) {
        new_parts.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_directories_of_all_links_in_a_path_are_found() {
        use std::{fs, os::unix::fs::symlink};
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("mount/..2026_1")).unwrap();
        fs::write(root.join("mount/..2026_1/tls.crt"), "").unwrap();
        symlink("..2026_1", root.join("mount/..data")).unwrap();
        symlink("..data/tls.crt", root.join("mount/tls.crt")).unwrap();
        symlink(root.join("mount"), root.join("absolute")).unwrap();
        symlink("mount/../mount", root.join("upwards")).unwrap();
        symlink("round", root.join("round")).unwrap();
        symlink("nowhere/file", root.join("dangling")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        // (path to watch, expected directories on the way to the path). The path and the directories are relative to
        // the directory of the test.
        for (path, expected) in [
            ("file", &[""][..]),
            ("absent", &[""]),
            ("absent/below/file", &[""]),
            ("file/below", &["file"]),
            ("mount/tls.crt", &["mount", "mount/..2026_1"]),
            ("mount/..data/tls.crt", &["mount", "mount/..2026_1"]),
            ("mount", &["", "mount", "mount/..2026_1"]),
            ("absolute/tls.crt", &["", "mount", "mount/..2026_1"]),
            ("./absolute/../file", &["", ""]),
            ("upwards/..2026_1/tls.crt", &["", "mount/..2026_1"]),
            ("round", &[""]),
            ("dangling", &[""]),
            ("mount/absent", &["mount"]),
        ] {
            let actual = find_directories(&root.join(path));
            let expected: BTreeSet<_> = expected.iter().map(|path| root.join(path)).collect();
            let plain: BTreeSet<_> = actual.iter().map(|path| path.canonicalize().unwrap()).collect();
            assert_eq!(plain, expected, "{path}");
        }
    }
}
