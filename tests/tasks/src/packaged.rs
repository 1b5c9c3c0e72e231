//! Unpacks programs for tests from packages of the distribution.
//!
//! If a program is installed on this machine, the installed one is used. If not, its package is unpacked once, into
//! `target`.

use std::{env, fs, path::PathBuf};

use crate::{
    apt::Apt,
    command::{Error, root, say},
    folders::{create_directory, file_error, lock, remove_directory},
};

pub(crate) struct PackagedProgram {
    pub(crate) name: &'static str,
    program: &'static str,
    package: &'static str,
    /// The environment variable that tells tests where the program is.
    pub(crate) variable: &'static str,
}

/// A program that serves an OCI registry. Tests push artifacts to it and pull them from it.
pub(crate) const REGISTRY: PackagedProgram = PackagedProgram {
    name: "registry",
    program: "docker-registry",
    package: "docker-registry",
    variable: "ADMITTANCE_TEST_REGISTRY",
};

pub(crate) const PROMTOOL: PackagedProgram = PackagedProgram {
    name: "promtool",
    program: "promtool",
    package: "prometheus",
    variable: "ADMITTANCE_TEST_PROMTOOL",
};

impl PackagedProgram {
    pub(crate) fn install(&self) -> Result<PathBuf, Error> {
        let Self {
            name: description,
            program,
            ..
        } = self;
        if let Some(path) = env::var_os(self.variable) {
            return Ok(path.into());
        }
        let directories = env::var_os("PATH").unwrap_or_default();
        let installed = env::split_paths(&directories).map(|directory| directory.join(program));
        if let Some(path) = installed.into_iter().find(|path| path.is_file()) {
            return Ok(path);
        }
        let top = root().join("target").join(description);
        create_directory(&top)?;
        let _one_at_a_time = lock(&top.join("lock"), &format!("unpack the {description}"))?;
        let path = top.join(program);
        // If the program exists, it is complete, because it is moved here only after it was unpacked.
        if path.is_file() {
            return Ok(path);
        }
        say(&format!(
            "Unpacking the {description} of the tests in target/{description}, from packages of the distribution"
        ));
        let (lists, unpacked) = (top.join("apt"), top.join("unpacked"));
        let purpose = format!("the {description} of the tests comes");
        let apt = Apt::new(&lists, top.join("apt.log"), &purpose)?;
        apt.unpack(&[self.package], &unpacked)?;
        fs::rename(unpacked.join("usr/bin").join(program), &path).map_err(file_error(&path))?;
        remove_directory(&unpacked)?;
        remove_directory(&lists)?;
        Ok(path)
    }
}
