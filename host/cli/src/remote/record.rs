//! `admittance record`: records a sample of live requests, to replay them.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance::{Redaction, definitions::Share};
use clap::Args;
use indicatif::ProgressBar;
use reqwest::{Method, Response};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    client::{Client, Message},
    connection::Connection,
};
use crate::{
    files, human,
    output::{DIM, GOOD, WARN},
    progress,
};

/// Record requests that pass chains, with their outcomes, for `replay`.
///
/// Each line is an AdmissionReview with request and response. Recording ends after --count requests, when the
/// time is over, or with Ctrl-C. The contents of Secrets are always left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance record -o requests.ndjson --for 10m --share 10%
  admittance record --redact '/spec/containers/*/env/*/value' -o requests.ndjson")]
pub(crate) struct RecordArguments {
    /// The maximum number of requests.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    count: NonZeroUsize,
    /// The maximum time: 30s, 10m, 1h.
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = whole_seconds)]
    time: Duration,
    /// The share of the requests that is recorded: 10%.
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    share: Share,
    /// Leave out the values of objects and patches at this JSON Pointer, in which * stands for every key or
    /// index. May be given more than once.
    #[arg(long, value_name = "POINTER")]
    redact: Vec<Redaction>,
    /// The file to write, which must not exist yet [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration =
        humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s, 10m or 1h"))?;
    match duration.as_secs() {
        1..=3600 if duration.subsec_nanos() == 0 => Ok(duration),
        _ => Err("write whole seconds, from 1s to 1h".to_owned()),
    }
}

impl RecordArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let client = Client::new(&self.connection)?;
        crate::block_on(record(self, &client))?
    }
}

async fn record(arguments: &RecordArguments, client: &Client) -> crate::Result<()> {
    let mut parameters = vec![
        ("count", arguments.count.to_string()),
        ("seconds", arguments.time.as_secs().to_string()),
        ("share", arguments.share.to_string()),
    ];
    let redactions = arguments.redact.iter();
    parameters.extend(redactions.map(|redaction| ("redact", redaction.to_string())));
    let message = Message {
        parameters: &parameters,
        body: None,
    };
    let response = client.open(Method::GET, &["requests"], message).await?;
    // Only now, so that a driver that does not reply leaves no empty file.
    let mut lines = match &arguments.output {
        Some(path) => Lines::new(create(path)?),
        None => Lines::new(Box::new(io::stdout())),
    };
    let bar = progress(arguments);
    let copied = copy(response, client, &mut lines, &bar).await;
    bar.finish_and_clear();
    let place = match &arguments.output {
        Some(path) => format!(" in {}", path.display()),
        None => String::new(),
    };
    let requests = human::count(lines.count, "request");
    anstream::eprintln!("{GOOD}recorded{GOOD:#} {requests}{place}");
    let is_interrupted = copied?;
    if is_interrupted {
        anstream::eprintln!("{DIM}interrupted{DIM:#}");
    }
    if lines.count == 0 {
        anstream::eprintln!("{WARN}note:{WARN:#} no request passed a chain in this time");
    }
    Ok(())
}

/// Requests may contain secrets, so the file is readable only by its owner.
fn create(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(files::SECRET)
        .open(path);
    match file {
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
            "{} already exists; name another file, or remove it",
            path.display()
        )),
        Err(error) => Err(files::at(path)(error)),
    }
}

fn progress(arguments: &RecordArguments) -> ProgressBar {
    let is_visible =
        io::stderr().is_terminal() && (arguments.output.is_some() || !io::stdout().is_terminal());
    if !is_visible {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.count.get() as u64);
    progress::styled(
        bar,
        "{spinner} recording {bar:30} {pos}/{len} {elapsed} (Ctrl-C ends it)",
    )
}

/// Copies the reply until it ends or standard output is closed; returns whether a signal interrupted it.
async fn copy(
    mut response: Response,
    client: &Client,
    lines: &mut Lines,
    bar: &ProgressBar,
) -> crate::Result<bool> {
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.map_err(|error| client.transport(&error))?,
            _ = tokio::signal::ctrl_c() => return Ok(true),
            _ = terminated.recv() => return Ok(true),
        };
        let Some(chunk) = chunk else {
            return Ok(false);
        };
        match lines.take(&chunk) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            taken => taken?,
        }
        bar.set_position(lines.count);
    }
}

/// Writes only complete lines.
struct Lines {
    out: Box<dyn Write + Send>,
    partial: Vec<u8>,
    count: u64,
}

impl Lines {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            partial: Vec::new(),
            count: 0,
        }
    }

    fn take(&mut self, chunk: &[u8]) -> io::Result<()> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.out.write_all(&self.partial)?;
                self.partial.clear();
                self.count += 1;
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clap::Parser;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_complete_lines_are_written() {
        for (chunks, written, count) in [
            (vec!["{}\n{}\n"], "{}\n{}\n", 2),
            (vec!["{", "}", "\n{}\n{"], "{}\n{}\n", 2),
            (vec!["{}"], "", 0),
            (vec!["", "\n"], "\n", 1),
        ] {
            let buffer = Buffer::default();
            let mut lines = Lines::new(Box::new(buffer.clone()));
            for chunk in chunks {
                lines.take(chunk.as_bytes()).unwrap();
            }
            assert_eq!(
                String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap(),
                written
            );
            assert_eq!(lines.count, count);
        }
    }

    #[test]
    fn a_recording_is_private_and_replaces_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.ndjson");
        drop(create(&path).unwrap());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = create(&path).err().unwrap();
        assert!(error.contains("already exists"), "{error}");
        assert!(create(&folder.path().join("none/a")).is_err());
    }

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: RecordArguments,
    }

    #[test]
    fn arguments_are_checked() {
        for (line, is_right) in [
            ("", true),
            (
                "--count 10 --for 5m --share 10% --redact /a/* --redact /b -o a.ndjson",
                true,
            ),
            ("--count 0", false),
            ("--for 0s", false),
            ("--for 2h", false),
            ("--for 1500ms", false),
            ("--for ten", false),
            ("--share 10", false),
            ("--redact a", false),
        ] {
            let words = ["record"].into_iter().chain(line.split_whitespace());
            assert_eq!(Command::try_parse_from(words).is_ok(), is_right, "{line}");
        }
    }
}
