use std::{
    ffi::OsString,
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::{
    Artifacts, Client, Error,
    log::{ProgramLog, ProgramLogLine, TEST_TIMEOUT, wait_for_log},
    metrics::ScrapedMetrics,
};

/// A running program, which is killed when it is dropped.
#[derive(Debug)]
pub struct Admittance {
    child: Child,
    log: watch::Receiver<ProgramLog>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    _history: Option<TempDir>,
}

#[derive(Clone, Debug)]
pub struct FinishedProgram {
    /// The exit code of the program; `None` if a signal killed it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The interval between two checks of a condition that the program does not announce. A shorter interval would take
/// processor time from the program.
pub const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

/// A position in the log of the program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(usize);

impl Mark {
    pub const START: Self = Self(0);
}

impl Admittance {
    /// Returns a command that starts the program without arguments and without environment variables that affect it.
    pub fn command() -> Result<Command, Error> {
        Ok(Self::command_of(&Artifacts::find()?.program("admittance")?))
    }

    pub(crate) fn command_of(program: &Path) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ADMITTANCE_") {
                command.env_remove(name);
            }
        }
        let rego = Artifacts::find().and_then(|artifacts| artifacts.component("rego"));
        if let Some(directory) = rego.as_deref().ok().and_then(Path::parent) {
            command.env("ADMITTANCE_PLUGINS", directory);
        }
        command
    }

    /// Runs `admittance` with these arguments, and waits until it exits.
    pub async fn run<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<FinishedProgram, Error> {
        let mut command = Self::command()?;
        command.args(arguments.into_iter().map(Into::into));
        finish(command).await
    }

    pub(crate) fn spawn(mut command: Command, history: Option<TempDir>) -> Result<Self, Error> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::io("starting admittance"))?;
        let (sender, log) = watch::channel(ProgramLog::default());
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    sender.send_modify(|log| log.lines.push(ProgramLogLine::new(line)));
                }
                sender.send_modify(|log| log.has_ended = true);
            });
        }
        Ok(Self {
            child,
            log,
            listen: None,
            admin: None,
            _history: history,
        })
    }

    /// Waits until the program's admin port is open. At this time, it may not have loaded all chains and plugins.
    pub async fn wait_until_starting(&mut self) -> Result<(), Error> {
        let starting_line = self
            .wait_for_log("the line that it starts", |line| line.message() == "starting")
            .await?;
        self.admin = starting_line.address("admin");
        Ok(())
    }

    pub async fn wait_until_serving(&mut self) -> Result<(), Error> {
        let serving_line = self
            .wait_for_log("the line that it serves", |line| line.message() == "serving")
            .await?;
        self.listen = serving_line.address("address");
        self.admin = serving_line.address("admin");
        Ok(())
    }

    pub fn url(&self, path: &str) -> String {
        Self::url_at("http", self.listen, path)
    }

    pub fn tls_url(&self, path: &str) -> String {
        Self::url_at("https", self.listen, path).replace("127.0.0.1", "localhost")
    }

    pub fn admin_url(&self, path: &str) -> String {
        Self::url_at("http", self.admin, path)
    }

    fn url_at(scheme: &str, address: Option<SocketAddr>, path: &str) -> String {
        match address {
            Some(address) => format!("{scheme}://{address}{path}"),
            // The program has no address if it does not listen. Then the host in the URL is `not-listening.invalid`,
            // which does not exist, so the error of a request shows the cause.
            None => format!("{scheme}://not-listening.invalid{path}"),
        }
    }

    pub fn id(&self) -> Result<u32, Error> {
        self.child
            .id()
            .ok_or_else(|| Error::Invalid("admittance has ended already".to_owned()))
    }

    pub fn terminate(&self) -> Result<(), Error> {
        self.signal(Signal::TERM)
    }

    /// Suspends the program with SIGSTOP, as if its machine did not react. Its connections stay open.
    pub fn suspend(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let id = Pid::from_raw(self.id()?.cast_signed())
            .ok_or_else(|| Error::Invalid("admittance has no process".to_owned()))?;
        kill_process(id, signal).map_err(|error| Error::io("a signal to admittance")(error.into()))
    }

    pub async fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().await.map_err(Error::io("killing admittance"))
    }

    pub fn resident_memory(&self) -> Result<u64, Error> {
        resident_memory(self.id()?)
    }

    pub fn children(&self) -> Result<Vec<String>, Error> {
        let path = format!("/proc/{}/task", self.id()?);
        let threads = std::fs::read_dir(&path).map_err(Error::io(path.clone()))?;
        let of_thread = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        Ok(of_thread
            .flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect())
    }

    pub fn log(&self) -> Vec<ProgramLogLine> {
        self.log.borrow().lines.clone()
    }

    /// Returns the current end of the program's log.
    pub fn mark(&self) -> Mark {
        Mark(self.log.borrow().lines.len())
    }

    /// Waits for the first line of the log that matches, and returns it. It may have been written before the call.
    pub async fn wait_for_log(
        &mut self,
        event: &str,
        condition: impl Fn(&ProgramLogLine) -> bool,
    ) -> Result<ProgramLogLine, Error> {
        wait_for_log(self.log.clone(), 0, event, condition).await
    }

    /// Waits like [`wait_for_log`](Self::wait_for_log), but only for lines after `mark`.
    pub async fn wait_for_log_after(
        &self,
        mark: Mark,
        event: &str,
        condition: impl Fn(&ProgramLogLine) -> bool,
    ) -> Result<ProgramLogLine, Error> {
        wait_for_log(self.log.clone(), mark.0, event, condition).await
    }

    /// Waits like [`wait_for_log`](Self::wait_for_log), but in a future that does not borrow the program.
    pub fn when_logged<F>(
        &self,
        event: &'static str,
        condition: F,
    ) -> impl Future<Output = Result<ProgramLogLine, Error>> + Send + use<F>
    where
        F: Fn(&ProgramLogLine) -> bool + Send + Sync + 'static,
    {
        let log = self.log.clone();
        async move { wait_for_log(log, 0, event, condition).await }
    }

    pub async fn metrics(&self) -> Result<ScrapedMetrics, Error> {
        let reply = Client::new()?.get(&self.admin_url("/metrics")).await?;
        Ok(ScrapedMetrics(reply.text()))
    }

    /// Returns whether `/readyz` reports that the program is ready.
    pub async fn is_ready(&self) -> bool {
        let request = async { Client::new()?.get(&self.admin_url("/readyz")).await };
        request.await.is_ok_and(|reply| reply.status == 200)
    }

    pub async fn status(&self) -> Result<Value, Error> {
        Client::new()?.get(&self.admin_url("/v1/status")).await?.json()
    }

    /// Requests `/v1/status` repeatedly until its JSON meets a condition.
    pub async fn wait_for_status(
        &self,
        event: &str,
        mut condition: impl FnMut(&Value) -> bool,
    ) -> Result<Value, Error> {
        let client = Client::new()?;
        let url = self.admin_url("/v1/status");
        let mut last = Value::Null;
        let mut turns = tokio::time::interval(POLL_INTERVAL);
        let wait = async {
            loop {
                turns.tick().await;
                last = client.get(&url).await?.json()?;
                if condition(&last) {
                    return Ok(());
                }
            }
        };
        let outcome = tokio::time::timeout(TEST_TIMEOUT, wait).await;
        match outcome {
            Ok(Ok(())) => Ok(last),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Never {
                event: format!("{event} in {last}"),
                limit: TEST_TIMEOUT,
                log: self.log.borrow().text(),
            }),
        }
    }

    /// Waits without a timeout until the program exits.
    pub async fn wait_without_timeout(&mut self) -> Result<ExitStatus, Error> {
        let status = self.child.wait().await;
        status.map_err(Error::io("waiting for the program's end"))
    }

    /// Waits until the program exits, but at most for [`TEST_TIMEOUT`].
    pub async fn wait_for_end(&mut self) -> Result<ExitStatus, Error> {
        match tokio::time::timeout(TEST_TIMEOUT, self.wait_without_timeout()).await {
            Ok(status) => status,
            Err(_) => Err(Error::Never {
                event: "the program's end".into(),
                limit: TEST_TIMEOUT,
                log: self.log.borrow().text(),
            }),
        }
    }
}

/// Returns the resident memory of a process, in bytes.
pub fn resident_memory(process: u32) -> Result<u64, Error> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).map_err(Error::io(path.clone()))?;
    let kilobytes = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .trim()
                .strip_suffix(" kB")?
                .parse::<u64>()
                .ok()
        })
        .ok_or_else(|| Error::Invalid(format!("{path} has no VmRSS")))?;
    Ok(kilobytes * 1024)
}

/// Runs a program without standard input, and waits until it exits.
pub async fn finish(mut command: Command) -> Result<FinishedProgram, Error> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(TEST_TIMEOUT, command.output()).await {
        Ok(output) => output.map_err(Error::io("running admittance"))?,
        Err(_) => {
            return Err(Error::Never {
                event: "the program's end".into(),
                limit: TEST_TIMEOUT,
                log: String::new(),
            });
        }
    };
    let Output { status, stdout, stderr } = output;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(FinishedProgram {
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    })
}
