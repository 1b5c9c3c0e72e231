use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::{Artifacts, Client, Error};

/// Longer than anything takes on a busy machine: it ends a test that would hang.
const NEVER: Duration = Duration::from_secs(120);

/// `admittance serve`, about to be started.
#[derive(Debug)]
pub struct Serve {
    command: Command,
    listen: Option<SocketAddr>,
}

impl Serve {
    /// Serve with this configuration, on ports that the kernel chooses.
    ///
    /// # Errors
    ///
    /// When the program was not built.
    pub fn new(config: impl AsRef<Path>) -> Result<Self, Error> {
        let mut command = Admittance::command()?;
        command
            .args(["serve", "--log-format", "json", "--config"])
            .arg(config.as_ref());
        command.args(["--admin", "127.0.0.1:0"]);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(Self {
            command,
            listen: Some(any_port),
        })
    }

    /// Listen here.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Listen where the configuration says.
    pub fn listen_as_configured(mut self) -> Self {
        self.listen = None;
        self
    }

    /// Forward to this upstream.
    pub fn upstream(self, url: &str) -> Self {
        self.arguments(["--upstream", url])
    }

    /// Keep compiled plugins here.
    pub fn cache(self, directory: impl AsRef<Path>) -> Self {
        self.arguments([OsStr::new("--cache"), directory.as_ref().as_os_str()])
    }

    /// More arguments.
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Start it, and return when it serves.
    ///
    /// # Errors
    ///
    /// When it ends instead.
    pub async fn start(self) -> Result<Admittance, Error> {
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::io("starting admittance"))?;
        let (sender, log) = watch::channel(Log::default());
        if let Some(stderr) = child.stderr.take() {
            let mut lines = BufReader::new(stderr).lines();
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    sender.send_modify(|log| log.lines.push(LogLine::new(line)));
                }
                sender.send_modify(|log| log.ended = true);
            });
        }
        let mut program = Admittance {
            child,
            log,
            listen: None,
            admin: None,
        };
        let serving = program
            .until_logged("the line that it serves", |line| line.message() == "serving")
            .await?;
        program.listen = serving.address("address");
        program.admin = serving.address("admin");
        Ok(program)
    }

    fn command(self) -> Command {
        let Self { mut command, listen } = self;
        if let Some(address) = listen {
            command.args(["--listen", &address.to_string()]);
        }
        command
    }

    /// Run it to its end.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not end.
    pub async fn finish(self) -> Result<Finished, Error> {
        finish(self.command()).await
    }
}

/// The running program. It is killed when it is dropped.
#[derive(Debug)]
pub struct Admittance {
    child: Child,
    log: watch::Receiver<Log>,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Vec<LogLine>,
    ended: bool,
}

impl Log {
    fn text(&self) -> String {
        self.lines
            .iter()
            .map(|line| line.text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// One line of the program's log.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// As it was written.
    pub text: String,
    fields: Value,
}

impl LogLine {
    fn new(text: String) -> Self {
        let fields = serde_json::from_str(&text).unwrap_or_default();
        Self { text, fields }
    }

    /// The line's own sentence.
    pub fn message(&self) -> &str {
        self.field("message")
    }

    /// A text among its fields; empty when there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// All of its fields.
    pub fn fields(&self) -> &Value {
        &self.fields
    }

    fn address(&self, field: &str) -> Option<SocketAddr> {
        self.field(field).parse().ok()
    }
}

/// A program that ran to its end.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Admittance {
    /// The program, without arguments and without the environment that would change what it does.
    ///
    /// # Errors
    ///
    /// When it was not built.
    pub fn command() -> Result<Command, Error> {
        let mut command = Command::new(Artifacts::find()?.program("admittance")?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ADMITTANCE_") {
                command.env_remove(name);
            }
        }
        Ok(command)
    }

    /// Run `admittance` with these arguments to its end.
    ///
    /// # Errors
    ///
    /// When it does not start, or does not end.
    pub async fn run<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Finished, Error> {
        let mut command = Self::command()?;
        command.args(arguments.into_iter().map(Into::into));
        finish(command).await
    }

    /// A path of the front door, over plain HTTP.
    pub fn url(&self, path: &str) -> String {
        Self::at("http", self.listen, path)
    }

    /// A path of the front door, over TLS.
    pub fn tls_url(&self, path: &str) -> String {
        Self::at("https", self.listen, path).replace("127.0.0.1", "localhost")
    }

    /// A path of the operator's endpoints.
    pub fn admin_url(&self, path: &str) -> String {
        Self::at("http", self.admin, path)
    }

