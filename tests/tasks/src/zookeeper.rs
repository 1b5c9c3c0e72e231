//! The ZooKeeper that the tests start: Debian's `zookeeper`, and the Java to run it.
//!
//! One that is installed is used; otherwise the packages are unpacked under `target/zookeeper`, once.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    apt::{Apt, is_on_path},
    command::{Error, root, say},
    folders::{at, create_directory, lock, remove_directory},
};

/// The packages with the jars that a server consists of. More depends on it that no test uses.
const PACKAGES: [&str; 4] = [
    "libzookeeper-java",
    "libdropwizard-metrics-java",
    "libslf4j-java",
    "libsnappy-java",
];

/// Where packages have their jars, and the one of them that ZooKeeper is.
const JARS: &str = "usr/share/java";
const ZOOKEEPER: &str = "zookeeper.jar";

/// What runs them: the program, and its package.
const JAVA: (&str, &str) = ("java", "default-jre-headless");

/// What errors say that the packages are for.
const PURPOSE: &str = "the ZooKeeper of the tests comes";

/// Where the tests are told that the jars are.
pub(crate) const VARIABLE: &str = "ADMITTANCE_TEST_ZOOKEEPER";

/// The directory with ZooKeeper's jars, unpacked if this machine has none. Java is there, too.
pub(crate) fn install() -> Result<PathBuf, Error> {
    let top = root().join("target/zookeeper");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "unpack ZooKeeper")?;
    let (lists, log) = (top.join("apt"), top.join("apt.log"));
    let apt = || Apt::new(&lists, log.clone(), PURPOSE);
    if !is_on_path(JAVA.0) {
        apt()?.require_programs("running ZooKeeper", &[JAVA])?;
    }
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let installed = Path::new("/").join(JARS);
    if installed.join(ZOOKEEPER).is_file() {
        return Ok(installed);
    }
    let jars = top.join("jars");
    // They are put there whole.
    if jars.is_dir() {
        return Ok(jars);
    }
    say("Unpacking the ZooKeeper of the tests in target/zookeeper, from the packages of the distribution");
    let unpacked = top.join("unpacked");
    apt()?.unpack(&PACKAGES, &unpacked)?;
    fs::rename(unpacked.join(JARS), &jars).map_err(at(&jars))?;
    remove_directory(&unpacked)?;
    remove_directory(&lists)?;
    Ok(jars)
}
