use std::{
    env,
    path::{Path, PathBuf},
};

use crate::Error;

pub fn repository() -> PathBuf {
    let package_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    package_directory.parent().unwrap_or(package_directory).to_owned()
}

/// The directory with the build output of Cargo, which is found by the path of the running program.
#[derive(Clone, Debug)]
pub struct Artifacts {
    target: PathBuf,
    profile: PathBuf,
}

impl Artifacts {
    /// Finds the target directory of Cargo that contains the running program.
    pub fn find() -> Result<Self, Error> {
        let program = env::current_exe().map_err(Error::io("the path of this program"))?;
        let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
        let profile = program.ancestors().find(|folder| folder.parent() == target);
        match (target, profile) {
            (Some(target), Some(profile)) => Ok(Self {
                target: target.to_owned(),
                profile: profile.to_owned(),
            }),
            _ => Err(Error::NoTargetDirectory(program)),
        }
    }

    /// Returns the path of a program of this workspace. It must have been built with the profile of the running
    /// program.
    pub fn program(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.profile.join(format!("{name}{}", env::consts::EXE_SUFFIX));
        require_existing(path, "cargo build --workspace --bins")
    }

    /// Returns the path of a program for a Kubernetes API server, which `cargo task cluster` builds.
    pub fn kubernetes(name: &str) -> Result<PathBuf, Error> {
        require_existing(
            repository().join("target/kubernetes/bin").join(name),
            "cargo task cluster",
        )
    }

    /// Returns the path of the component of a plugin or test guest. `package` is the name of its package.
    pub fn component(&self, package: &str) -> Result<PathBuf, Error> {
        self.module("wasm32-wasip2", &package.replace('-', "_"))
    }

    /// Returns the path of a policy in `tests/policies`: the waPC module `guest_policy` or the program
    /// `guest_policy_program`.
    pub fn policy(&self, name: &str) -> Result<PathBuf, Error> {
        self.module("wasm32-wasip1", name)
    }

    fn module(&self, target: &str, name: &str) -> Result<PathBuf, Error> {
        require_existing(
            self.target.join(target).join("plugin").join(format!("{name}.wasm")),
            "cargo task plugins --guests",
        )
    }
}

fn require_existing(path: PathBuf, command: &'static str) -> Result<PathBuf, Error> {
    if path.exists() {
        Ok(path)
    } else {
        Err(Error::NotBuilt { path, command })
    }
}