    fn at(scheme: &str, address: Option<SocketAddr>, path: &str) -> String {
        match address {
            Some(address) => format!("{scheme}://{address}{path}"),
            // A request to it says what is missing.
            None => format!("{scheme}://not-listening.invalid{path}"),
        }
    }

    /// Tell it to stop, with SIGTERM.
    ///
    /// # Errors
    ///
    /// When it has ended already.
    pub fn terminate(&self) -> Result<(), Error> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = id.ok_or_else(|| Error::Invalid("admittance has ended already".to_owned()))?;
        kill_process(id, Signal::TERM).map_err(|error| Error::io("stopping admittance")(error.into()))
    }

    /// The log so far.
    pub fn log(&self) -> Vec<LogLine> {
        self.log.borrow().lines.clone()
    }

    /// The first line of the log, past or to come, that is the wanted one.
    ///
    /// # Errors
    ///
    /// When the program ends without writing it.
    pub async fn until_logged(
        &mut self,
        what: &str,
        wanted: impl Fn(&LogLine) -> bool,
    ) -> Result<LogLine, Error> {
        until_logged(self.log.clone(), what, wanted).await
    }

    /// As [`until_logged`](Self::until_logged), detached from the borrow of the program.
    pub fn when_logged<F>(
        &self,
        what: &'static str,
        wanted: F,
    ) -> impl Future<Output = Result<LogLine, Error>> + Send + use<F>
    where
        F: Fn(&LogLine) -> bool + Send + Sync + 'static,
    {
        let log = self.log.clone();
        async move { until_logged(log, what, wanted).await }
    }

    /// The metrics of now.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn metrics(&self) -> Result<Metrics, Error> {
        let reply = Client::new()?.get(&self.admin_url("/metrics")).await?;
        Ok(Metrics(reply.text()))
    }

    /// Wait for its end.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub async fn ended(&mut self) -> Result<ExitStatus, Error> {
        match tokio::time::timeout(NEVER, self.child.wait()).await {
            Ok(status) => status.map_err(Error::io("waiting for the program's end")),
            Err(_) => Err(Error::Never {
                what: "the program's end".into(),
                limit: NEVER,
                log: self.log.borrow().text(),
            }),
        }
    }
}

async fn until_logged(
    mut log: watch::Receiver<Log>,
    what: &str,
    wanted: impl Fn(&LogLine) -> bool,
) -> Result<LogLine, Error> {
    let mut read = 0;
    let mut found = None;
    let wait = log.wait_for(|log| {
        found = log.lines.iter().skip(read).find(|line| wanted(line)).cloned();
        read = log.lines.len();
        found.is_some() || log.ended
    });
    let waited = tokio::time::timeout(NEVER, wait)
        .await
        .map(|ended| ended.map(|_| ()));
    let text = || log.borrow().text();
    match (found, waited) {
        (Some(line), _) => Ok(line),
        (None, Ok(_)) => Err(Error::Ended {
            what: what.into(),
            log: text(),
        }),
        (None, Err(_)) => Err(Error::Never {
            what: what.into(),
            limit: NEVER,
            log: text(),
        }),
    }
}

async fn finish(mut command: Command) -> Result<Finished, Error> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match tokio::time::timeout(NEVER, command.output()).await {
        Ok(output) => output.map_err(Error::io("running admittance"))?,
        Err(_) => {
            return Err(Error::Never {
                what: "the program's end".into(),
                limit: NEVER,
                log: String::new(),
            });
        }
    };
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Finished {
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// Metrics in the text form of Prometheus.
#[derive(Clone, Debug)]
pub struct Metrics(String);

impl Metrics {
    /// The sum of the series of this name that have all of these labels; `None` when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut values = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (series_name, series_labels) = series.split_once('{').unwrap_or((series, ""));
            let has = |(key, value): &(&str, &str)| series_labels.contains(&format!("{key}=\"{value}\""));
            (series_name == name && labels.iter().all(has)).then(|| value.parse::<f64>().ok())?
        });
        let first = values.next()?;
        Some(values.fold(first, |sum, value| sum + value))
    }

    /// All of them.
    pub fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_matching_series() {
        let text =
            "# HELP a_total x\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\",y=\"3\"} 4\na_total 1\nb 5\n";
        let metrics = Metrics(text.to_owned());
        let table: [(&str, &[(&str, &str)], Option<f64>); 5] = [
            ("a_total", &[], Some(8.0)),
            ("a_total", &[("x", "1")], Some(7.0)),
            ("a_total", &[("x", "1"), ("y", "3")], Some(4.0)),
            ("a_total", &[("x", "2")], None),
            ("b", &[], Some(5.0)),
        ];
        for (name, labels, expected) in table {
            assert_eq!(metrics.sum(name, labels), expected, "{name} {labels:?}");
        }
    }
}
