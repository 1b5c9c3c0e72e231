//! The architectures for which the program can be packaged. These are the architecture of this machine, and the
//! architectures for which Debian has a cross compiler.

use std::{env, path::Path, process::Command, str::FromStr};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetMachine(String);

impl FromStr for TargetMachine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "x86_64" | "aarch64" => Ok(Self(name.to_owned())),
            _ => Err("write x86_64 or aarch64".to_owned()),
        }
    }
}

impl TargetMachine {
    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Returns the name that the architecture has in Debian. OCI images use this name, too.
    pub(super) fn debian_name(&self) -> &str {
        match self.name() {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    fn is_this_one(&self) -> bool {
        self.0 == env::consts::ARCH
    }

    /// Returns the compilation target for the architecture, or `None` if it is the architecture of this machine.
    pub(crate) fn target(&self) -> Option<String> {
        (!self.is_this_one()).then(|| format!("{}-unknown-linux-gnu", self.0))
    }

    pub(crate) fn linker(&self) -> String {
        format!("{}-linux-gnu-gcc", self.0)
    }

    pub(super) fn libraries(&self) -> String {
        if self.is_this_one() {
            "/".to_owned()
        } else {
            format!("/usr/{}-linux-gnu", self.0)
        }
    }

    /// Returns a command for a program of the architecture. If this machine cannot run it, an emulator does.
    pub(crate) fn command(&self, program: &Path) -> Command {
        if self.is_this_one() {
            return Command::new(program);
        }
        let mut command = self.emulator();
        command.arg(program);
        command
    }

    pub(super) fn list_libraries(&self, program: &Path) -> Command {
        let mut command = if self.is_this_one() {
            Command::new("ldd")
        } else {
            self.emulator()
        };
        if !self.is_this_one() {
            command.args(["-E", "LD_TRACE_LOADED_OBJECTS=1"]);
        }
        command.arg(program);
        command
    }

    fn emulator(&self) -> Command {
        let mut emulator = Command::new(format!("qemu-{}", self.0));
        // QEMU needs memory for every page of addresses that the emulated program reserves. The option `-R` limits the
        // addresses of the emulated program to 256 GiB.
        emulator.args(["-R", "0x4000000000", "-L", &self.libraries()]);
        emulator
    }
}
