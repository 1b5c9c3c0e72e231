//! Finds the default directories of the user.

use std::{
    env,
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use admittance::{Digest, catalog::Store};

/// Returns `explicit_directory`, or the user's default directory. If it cannot be created, warns and returns `None`.
pub(crate) fn store_directory(explicit_directory: Option<PathBuf>) -> Option<PathBuf> {
    explicit_directory.or_else(|| {
        if_usable(default_store(&variable), "store", |directory| {
            Store::open(directory).map(drop).map_err(|error| error.to_string())
        })
    })
}

pub(crate) fn history_directory(explicit_directory: Option<PathBuf>, configuration: &Path) -> Option<PathBuf> {
    explicit_directory.or_else(|| {
        if_usable(default_history(configuration, &variable), "history", |directory| {
            check_writable(directory).map_err(|error| format!("history {}: {error}", directory.display()))
        })
    })
}

fn if_usable(
    default: Option<PathBuf>,
    kind: &'static str,
    check: impl FnOnce(&Path) -> Result<(), String>,
) -> Option<PathBuf> {
    let problem = match default {
        Some(directory) => match check(&directory) {
            Ok(()) => return Some(directory),
            Err(problem) => problem,
        },
        None => "this user has no home directory".to_owned(),
    };
    tracing::warn!("running without a {kind} directory: {problem}; name one with --{kind}");
    None
}

/// Creates a directory that only its owner can use, and checks that files can be created in it.
fn check_writable(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    tempfile::tempfile_in(directory).map(drop)
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// Reads a path from an environment variable. Ignores a relative path, as the XDG specification requires.
fn absolute_path(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn default_store(variable: Variable<'_>) -> Option<PathBuf> {
    let of_home = || Some(absolute_path(variable, "HOME")?.join(".cache"));
    let caches = absolute_path(variable, "XDG_CACHE_HOME").or_else(of_home)?;
    Some(caches.join("admittance"))
}

/// Returns the default directory of the history for this configuration. In a systemd service it is below
/// `STATE_DIRECTORY`, and otherwise in the user's directory for state.
fn default_history(configuration: &Path, variable: Variable<'_>) -> Option<PathBuf> {
    let of_service = || env::split_paths(&variable("STATE_DIRECTORY")?).find(|path| path.is_absolute());
    let of_home = || Some(absolute_path(variable, "HOME")?.join(".local/state"));
    let states = of_service()
        .or_else(|| absolute_path(variable, "XDG_STATE_HOME"))
        .or_else(of_home)?;
    // The directory is named by a hash of the configuration's path. So several drivers on one machine, each with its
    // own configuration, have different directories.
    let canonical = fs::canonicalize(configuration).unwrap_or_else(|_| configuration.to_owned());
    let name: String = Digest::of_bytes(canonical.as_os_str().as_bytes())
        .to_hex()
        .chars()
        .take(16)
        .collect();
    Some(states.join("admittance").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable_lookup<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| {
            let pair = pairs.iter().find(|(key, _)| *key == name)?;
            Some(pair.1.into())
        }
    }

    #[test]
    fn default_directories_come_from_the_environment_of_the_user() {
        for (pairs, store, states) in [
            (
                vec![("HOME", "/h")],
                Some("/h/.cache/admittance"),
                Some("/h/.local/state"),
            ),
            (
                vec![("HOME", "/h"), ("XDG_CACHE_HOME", "/c"), ("XDG_STATE_HOME", "/s")],
                Some("/c/admittance"),
                Some("/s"),
            ),
            (
                vec![("HOME", "/h"), ("XDG_CACHE_HOME", "c"), ("XDG_STATE_HOME", "s")],
                Some("/h/.cache/admittance"),
                Some("/h/.local/state"),
            ),
            (
                vec![("HOME", "/h"), ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")],
                Some("/h/.cache/admittance"),
                Some("/var/lib/a"),
            ),
            (vec![("STATE_DIRECTORY", "")], None, None),
            (vec![], None, None),
        ] {
            let variable = variable_lookup(&pairs);
            assert_eq!(default_store(&variable), store.map(PathBuf::from), "{pairs:?}");
            let history = default_history(Path::new("/a.yaml"), &variable);
            let parent = history.as_deref().and_then(Path::parent).and_then(Path::parent);
            assert_eq!(parent, states.map(Path::new), "{pairs:?}");
        }
    }

    #[test]
    fn each_configuration_has_its_own_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.yaml");
        fs::write(&path, "").unwrap();
        let pairs = [("HOME", "/h")];
        let variable = variable_lookup(&pairs);
        let history = |path: &Path| default_history(path, &variable).unwrap();
        let roundabout = folder.path().join(".").join("a.yaml");
        assert_eq!(history(&path), history(&roundabout));
        assert_ne!(history(&path), history(&folder.path().join("b.yaml")));
        let name = history(&path).file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name.len() == 16 && name.chars().all(|c| c.is_ascii_hexdigit()),
            "{name}"
        );
    }

    #[test]
    fn an_unusable_default_directory_is_treated_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let try_it = |directory: &Path| check_writable(directory).map_err(|error| error.to_string());
        let good = folder.path().join("a/b");
        assert_eq!(if_usable(Some(good.clone()), "history", try_it), Some(good));
        assert_eq!(if_usable(Some(file.join("a")), "history", try_it), None);
        assert_eq!(if_usable(None, "history", try_it), None);
    }
}
