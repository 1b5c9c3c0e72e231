use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    Admittance, Artifacts, Error,
    program::{FinishedProgram, finish},
};

/// Builds the command `admittance serve`. By default, the program stores revisions in a temporary directory, which is
/// removed when the program ends.
#[derive(Debug)]
pub struct Serve {
    command: Command,
    listen: Option<SocketAddr>,
    history: Option<PathBuf>,
    wrapper: Vec<OsString>,
}

impl Serve {
    /// Returns a command that serves this configuration on ports that the kernel chooses.
    pub fn new(config: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::with_program(
            &Artifacts::find()?.program("admittance")?,
            config.as_ref(),
        ))
    }

    /// Returns a command that starts another build of the program.
    pub fn with_program(program: &Path, config: &Path) -> Self {
        let mut command = Admittance::command_of(program);
        command.args(["serve", "--log-format", "json", "--config"]).arg(config);
        command.args(["--admin", "127.0.0.1:0"]);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            command,
            listen: Some(any_port),
            history: None,
            wrapper: Vec::new(),
        }
    }

    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Makes the program listen at the configured address, instead of on a port that the kernel chooses.
    pub fn listen_as_configured(mut self) -> Self {
        self.listen = None;
        self
    }

    pub fn upstream(self, url: &str) -> Self {
        self.arguments(["--upstream", url])
    }

    pub fn store(self, directory: impl AsRef<Path>) -> Self {
        self.arguments([OsStr::new("--store"), directory.as_ref().as_os_str()])
    }

    /// Sets the directory in which the program stores revisions. It is not removed when the program ends.
    pub fn history(mut self, directory: impl AsRef<Path>) -> Self {
        self.history = Some(directory.as_ref().to_owned());
        self
    }

    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts the program through a wrapper, which must `exec` the command line that follows its `arguments`.
    pub fn through_wrapper<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the program, and waits until it serves requests.
    pub async fn start(self) -> Result<Admittance, Error> {
        let mut program = self.spawn()?;
        program.wait_until_serving().await?;
        Ok(program)
    }

    /// Starts the program, and does not wait until it serves requests.
    pub fn spawn(self) -> Result<Admittance, Error> {
        let (command, history) = self.command()?;
        Admittance::spawn(command, history)
    }

    /// Starts the program, and waits until it exits.
    pub async fn finish(self) -> Result<FinishedProgram, Error> {
        let (command, _history) = self.command()?;
        finish(command).await
    }

    fn command(self) -> Result<(Command, Option<TempDir>), Error> {
        let Self {
            mut command,
            listen,
            history,
            wrapper,
        } = self;
        if let Some(address) = listen {
            command.args(["--listen", &address.to_string()]);
        }
        let temporary_history = match &history {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(Error::io("a directory for the history"))?),
        };
        let directory = history.as_deref().or(temporary_history.as_ref().map(TempDir::path));
        command.arg("--history").args(directory);
        Ok((append_to_wrapper(command, wrapper), temporary_history))
    }
}

fn append_to_wrapper(command: Command, wrapper: Vec<OsString>) -> Command {
    let mut wrapper = wrapper.into_iter();
    let Some(first) = wrapper.next() else {
        return command;
    };
    let inner = command.as_std();
    let mut outer = Command::new(first);
    outer.args(wrapper).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}
