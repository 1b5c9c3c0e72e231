use std::{
    ffi::OsStr,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use admittance_tests::Error;
use tokio::process::{Child, Command};

/// The limit of every wait in the tests. No step takes this long, even on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// A server process of another project, such as etcd, whose output goes to a file. It is killed when this is dropped,
/// or by the kernel when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program that writes its output to `{name}.log` in `directory`.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        directory: &Path,
    ) -> Result<Self, Error> {
        let log = directory.join(format!("{name}.log"));
        let output = File::create(&log).map_err(Error::io(log.display().to_string()))?;
        let errors = output.try_clone().map_err(Error::io(log.display().to_string()))?;
        // setpriv lets the kernel kill the server if this program is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::io(format!("starting {name}")))?;
        Ok(Self { name, child, log })
    }

    pub(crate) async fn kill(&mut self) -> Result<(), Error> {
        self.child
            .kill()
            .await
            .map_err(Error::io(format!("killing {}", self.name)))
    }

    pub(crate) fn log(&self) -> String {
        fs::read(&self.log).map_or_else(
            |error| format!("{}: {error}", self.log.display()),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// Waits until `is_ready` reports that the server is ready. Fails if the server exits before that.
    pub(crate) async fn wait_until_ready<R>(&mut self, mut is_ready: impl FnMut() -> R) -> Result<(), Error>
    where
        R: Future<Output = bool>,
    {
        let begin = Instant::now();
        while !is_ready().await {
            let event = format!("{} to be ready", self.name);
            let exit_status = self.child.try_wait().map_err(Error::io(event.clone()))?;
            if exit_status.is_some() {
                return Err(Error::Ended {
                    event,
                    log: last_lines(&self.log()),
                });
            }
            if begin.elapsed() > TEST_TIMEOUT {
                return Err(Error::Never {
                    event,
                    limit: TEST_TIMEOUT,
                    log: last_lines(&self.log()),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let (_, last) = lines.split_at(lines.len().saturating_sub(40));
    last.join("\n")
}

/// Calls `attempt` until it returns a result, for a state that cannot be watched.
///
/// # Panics
///
/// Panics if no result arrives within [`TEST_TIMEOUT`].
pub(crate) async fn wait_until<T, R>(event: &str, mut attempt: impl FnMut() -> R) -> T
where
    R: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    loop {
        if let Some(result) = attempt().await {
            return result;
        }
        assert!(
            begin.elapsed() < TEST_TIMEOUT,
            "timeout after {TEST_TIMEOUT:?} while waiting for {event}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Chooses free ports, and starts a server on them. Another program may take one of the ports before the server listens
/// on it. Then the server is started again, on other ports.
pub(crate) async fn with_free_ports<const N: usize, T, R>(
    mut start: impl FnMut([SocketAddr; N]) -> R,
) -> Result<T, Error>
where
    R: Future<Output = Result<T, Error>>,
{
    const ATTEMPTS: usize = 5;
    let mut attempt = 1;
    loop {
        match start(free_ports()?).await {
            Err(Error::Ended { log, .. }) if attempt < ATTEMPTS && log.contains("address already in use") => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn free_ports<const N: usize>() -> Result<[SocketAddr; N], Error> {
    let io_error = || Error::io("choosing free ports");
    let mut ports = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    let mut listeners = Vec::with_capacity(N);
    for port in &mut ports {
        let listener = TcpListener::bind(*port).map_err(io_error())?;
        *port = listener.local_addr().map_err(io_error())?;
        // The listeners stay open until all ports are chosen, so that no port is chosen twice.
        listeners.push(listener);
    }
    Ok(ports)
}
