//! Secures the supply chain: checks dependencies for advisories, and writes the bill of materials and releases.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    command::{Error, root, run, say, target_directory},
    dist::TargetMachine,
    folders::{create_directory, file_error},
    target,
    tool::Tool,
};

const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    features: None,
};
const CYCLONEDX: Tool = Tool {
    name: "cargo-cyclonedx",
    version: "0.5.9",
    features: None,
};
const AUDITABLE: Tool = Tool {
    name: "cargo-auditable",
    version: "0.7.7",
    features: None,
};

const DATABASE: &str = "https://github.com/RustSec/advisory-db";

/// The section of a program in which `cargo auditable` writes the list of dependencies.
const DEPENDENCIES_SECTION: &[u8] = b".dep-v0";

pub(crate) fn audit(if_reachable: bool, rest: &[OsString]) -> Result<(), Error> {
    let is_offline = rest.iter().any(|argument| argument == "--disable-fetch");
    if !is_offline && !is_reachable(DATABASE) {
        return unreachable_database(DATABASE, if_reachable);
    }
    let program = DENY.install()?;
    run(Command::new(program)
        .arg("check")
        .args(rest)
        .arg("advisories")
        .current_dir(root()))
}

/// Reports that the advisories cannot be fetched. If `is_optional` is set, this is only printed; otherwise, it is an
/// error.
fn unreachable_database(database: &str, is_optional: bool) -> Result<(), Error> {
    let missing = format!("the advisories cannot be fetched: {database} is unreachable");
    if is_optional {
        eprintln!("skipped: {missing}");
        return Ok(());
    }
    Err(Error::Missing(format!(
        "{missing}, and no package registry has them. \
         Run `cargo task audit` where it is, or with a copy that cargo-deny fetched before: \
         `cargo task audit -- --disable-fetch`. Licences, sources and unwanted crates are checked by \
         `cargo task test` without a network"
    )))
}

fn is_reachable(database: &str) -> bool {
    Command::new("git")
        .args(["ls-remote", "--quiet", database, "HEAD"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub(crate) fn sbom() -> Result<PathBuf, Error> {
    let program = CYCLONEDX.install()?;
    let package = root().join("host/cli");
    let stem = "admittance.cdx";
    run(Command::new(program)
        .args(["cyclonedx", "--format", "json", "--spec-version", "1.5"])
        .args(["--override-filename", stem, "--manifest-path"])
        .arg(package.join("Cargo.toml"))
        .current_dir(root()))?;
    let to = root().join("target/sbom").join(format!("{stem}.json"));
    create_directory(&root().join("target/sbom"))?;
    let mut members = vec![root()];
    while let Some(folder) = members.pop() {
        move_or_remove_files(&folder, &format!("{stem}.json"), &package, &to, &mut members)?;
    }
    say(&format!("The bill of materials is {}", to.display()));
    Ok(to)
}

/// Looks for bills of materials in `folder`. Moves the bill of `package` to `to`, and removes the bills of other
/// packages. Adds the folders in `folder` to `folders`.
fn move_or_remove_files(
    folder: &Path,
    name: &str,
    package: &Path,
    to: &Path,
    folders: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(file_error(folder))? {
        let path = entry.map_err(file_error(folder))?.path();
        let last = path.file_name().unwrap_or_default();
        if path.is_dir() && !path.is_symlink() {
            if last != "target" && last != ".git" {
                folders.push(path);
            }
        } else if last == name && folder == package {
            fs::rename(&path, to).map_err(file_error(&path))?;
        } else if last == name {
            fs::remove_file(&path).map_err(file_error(&path))?;
        }
    }
    Ok(())
}

/// Compiles a release of the program, which contains the stock plugins in the directory `plugins` and the list of its
/// dependencies. Returns the path of the program.
pub(crate) fn release(plugins: &Path, machine: &TargetMachine) -> Result<PathBuf, Error> {
    let auditable = AUDITABLE.install()?;
    say("Compiling a release of the program (some minutes the first time)");
    let mut build = Command::new(auditable);
    let mut directory = target_directory();
    if let Some(target) = machine.target() {
        target::install(&target)?;
        let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        build.env(linker, machine.linker());
        directory.push(&target);
        build.env("CARGO_BUILD_TARGET", target);
    }
    run(build
        .args([
            "auditable",
            "build",
            "--locked",
            "--release",
            "--package",
            "admittance-cli",
            "--features",
            "stock-plugins",
        ])
        .env("ADMITTANCE_STOCK", plugins)
        .current_dir(root()))?;
    let program = directory.join("release/admittance");
    let bytes = fs::read(&program).map_err(file_error(&program))?;
    if !contains(&bytes, DEPENDENCIES_SECTION) {
        return Err(Error::Missing(format!(
            "{} does not contain the list of its dependencies, although `cargo auditable` compiled it; remove it and retry",
            program.display()
        )));
    }
    for plugin in fs::read_dir(plugins).map_err(file_error(plugins))? {
        let path = plugin.map_err(file_error(plugins))?.path();
        let module = fs::read(&path).map_err(file_error(&path))?;
        if !contains(&bytes, &module) {
            return Err(Error::Missing(format!(
                "{} does not contain the stock plugin {}",
                program.display(),
                path.display()
            )));
        }
        // A program for another architecture is not tried: the emulator can run the program, but not the compiler that
        // the program starts.
        if machine.target().is_none() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            check_loads(&program, &name.replace(".wasm.gz", "").replace('_', "-"))?;
        }
    }
    sbom()?;
    say(&format!("The program is {}", program.display()));
    Ok(program)
}

/// Checks that the program contains this stock plugin, and can load it.
fn check_loads(program: &Path, plugin: &str) -> Result<(), Error> {
    run(Command::new(program)
        .arg("inspect")
        .arg(format!("stock:{plugin}"))
        // The variable names a directory that does not exist. So the program cannot load the plugin from a file, and
        // has to use the copy that is compiled into it.
        .env("ADMITTANCE_PLUGINS", "/nonexistent")
        .stdout(Stdio::null()))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreachable_advisories_fail_the_audit_unless_they_are_optional() {
        let nowhere = "file:///nowhere/advisory-db";
        assert!(!is_reachable(nowhere));
        assert!(unreachable_database(nowhere, true).is_ok(), "it is skipped");
        let error = unreachable_database(nowhere, false).map_err(|error| error.to_string());
        assert!(
            error.is_err_and(|error| error.contains("file:///nowhere/advisory-db is unreachable")),
            "it fails"
        );
    }
}
