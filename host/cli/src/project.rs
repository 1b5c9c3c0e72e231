//! Builds and tests the project of a plugin in any language.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use admittance::Digest;
use serde::Deserialize;

use crate::{
    files,
    output::{BOLD, sanitize_line},
};

/// The files and commands of projects in one language. The commands run in the project's directory.
#[derive(Debug)]
struct Language {
    /// The files of a project outside `src` and `tests`. The first of them is the manifest, such as `Cargo.toml`.
    files: &'static [&'static str],
    setup_steps: &'static [SetupStep],
    build_command: &'static [&'static str],
    component: BuiltComponent,
    test_command: &'static [&'static str],
    /// The exit code by which the test command says that the project has no tests.
    no_tests_exit_code: Option<i32>,
    environment: &'static [(&'static str, &'static str)],
}

/// A command that prepares the project, for example by installing its dependencies. It runs before the first build, and
/// again when a file that names dependencies has changed.
#[derive(Debug)]
struct SetupStep {
    /// A path that exists if the dependencies have been installed, such as `.venv/bin/pip`.
    result_path: &'static str,
    /// The files in which the project names its dependencies, and the path of a copy of these files. The copy is made
    /// after `command` has run. If the files differ from the copy later, `command` runs again.
    dependencies: Option<(&'static [&'static str], &'static str)>,
    command: &'static [&'static str],
}

impl Language {
    fn manifest(&self) -> &'static str {
        self.files.first().copied().unwrap_or_default()
    }
}

/// The way to find the component that a build has written.
#[derive(Debug)]
enum BuiltComponent {
    /// Cargo is run for every build. It knows what has changed, builds only that, and prints the path of the component.
    OfCargo,
    File {
        path: &'static str,
        /// The path of a file that describes the last build. A comparison shows whether the project has changed since.
        record: &'static str,
    },
}

const TARGET: &str = "wasm32-wasip2";

const UNBUILT_DIRECTORIES: [&str; 4] = ["__pycache__", "node_modules", "target", "tests"];

