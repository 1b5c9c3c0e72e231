//! `admittance record`: a sample of live requests, to replay them.

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
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, Response};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    client::{Client, Sent},
    connection::Connection,
};
use crate::{
    human,
    output::{DIM, GOOD, ODD},
};

/// Record requests that pass chains, with what the chains said, for `replay`.
///
/// They are written as they come, an AdmissionReview with request and response on each line, until there
/// are as many as asked for, the time is over, or Ctrl-C. What Secrets hold is always left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance record -o requests.ndjson --for 10m --share 10%
  admittance record --redact '/spec/containers/*/env/*/value' -o requests.ndjson")]
pub(crate) struct RecordArguments {
    /// How many requests at most.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    count: NonZeroUsize,
    /// For how long at most: 30s, 10m, 1h.
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = whole_seconds)]
    time: Duration,
    /// The share of the requests that is taken: 10%.
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    share: Share,
    /// Leave out the values of objects and patches that this JSON Pointer leads to, in which * stands for
    /// every key or index. May be given again.
    #[arg(long, value_name = "POINTER")]
    redact: Vec<Redaction>,
    /// The file to write, which must not be there [default: standard output].
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

pub(crate) fn run(arguments: &RecordArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    crate::block_on(record(arguments, &client))?
}

async fn record(arguments: &RecordArguments, client: &Client) -> crate::Result<()> {
    let mut query = vec![
        ("count", arguments.count.to_string()),
        ("seconds", arguments.time.as_secs().to_string()),
        ("share", arguments.share.to_string()),
    ];
    query.extend(
        arguments
            .redact
            .iter()
            .map(|redaction| ("redact", redaction.to_string())),
    );
    let sent = Sent {
        query: &query,
        body: None,
    };
    let response = client.open(Method::GET, &["requests"], sent).await?;
    // Only now, so that a driver that does not answer leaves no empty file.
    let mut lines = match &arguments.output {
        Some(path) => Lines::new(create(path)?),
        None => Lines::new(Box::new(io::stdout())),
    };
    let bar = progress(arguments);
    let ended = copy(response, client, &mut lines, &bar).await;
    bar.finish_and_clear();
    let place = match &arguments.output {
        Some(path) => format!(" in {}", path.display()),
        None => String::new(),
    };
    let requests = human::count(lines.count, "request", "requests");
    anstream::eprintln!("{GOOD}recorded{GOOD:#} {requests}{place}");
    if ended? == Ended::Interrupted {
        anstream::eprintln!("{DIM}interrupted{DIM:#}");
    }
    if lines.count == 0 {
        anstream::eprintln!("{ODD}note:{ODD:#} no request passed a chain meanwhile");
    }
    Ok(())
}

/// Requests can hold secrets, so the file is its owner's.
fn create(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match file {
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
            "{} is there already; name another file, or remove it",
            path.display()
        )),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn progress(arguments: &RecordArguments) -> ProgressBar {
    let is_seen = io::stderr().is_terminal() && (arguments.output.is_some() || !io::stdout().is_terminal());
    if !is_seen {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.count.get() as u64);
    let template = "{spinner} recording {bar:30} {pos}/{len} {elapsed} (Ctrl-C ends it)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The requested number was recorded, the time is over, or standard output was closed.
    Complete,
    /// By Ctrl-C or another stop signal.
    Interrupted,
}

async fn copy(
    mut response: Response,
    client: &Client,
    lines: &mut Lines,
    bar: &ProgressBar,
) -> crate::Result<Ended> {
    let mut terminated = signal(SignalKind::terminate())?;
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.map_err(|error| client.transport(&error))?,
            _ = tokio::signal::ctrl_c() => return Ok(Ended::Interrupted),
            _ = terminated.recv() => return Ok(Ended::Interrupted),
        };
        let Some(chunk) = chunk else {
            return Ok(Ended::Complete);
        };
        match lines.take(&chunk) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Ended::Complete),
            taken => taken?,
        }
        bar.set_position(lines.count);
    }
}

/// Writes whole lines alone: what was broken off is no request.
struct Lines {
    out: Box<dyn Write + Send>,
    begun: Vec<u8>,
    count: u64,
}

impl Lines {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            begun: Vec::new(),
            count: 0,
        }
    }

    fn take(&mut self, chunk: &[u8]) -> io::Result<()> {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.out.write_all(&self.begun)?;
                self.begun.clear();
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
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whole_lines_are_written_however_they_come() {
        for (chunks, written, count) in [
            (vec!["{}\n{}\n"], "{}\n{}\n", 2),
            (vec!["{", "}", "\n{}\n{"], "{}\n{}\n", 2),
            (vec!["{}"], "", 0),
            (vec!["", "\n"], "\n", 1),
        ] {
            let kept = Kept::default();
            let mut lines = Lines::new(Box::new(kept.clone()));
            for chunk in chunks {
                lines.take(chunk.as_bytes()).unwrap();
            }
            assert_eq!(
                String::from_utf8(kept.0.lock().unwrap().clone()).unwrap(),
                written
            );
            assert_eq!(lines.count, count);
        }
    }

    #[test]
    fn a_recording_is_its_owners_and_replaces_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.ndjson");
        drop(create(&path).unwrap());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = create(&path).err().unwrap();
        assert!(error.contains("is there already"), "{error}");
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
