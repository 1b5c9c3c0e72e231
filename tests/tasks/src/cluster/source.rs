//! Compiles a program of Kubernetes from its source.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    command::{Error, run_logged},
    folders::{create_directory, file_error, remove_directory},
};

const REFLECT2: &str = "vendor/github.com/modern-go/reflect2";

/// The path that the makefile of Kubernetes expects for the source in its Go workspace.
const WORKSPACE_LINK: &str = ".go/src/k8s.io/kubernetes";

pub(super) struct BinarySource {
    pub(super) directory: PathBuf,
    pub(super) go: PathBuf,
    pub(super) home: PathBuf,
    pub(super) version: String,
    pub(super) log: PathBuf,
}

impl BinarySource {
    /// Unpacks the archive with the source, unless an interrupted build has done so.
    pub(super) fn unpack(&self, archive: &Path, reflect2: &Path) -> Result<(), Error> {
        let marker = self.directory.join(".unpacked");
        let origin = archive.display().to_string();
        if fs::read_to_string(&marker).is_ok_and(|unpacked| unpacked == origin) {
            return Ok(());
        }
        remove_directory(&self.directory)?;
        create_directory(&self.directory)?;
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--strip-components=1", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(&self.directory);
        run_logged(&mut tar, &self.log)?;
        let replaced = self.directory.join(REFLECT2);
        remove_directory(&replaced)?;
        let mut copy = Command::new("cp");
        copy.arg("--recursive").args([reflect2, &replaced]);
        run_logged(&mut copy, &self.log)?;
        fs::write(&marker, origin).map_err(file_error(&marker))
    }

    pub(super) fn compile(&self, name: &str) -> Result<PathBuf, Error> {
        create_directory(&self.home)?;
        let workspace = self.directory.join(WORKSPACE_LINK);
        if let Some(parent) = workspace.parent() {
            create_directory(parent)?;
        }
        if !workspace.is_symlink() {
            let mut link = Command::new("ln");
            link.args(["--symbolic", "../../.."]).arg(&workspace);
            run_logged(&mut link, &self.log)?;
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([self.go.join("bin")].into_iter().chain(env::split_paths(&path)))
            .map_err(|error| Error::Missing(format!("the PATH cannot be extended: {error}")))?;
        let mut make = Command::new("nice");
        make.arg("make")
            .arg(format!("WHAT=cmd/{name}"))
            .current_dir(&self.directory)
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("GOROOT", &self.go)
            .env("GOPATH", self.directory.join(".go"))
            .env("GOCACHE", self.home.join("go-cache"))
            .env("GOFLAGS", "")
            .env("CGO_ENABLED", "0")
            // The makefile usually takes the version of Kubernetes from the git repository around it. This would be the
            // repository of this project, so the version is set here.
            .env("KUBE_GIT_VERSION", format!("v{}", self.version))
            .env("KUBE_GIT_TREE_STATE", "archive")
            .env("KUBE_GIT_COMMIT", "archive")
            // If an outer make runs this program, its variables must not affect the build.
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL");
        run_logged(&mut make, &self.log)?;
        let platforms = self.directory.join("_output/local/bin");
        find_program(&platforms, name).ok_or_else(|| {
            Error::Missing(format!(
                "make did not create {name} under {}; its output is in {}",
                platforms.display(),
                self.log.display()
            ))
        })
    }
}

/// Returns the version in the name of a source archive, such as `name_1.20.2.orig.tar.gz`.
pub(super) fn version(archive: &Path) -> Option<String> {
    let name = archive.file_name()?.to_str()?;
    let (_, version) = name.split_once(".orig.")?.0.split_once('_')?;
    let version = version.rsplit_once("+really").map_or(version, |(_, really)| really);
    Some(version.to_owned())
}

fn find_program(platforms: &Path, name: &str) -> Option<PathBuf> {
    let folders = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    folders(platforms)
        .iter()
        .flat_map(|system| folders(system))
        .map(|architecture| architecture.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_source_archive_is_read_from_its_name() {
        for (name, expected) in [
            ("/a_b/kubernetes_1.20.5+really1.20.2.orig.tar.gz", Some("1.20.2")),
            ("kubernetes_1.20.2+dfsg.orig.tar.xz", Some("1.20.2+dfsg")),
            ("kubernetes_1.20.2.tar.gz", None),
            ("", None),
        ] {
            assert_eq!(version(Path::new(name)).as_deref(), expected, "{name}");
        }
    }
}