const LANGUAGES: [Language; 4] = [
    Language {
        files: &["Cargo.toml", "build.rs"],
        setup_steps: &[],
        build_command: &[
            "cargo",
            "build",
            "--release",
            "--target",
            TARGET,
            "--message-format",
            "json-render-diagnostics",
        ],
        component: BuiltComponent::OfCargo,
        test_command: &["cargo", "test"],
        no_tests_exit_code: None,
        environment: &[],
    },
    Language {
        files: &["package.json"],
        setup_steps: &[SetupStep {
            result_path: "node_modules",
            dependencies: Some((&["package.json", "package-lock.json"], "node_modules/.admittance")),
            command: &["npm", "install", "--no-audit", "--no-fund"],
        }],
        build_command: &["npm", "run", "build"],
        component: BuiltComponent::File {
            path: "plugin.wasm",
            record: "node_modules/.admittance-build",
        },
        test_command: &["npm", "test", "--if-present"],
        no_tests_exit_code: None,
        environment: &[],
    },
    Language {
        files: &["pyproject.toml", "requirements.txt"],
        setup_steps: &[
            SetupStep {
                // `.venv` alone would not suffice. If Python has no pip, `venv` creates the directory and then fails.
                result_path: ".venv/bin/pip",
                dependencies: None,
                command: &["python3", "-m", "venv", ".venv"],
            },
            SetupStep {
                result_path: ".venv/bin/componentize-py",
                dependencies: Some((&["requirements.txt"], ".venv/.admittance")),
                command: &[
                    ".venv/bin/python",
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "-r",
                    "requirements.txt",
                ],
            },
        ],
        build_command: &[
            ".venv/bin/componentize-py",
            "--quiet",
            "--wit-path",
            "vendor/admittance/wit",
            "--world",
            "plugin-with-environment",
            "componentize",
            "--python-path",
            "src",
            "--python-path",
            "vendor",
            "plugin",
            "--output",
            "plugin.wasm",
        ],
        component: BuiltComponent::File {
            path: "plugin.wasm",
            record: ".venv/.admittance-build",
        },
        test_command: &[".venv/bin/python", "-m", "unittest", "discover", "-s", "tests"],
        no_tests_exit_code: Some(5),
        environment: &[
            ("PYTHONPATH", "src:vendor"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
            // componentize-py looks for installed packages in the directory that this variable names.
            ("VIRTUAL_ENV", ".venv"),
        ],
    },
    // A project in another language may have a Makefile too. So this program looks for the other languages first, and
    // for a Makefile last.
    Language {
        files: &["Makefile"],
        setup_steps: &[],
        build_command: &["make", "plugin.wasm"],
        component: BuiltComponent::File {
            path: "plugin.wasm",
            record: ".admittance-build",
        },
        test_command: &["make", "--silent", "test"],
        no_tests_exit_code: None,
        environment: &[],
    },
];

/// (program that users must install, environment variable with its path, advice if it is missing)
const TOOLS: [(&str, &str, &str); 4] = [
    ("cargo", "CARGO", "install Rust with rustup (https://rustup.rs)"),
    ("npm", "NPM", "install Node.js 20 or newer (https://nodejs.org)"),
    (
        "python3",
        "PYTHON",
        "install Python 3.10 or newer (https://www.python.org)",
    ),
    ("make", "MAKE", "install it, clang, wasm-ld and wasi-libc"),
];

#[derive(Debug)]
pub(crate) struct Project {
    directory: PathBuf,
    language: &'static Language,
}

#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

impl Project {
    pub(crate) fn in_directory(directory: &Path) -> Option<Self> {
        let has_manifest = |language: &&Language| directory.join(language.manifest()).is_file();
        Some(Self {
            directory: directory.to_owned(),
            language: LANGUAGES.iter().find(has_manifest)?,
        })
    }

    pub(crate) fn manifests() -> String {
        LANGUAGES.each_ref().map(Language::manifest).join(", ")
    }

    pub(crate) fn manifest(&self) -> &'static str {
        self.language.manifest()
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.language.files.iter().map(|file| self.directory.join(file))
    }

    pub(crate) fn test_command(&self) -> String {
        self.language.test_command.join(" ")
    }

    pub(crate) fn build(&self) -> crate::Result<PathBuf> {
        for setup in self.language.setup_steps {
            self.run_setup_step(setup)?;
        }
        match self.language.component {
            BuiltComponent::OfCargo => self.build_with_cargo(),
            BuiltComponent::File { path, record } => {
                let component = self.directory.join(path);
                let record = self.directory.join(record);
                // The files are read before the build, because they may change during it.
                let source = self.source_digest(&component)?;
                let build_record = || {
                    let bytes = files::read_bytes(&component)?;
                    io::Result::Ok(format!("{source} {}\n", Digest::of_bytes(bytes)))
                };
                let is_current = |built: String| files::read(&record).is_ok_and(|record_text| record_text == built);
                if build_record().is_ok_and(is_current) {
                    return Ok(component);
                }
                let command = self.language.build_command.join(" ");
                if !self.run(self.language.build_command)?.success() {
                    return Err(compile_failure(&command).into());
                }
                let new_record = build_record()
                    .map_err(|_| format!("`{command}` writes no {path}; let it write the component there"))?;
                fs::write(&record, new_record).map_err(files::error_at(&record))?;
                Ok(component)
            }
        }
    }

    fn source_digest(&self, component: &Path) -> Result<Digest, String> {
        let mut parts = Vec::new();
        let mut directories = self.linked_packages();
        directories.push(self.directory.clone());
        while let Some(directory) = directories.pop() {
            for entry in sorted_entries(&directory).map_err(files::error_at(&directory))? {
                let (name, path) = (entry.file_name(), entry.path());
                let is_hidden = name.as_encoded_bytes().starts_with(b".");
                if is_hidden || path == component || UNBUILT_DIRECTORIES.iter().any(|unbuilt| name == *unbuilt) {
                    continue;
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    directories.push(path);
                } else if path.is_file() {
                    parts.push(files::read_bytes(&path).map_err(files::error_at(&path))?);
                    parts.push(path.into_os_string().into_encoded_bytes());
                }
            }
        }
        Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
    }

    /// Returns the directories of packages that npm links instead of copying.
    fn linked_packages(&self) -> Vec<PathBuf> {
        let packages = self.directory.join("node_modules");
        let entries = |directory: &Path| sorted_entries(directory).unwrap_or_default().into_iter();
        let scopes = entries(&packages).filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"@"));
        let scoped: Vec<_> = scopes.flat_map(|scope| entries(&scope.path())).collect();
        entries(&packages)
            .chain(scoped)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect()
    }

    fn build_with_cargo(&self) -> crate::Result<PathBuf> {
        let words = self.language.build_command;
        let manifest = fs::canonicalize(self.directory.join(self.language.manifest()))?;
        let mut command = self.command(words);
        let mut cargo = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| start_failure(words, &error))?;
        let mut component = None;
        if let Some(output) = cargo.stdout.take() {
            for line in BufReader::new(output).lines() {
                component = component_in(&line?, &manifest).or(component);
            }
        }
        if !cargo.wait()?.success() {
            return Err(if self.lacks_target() {
                format!("the target {TARGET} is not installed for this toolchain; run `rustup target add {TARGET}`")
            } else {
                compile_failure("cargo build")
            }
            .into());
        }
        Ok(component.ok_or_else(|| {
            format!(
                "{}: the package builds no component; write `crate-type = [\"cdylib\", \"rlib\"]` under `[lib]`",
                manifest.display()
            )
        })?)
    }

    fn run_setup_step(&self, setup: &SetupStep) -> crate::Result<()> {
        let SetupStep {
            result_path: result,
            dependencies: named_in,
            command,
        } = setup;
        let read_file = |file: &&str| files::read_bytes(&self.directory.join(file)).unwrap_or_default();
        let read_dependencies = || {
            named_in
                .map(|(files, relative_path)| (files.iter().map(read_file).collect::<Vec<_>>().concat(), relative_path))
        };
        let is_current = read_dependencies().is_none_or(|(text, relative_path)| text == read_file(&relative_path));
        if is_current && self.directory.join(result).exists() {
            return Ok(());
        }
        if !self.run(command)?.success() {
            let command = command.join(" ");
            return Err(format!("`{command}` failed; its output is above").into());
        }
        // The files that name the dependencies are read again, because the command may have changed them: `npm install`
        // writes package-lock.json, for example.
        if let Some((text, relative_path)) = read_dependencies() {
            let copy_path = self.directory.join(relative_path);
            fs::write(&copy_path, text).map_err(files::error_at(&copy_path))?;
        }
        Ok(())
    }

    /// Runs the native tests, which print to standard error; returns whether they pass.
    pub(crate) fn test(&self) -> crate::Result<bool> {
        let status = self.run(self.language.test_command)?;
        let has_no_tests = status.code().is_some() && status.code() == self.language.no_tests_exit_code;
        Ok(status.success() || has_no_tests)
    }

    fn run(&self, words: &[&str]) -> Result<ExitStatus, String> {
        let status = self.command(words).stdout(io::stderr()).status();
        status.map_err(|error| start_failure(words, &error))
    }

    /// Prints a command to standard error, and returns it ready to be run.
    fn command(&self, words: &[&str]) -> Command {
        anstream::eprintln!("{BOLD}{}{BOLD:#}", sanitize_line(&words.join(" ")));
        let (name, args) = words.split_first().unwrap_or((&"", &[]));
        let variable = TOOLS.iter().find(|(tool, ..)| tool == name);
        let mut command = Command::new(match variable {
            Some((_, variable, _)) => program(variable, name),
            // The path of this program is relative to the project. The operating system would resolve it from the
            // directory of this process, so it is made absolute here.
            None if name.contains('/') => std::path::absolute(self.directory.join(name))
                .unwrap_or_else(|_| self.directory.join(name))
                .into(),
            None => name.into(),
        });
        command
            .args(args)
            .envs(self.language.environment.iter().copied())
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        command
    }

    fn lacks_target(&self) -> bool {
        let mut command = Command::new(program("RUSTC", "rustc"));
        command
            .args(["--print", "target-libdir", "--target", TARGET])
            .current_dir(&self.directory);
        let output = command.output().ok().filter(|output| output.status.success());
        let directory = output.and_then(|output| String::from_utf8(output.stdout).ok());
        directory.is_some_and(|directory| !Path::new(directory.trim()).is_dir())
    }
}

fn sorted_entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

/// Returns the path of the project's component, if this line of Cargo's output contains it. The components of
/// dependencies are ignored.
fn component_in(line: &str, manifest: &Path) -> Option<PathBuf> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    let is_own_artifact = message.reason == "compiler-artifact"
        && fs::canonicalize(&message.manifest_path).is_ok_and(|path| path == manifest);
    let mut outputs = message.filenames.into_iter();
    outputs.find(|file| is_own_artifact && files::is_module(file))
}

fn program(variable: &str, default: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| default.into())
}

fn compile_failure(command: &str) -> String {
    format!("the plugin does not compile: `{command}` failed, and its output is above")
}

fn start_failure(words: &[&str], error: &io::Error) -> String {
    let name = words.first().copied().unwrap_or_default();
    let tool = TOOLS.iter().find(|(tool, ..)| *tool == name);
    match (error.kind(), tool) {
        (io::ErrorKind::NotFound, Some((_, variable, fix))) => {
            format!("{name} was not found; {fix}, or name it in {variable}")
        }
        _ => format!("{name} cannot be started: {error}"),
    }
}

#[cfg(test)]
mod tests;
