//! Programs from crates.io that most contributors do not need. Each is compiled when it is first used.

use std::path::PathBuf;

use crate::command::{Error, cargo_command, root, run, say};

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// An option of Cargo that selects the features of the program; `None` for the default features.
    pub(crate) features: Option<&'static str>,
}

impl Tool {
    pub(crate) fn install(&self) -> Result<PathBuf, Error> {
        let top = root()
            .join("target/tools")
            .join(format!("{}-{}", self.name, self.version));
        let program = top.join("bin").join(self.name);
        if program.is_file() {
            return Ok(program);
        }
        say(&format!(
            "Compiling {} {} (some minutes, once)",
            self.name, self.version
        ));
        run(cargo_command()
            .args(["install", "--locked", "--version", self.version, self.name, "--root"])
            .arg(&top)
            .args(
                self.features
                    .map(|features| ["--no-default-features", features])
                    .into_iter()
                    .flatten(),
            )
            .current_dir(root()))?;
        Ok(program)
    }
}
