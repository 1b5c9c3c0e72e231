use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

#[derive(Debug)]
pub(crate) enum Error {
    Start {
        program: OsString,
        source: io::Error,
    },
    Status {
        program: OsString,
        status: ExitStatus,
    },
    Logged {
        program: OsString,
        status: ExitStatus,
        log: PathBuf,
    },
    File {
        path: PathBuf,
        source: io::Error,
    },
    /// The machine lacks something that a task needs. The text says what to do.
    Missing(String),
}

impl Error {
    /// Returns the exit code of the program that failed, or 1.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Status { status, .. } => status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
            Self::Start { .. } | Self::Logged { .. } | Self::File { .. } | Self::Missing(_) => 1,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start { program, source } => write!(f, "{} cannot be started: {source}", program.display()),
            Self::Status { program, status } => write!(f, "{} ended with {status}", program.display()),
            Self::Logged { program, status, log } => write!(
                f,
                "{} ended with {status}; its output is in {}",
                program.display(),
                log.display()
            ),
            Self::File { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Missing(sentence) => f.write_str(sentence),
        }
    }
}

pub(crate) fn say(message: &str) {
    eprintln!("==> {message}");
}

pub(crate) fn root() -> PathBuf {
    let package_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    package_directory
        .ancestors()
        .nth(2)
        .unwrap_or(package_directory)
        .to_owned()
}

pub(crate) fn target_directory() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Returns the path of a program of this workspace. `profile` is `debug` or `release`.
pub(crate) fn built_program(profile: &str, name: &str) -> Result<PathBuf, Error> {
    let path = target_directory()
        .join(profile)
        .join(format!("{name}{}", env::consts::EXE_SUFFIX));
    match path.metadata() {
        Ok(_) => Ok(path),
        Err(source) => Err(Error::File { path, source }),
    }
}

/// Returns a command for the Cargo that started this program, in the root of the repository.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Build scripts would run again if they saw the variables that Cargo sets for this program.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root());
    command
}

pub(crate) fn become_built_program(profile: &str, name: &str, arguments: &[OsString]) -> Result<(), Error> {
    become_program(Command::new(built_program(profile, name)?).args(arguments))
}

pub(crate) fn cargo<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<(), Error> {
    run(cargo_command().args(arguments))
}

pub(crate) fn run(command: &mut Command) -> Result<(), Error> {
    let program = command.get_program().to_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Status { program, status }),
        Err(source) => Err(Error::Start { program, source }),
    }
}

/// Runs a program, waits until it exits, and appends its output to the file `log`.
pub(crate) fn run_logged(command: &mut Command, log: &Path) -> Result<(), Error> {
    let program = command.get_program().to_owned();
    let file = |source| Error::File {
        path: log.to_owned(),
        source,
    };
    let mut output = File::options().create(true).append(true).open(log).map_err(file)?;
    writeln!(output, "$ {command:?}").map_err(file)?;
    let errors = output.try_clone().map_err(file)?;
    let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::Logged {
            program,
            status,
            log: log.to_owned(),
        }),
        Err(source) => Err(Error::Start { program, source }),
    }
}

/// Replaces this process with another program. So when the user presses Ctrl-C, only that program gets the signal.
#[cfg(unix)]
pub(crate) fn become_program(command: &mut Command) -> Result<(), Error> {
    use std::os::unix::process::CommandExt as _;

    let source = command.exec();
    Err(Error::Start {
        program: command.get_program().to_owned(),
        source,
    })
}

/// Runs another program as the last step, because this system cannot replace a process.
#[cfg(not(unix))]
pub(crate) fn become_program(command: &mut Command) -> Result<(), Error> {
    run(command)
}
