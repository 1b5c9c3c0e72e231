//! Installs Debian's MariaDB server for tests. The package `mariadb-server` would also start a service.

use std::{env, path::PathBuf};

use crate::{
    apt::{Apt, is_on_path},
    command::{Error, root},
    folders::{create_directory, lock, remove_directory},
};

/// The programs that tests need, each with its package: the server, and a program that `mariadb-install-db` runs.
const PROGRAMS: [(&str, &str); 2] = [
    ("mariadbd", "mariadb-server-core"),
    ("my_print_defaults", "mariadb-client-core"),
];

/// Debian installs the programs of the MariaDB server in this directory, which is not in the `PATH` of every user.
const FOLDER: &str = "/usr/sbin";

/// The environment variable that tells tests in which directory the MariaDB server is.
pub(crate) const VARIABLE: &str = "ADMITTANCE_TEST_MARIADB";

pub(crate) fn install() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let folder = PathBuf::from(FOLDER);
    if folder.join("mariadbd").is_file() && is_on_path("my_print_defaults") {
        return Ok(folder);
    }
    let top = root().join("target/mariadb");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "install MariaDB")?;
    let lists = top.join("apt");
    let apt = Apt::new(&lists, top.join("apt.log"), "the MariaDB of the tests comes")?;
    apt.require_programs("running MariaDB", &PROGRAMS)?;
    remove_directory(&lists)?;
    Ok(folder)
}
