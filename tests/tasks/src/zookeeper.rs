//! Finds ZooKeeper for tests: Debian's package `zookeeper`, and Java.
//!
//! An installed ZooKeeper is used. Without one, its packages are unpacked once, into `target/zookeeper`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    apt::{Apt, is_on_path},
    command::{Error, root, say},
    folders::{create_directory, file_error, lock, remove_directory},
};

const PACKAGES: [&str; 4] = [
    "libzookeeper-java",
    "libdropwizard-metrics-java",
    "libslf4j-java",
    "libsnappy-java",
];

const JARS: &str = "usr/share/java";
const ZOOKEEPER: &str = "zookeeper.jar";

const JAVA: (&str, &str) = ("java", "default-jre-headless");

const SENTENCE_START: &str = "the ZooKeeper of the tests comes";

/// The environment variable that tells tests in which directory the jars of ZooKeeper are.
pub(crate) const VARIABLE: &str = "ADMITTANCE_TEST_ZOOKEEPER";

/// Checks that Java is available, and returns the directory of ZooKeeper's jars. If there are none, unpacks them.
pub(crate) fn install() -> Result<PathBuf, Error> {
    let top = root().join("target/zookeeper");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "unpack ZooKeeper")?;
    let (lists, log) = (top.join("apt"), top.join("apt.log"));
    let apt = || Apt::new(&lists, log.clone(), SENTENCE_START);
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
    // If the directory exists, it is complete, because it is moved here only after the packages were unpacked.
    if jars.is_dir() {
        return Ok(jars);
    }
    say("Unpacking a ZooKeeper for the tests in target/zookeeper, from packages of the distribution");
    let unpacked = top.join("unpacked");
    apt()?.unpack(&PACKAGES, &unpacked)?;
    fs::rename(unpacked.join(JARS), &jars).map_err(file_error(&jars))?;
    remove_directory(&unpacked)?;
    remove_directory(&lists)?;
    Ok(jars)
}
