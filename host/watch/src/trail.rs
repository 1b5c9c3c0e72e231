use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

/// The maximum number of symbolic links that are followed in one path, which is Linux's limit.
const MOST_LINKS: usize = 40;

/// Returns the directories on the way to this path, including the way through symbolic links. A change in any of these
/// directories may alter what the path leads to.
pub(crate) fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    follow(path, &mut found);
    if let Ok(entries) = std::fs::read_dir(path) {
        // An entry of a directory may be a link to a file in another directory, as in mounted ConfigMaps.
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                follow(&entry.path(), &mut found);
            }
        }
    }
    found
}

fn follow(path: &Path, found: &mut BTreeSet<PathBuf>) {
    let mut at = PathBuf::from(".");
    let mut rest: Vec<OsString> = Vec::new();
    push(&mut rest, path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let next = at.join(&name);
        let Ok(metadata) = next.symlink_metadata() else {
            found.insert(at);
            return;
        };
        if metadata.is_symlink() {
            found.insert(at.clone());
            links += 1;
            match std::fs::read_link(&next) {
                Ok(target) if links <= MOST_LINKS => push(&mut rest, &target),
                _ => return,
            }
            continue;
        }
        if rest.is_empty() {
            found.insert(at);
            if metadata.is_dir() {
                found.insert(next);
            }
            return;
        }
        at = next;
    }
}

/// Pushes the components of a path onto the stack, so that the first one is popped first.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| part.as_os_str().to_owned());
    let at = rest.len();
    rest.extend(parts);
    if let Some(new) = rest.get_mut(at..) {
        new.reverse();
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
            let found = directories(&root.join(path));
            let expected: BTreeSet<_> = expected.iter().map(|path| root.join(path)).collect();
            let plain: BTreeSet<_> = found.iter().map(|path| path.canonicalize().unwrap()).collect();
            assert_eq!(plain, expected, "{path}");
        }
    }
}
