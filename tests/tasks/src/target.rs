//! The compilation targets of plugins and of Kubewarden policies.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::command::{Error, root, run, say};

pub(crate) const PLUGIN_TARGET: &str = "wasm32-wasip2";
pub(crate) const POLICY_TARGET: &str = "wasm32-wasip1";

/// Installs a compilation target with rustup, unless it is installed.
pub(crate) fn install(target: &str) -> Result<(), Error> {
    if is_installed(target) {
        return Ok(());
    }
    say(&format!("Adding the compilation target {target} to the Rust toolchain"));
    run(Command::new("rustup").args(["target", "add", target]).current_dir(root())).map_err(|error| match error {
        Error::Start { .. } => Error::Missing(format!(
            "plugins are compiled for {target}, which is missing in this Rust toolchain, and rustup was not found to add \
             it: install Rust with rustup (https://rustup.rs), or your distribution's package of the standard \
             library for {target}"
        )),
        error => error,
    })
}

fn is_installed(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    Command::new(rustc)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        // The compiler prints the path of the target's directory even if the target is not installed. So this checks
        // whether the directory exists.
        .is_some_and(|directory| Path::new(directory.trim()).is_dir())
}
