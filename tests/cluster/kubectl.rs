use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use admittance_tests::{Artifacts, Error};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::process::TEST_TIMEOUT;

#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

#[derive(Clone, Debug)]
pub(crate) struct KubectlOutput {
    pub(crate) is_success: bool,
    pub(crate) stdout: String,
    /// The text that kubectl printed to standard error: its error messages, and warnings of the API server.
    pub(crate) stderr: String,
}

impl KubectlOutput {
    /// Returns kubectl's output as JSON.
    ///
    /// # Panics
    ///
    /// Panics if kubectl failed, or its output is not JSON.
    pub(crate) fn json(&self) -> Value {
        assert!(self.is_success, "kubectl failed: {}", self.stderr);
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => unreachable!("the output of kubectl is not JSON ({error}): {}", self.stdout),
        }
    }

    /// Checks that kubectl succeeded.
    ///
    /// # Panics
    ///
    /// Panics if kubectl failed.
    pub(crate) fn assert_success(self) -> Self {
        assert!(self.is_success, "kubectl failed: {}", self.stderr);
        self
    }

    /// Checks that kubectl failed with a message that contains all of these words.
    ///
    /// # Panics
    ///
    /// Panics if kubectl succeeded, or failed with another message.
    pub(crate) fn assert_failure_with(self, words: &[&str]) -> Self {
        assert!(
            !self.is_success,
            "kubectl should have failed with {words:?}, but: {}",
            self.stdout
        );
        for word in words {
            assert!(
                self.stderr.contains(word),
                "`{word}` is not in the output of kubectl: {}",
                self.stderr
            );
        }
        self
    }
}

/// A running kubectl process, which is killed when this is dropped.
pub(crate) struct RunningKubectl {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl RunningKubectl {
    /// Waits for the next line of output that contains `words`, and returns it.
    ///
    /// # Panics
    ///
    /// Panics if there is no such line within the limit.
    pub(crate) async fn wait_for_line(&mut self, words: &str) -> String {
        let lines = self.lines.as_mut().unwrap();
        let reading = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return line;
                }
            }
            unreachable!("kubectl ended before it wrote `{words}`")
        };
        timeout(TEST_TIMEOUT, reading)
            .await
            .unwrap_or_else(|_| unreachable!("kubectl did not write `{words}`"))
    }

    /// Waits until kubectl exits.
    ///
    /// # Panics
    ///
    /// Panics if it does not exit within the limit.
    pub(crate) async fn wait_until_ended(&mut self, limit: Duration) {
        timeout(limit, self.child.wait()).await.unwrap().unwrap();
    }
}

impl Kubectl {
    pub(crate) fn new(home: &Path, kubeconfig: &Path) -> Result<Self, Error> {
        Ok(Self {
            program: Artifacts::kubernetes("kubectl")?,
            kubeconfig: kubeconfig.to_owned(),
            home: home.to_owned(),
        })
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<KubectlOutput, Error> {
        self.run_with_input(arguments, "").await
    }

    /// Returns a kubectl command whose input and output are pipes. Dropping the process kills it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // kubectl must use neither the kubeconfig nor the proxy of the user who runs the test.
        command.env_clear();
        if let Some(path) = env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Result<RunningKubectl, Error> {
        let command_line = format!("kubectl {}", arguments.join(" "));
        let mut child = self.command(arguments).spawn().map_err(Error::io(command_line))?;
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Ok(RunningKubectl { child, lines })
    }

    /// Runs kubectl with these arguments. `input` is its standard input, from which `-f -` reads.
    pub(crate) async fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<KubectlOutput, Error> {
        let error = || Error::io(format!("kubectl {}", arguments.join(" ")));
        let mut child = self.command(arguments).spawn().map_err(error())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A write error means that kubectl has exited early. Its output says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = match timeout(TEST_TIMEOUT, child.wait_with_output()).await {
            Ok(output) => output.map_err(error())?,
            Err(_) => {
                return Err(Error::Never {
                    event: format!("the exit of kubectl {}", arguments.join(" ")),
                    limit: TEST_TIMEOUT,
                    log: String::new(),
                });
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(KubectlOutput {
            is_success: output.status.success(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        })
    }
}
