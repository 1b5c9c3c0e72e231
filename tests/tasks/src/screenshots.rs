//! The screenshots of the console in the manual.

use std::{fs, process::Command};

use crate::{
    chromium,
    command::{self, Error, cargo_command, root, say},
    folders::file_error,
};

/// The tests write many pictures. Only those for the manual have file names that begin with the first text and end with
/// the second one.
const PICTURE_NAME_ENDS: (&str, &str) = ("manual-", "-light.png");

/// The program that reduces pictures to 256 colours and so to a third of their size, with its package.
const PNG_COMPRESSOR: (&str, &str) = ("pngquant", "pngquant");

/// Opens every page of the console in Chromium, and copies the pictures to docs/console. The program must be compiled.
pub(crate) fn renew() -> Result<(), Error> {
    say("Opening the pages of the console");
    let mut test = cargo_command();
    test.args([
        "test",
        "--workspace",
        "--test",
        "whole",
        "screenshots_of_the_manual_are_current",
    ]);
    command::run(test.env(chromium::VARIABLE, chromium::install()?))?;
    chromium::require_programs(&[PNG_COMPRESSOR])?;
    let mut compress = Command::new(PNG_COMPRESSOR.0);
    compress.args(["--force", "--ext", ".png", "--speed", "1", "--"]);
    let (picture_directory, manual) = (root().join("target/console"), root().join("docs/console"));
    for entry in fs::read_dir(&picture_directory).map_err(file_error(&picture_directory))? {
        let path = entry.map_err(file_error(&picture_directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let page = name
            .strip_prefix(PICTURE_NAME_ENDS.0)
            .and_then(|name| name.strip_suffix(PICTURE_NAME_ENDS.1));
        if let Some(page) = page {
            let copy = manual.join(format!("{page}.png"));
            fs::copy(&path, &copy).map_err(file_error(&path))?;
            compress.arg(copy);
        }
    }
    command::run(&mut compress)
}
