//! Installs the browser with which tests open the console: Debian's Chromium and its WebDriver.

use std::{env, path::PathBuf};

use crate::{
    apt::{Apt, is_on_path},
    command::{Error, root},
    folders::{create_directory, lock, remove_directory},
};

const PROGRAMS: [(&str, &str); 2] = [("chromium", "chromium"), ("chromedriver", "chromium-driver")];

/// The environment variable with the path of the WebDriver, which starts the browser.
pub(crate) const VARIABLE: &str = "ADMITTANCE_TEST_CHROMEDRIVER";

/// Returns the path of the WebDriver. If it or Chromium is missing, installs them if this user is root.
pub(crate) fn install() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    require_programs(&PROGRAMS)?;
    Ok(PathBuf::from("chromedriver"))
}

pub(crate) fn require_programs(programs: &[(&str, &str)]) -> Result<(), Error> {
    if programs.iter().all(|(program, _)| is_on_path(program)) {
        return Ok(());
    }
    let top = root().join("target/chromium");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "install Chromium")?;
    let lists = top.join("apt");
    let apt = Apt::new(&lists, top.join("apt.log"), "the browser of the tests comes")?;
    apt.require_programs("opening the console", programs)?;
    remove_directory(&lists)
}
