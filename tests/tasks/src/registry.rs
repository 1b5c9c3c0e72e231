//! The registry that the tests push to and pull from: Debian's `docker-registry`.
//!
//! An installed one is used; otherwise the package is unpacked under `target/registry`, once.

use std::{env, fs, path::PathBuf};

use crate::{
    apt::Apt,
    command::{Error, root, say},
    folders::{at, create_directory, lock, remove_directory},
};

/// The package, and its program.
const PACKAGE: &str = "docker-registry";
const PROGRAM: &str = "usr/bin/docker-registry";

/// The variable that tells tests where the program is.
pub(crate) const VARIABLE: &str = "ADMITTANCE_TEST_REGISTRY";

/// The registry's program, unpacked if this machine has none.
pub(crate) fn install() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let directories = env::var_os("PATH").unwrap_or_default();
    let installed = env::split_paths(&directories).map(|directory| directory.join(PACKAGE));
    if let Some(path) = installed.into_iter().find(|path| path.is_file()) {
        return Ok(path);
    }
    let top = root().join("target/registry");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "unpack the registry")?;
    let program = top.join(PACKAGE);
    // It is put there atomically.
    if program.is_file() {
        return Ok(program);
    }
    say("Unpacking a registry for the tests in target/registry, from packages of the distribution");
    let (lists, unpacked) = (top.join("apt"), top.join("unpacked"));
    let apt = Apt::new(&lists, top.join("apt.log"), "the registry of the tests comes")?;
    apt.unpack(&[PACKAGE], &unpacked)?;
    fs::rename(unpacked.join(PROGRAM), &program).map_err(at(&program))?;
    remove_directory(&unpacked)?;
    remove_directory(&lists)?;
    Ok(program)
}
