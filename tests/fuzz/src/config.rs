use std::fs;

use admittance_driver::Config;

use crate::{definitions::check_mistakes, in_directory};

/// Reads a configuration file. Checks that mistakes have a position in the text, and that reading an accepted file
/// twice gives the same result.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // A path could name a device, which must not be read. Such inputs are skipped.
    if text.contains("/dev") || text.contains("/proc") || text.contains("..") {
        return;
    }
    in_directory(|directory| {
        let path = directory.join("admittance.yaml");
        fs::write(&path, text).expect("a file can be written");
        match Config::read(&path) {
            Ok(config) => {
                let again = Config::read(&path).expect("what was accepted is accepted again");
                assert_eq!(format!("{again:?}"), format!("{config:?}"));
            }
            Err(mistakes) => check_mistakes(&mistakes, text),
        }
    });
}
