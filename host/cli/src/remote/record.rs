//! `admittance record`: records a sample of live requests, for a replay.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance::{Redaction, definitions::Share};
use admittance_definitions::document::to_yaml;
use admittance_net::client::ClientResponse;
use clap::Args;
use http::Method;
use indicatif::ProgressBar;
use serde_json::{Map, json};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    client::{AdminClient, Message},
    connection::DriverConnection,
};
use crate::{
    files, human,
    output::{DIM, GOOD, WARN},
    progress,
    replay::recorded,
};

/// Record requests that match a chain, with the chain's answers, for `replay`.
///
/// Each line of the recording is an AdmissionReview with request and response. Recording ends after --count requests,
/// when the time is over, or with Ctrl-C. The contents of Secrets are always left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance record -o requests.ndjson --for 10m --share 10%
  admittance record --redact '/spec/containers/*/env/*/value' -o requests.ndjson
  admittance record --count 20 --as-tests tests/")]
pub(crate) struct RecordArguments {
    /// The maximum number of requests to record.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    count: NonZeroUsize,
    /// The maximum duration of the recording, such as 30s, 10m or 1h.
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = whole_seconds)]
    time: Duration,
    /// The share of the matching requests that is recorded, such as 10%.
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    share: Share,
    /// Leave out the values of objects and patches at this JSON Pointer, in which * stands for every key or
    /// index. May be given more than once.
    #[arg(long, value_name = "POINTER")]
    redact: Vec<Redaction>,
    /// The file to write, which must not exist yet [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write cases for `test` into this directory: recorded.yaml, which expects the recorded answers, and
    /// recorded.ndjson with the requests.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "output")]
    as_tests: Option<PathBuf>,
    #[command(flatten)]
    connection: DriverConnection,
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let duration = crate::arguments::duration(text)?;
    match duration.as_secs() {
        1..=3600 if duration.subsec_nanos() == 0 => Ok(duration),
        _ => Err("write whole seconds, from 1s to 1h".to_owned()),
    }
}

impl RecordArguments {
    fn output_path(&self) -> Option<PathBuf> {
        self.as_tests
            .as_ref()
            .map(|directory| directory.join("recorded.ndjson"))
            .or_else(|| self.output.clone())
    }

    pub(crate) fn run(&self) -> crate::Result<()> {
        crate::block_on(record(self, &AdminClient::new(&self.connection)?))?
    }
}

async fn record(arguments: &RecordArguments, client: &AdminClient) -> crate::Result<()> {
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
    // The file is created only after the driver's reply, so that a refusal leaves no empty file.
    let output = arguments.output_path();
    if let Some(directory) = &arguments.as_tests {
        fs::create_dir_all(directory).map_err(files::error_at(directory))?;
    }
    let mut lines = match &output {
        Some(path) => CompleteLines::new(create_output(path)?),
        None => CompleteLines::new(Box::new(io::stdout())),
    };
    let bar = progress_bar(arguments);
    let copy_result = copy_lines(response, client, &mut lines, &bar).await;
    bar.finish_and_clear();
    let destination = match &output {
        Some(path) => format!(" in {}", path.display()),
        None => String::new(),
    };
    let requests = human::count(lines.count, "request");
    anstream::eprintln!("{GOOD}recorded{GOOD:#} {requests}{destination}");
    let is_interrupted = copy_result?;
    if is_interrupted {
        anstream::eprintln!("{DIM}interrupted{DIM:#}");
    }
    if lines.count == 0 {
        anstream::eprintln!("{WARN}note:{WARN:#} no request matched a chain in this time");
    } else if let (Some(_), Some(path)) = (&arguments.as_tests, &output) {
        let cases = path.with_extension("yaml");
        files::replace_file(&cases, test_cases(path)?.as_bytes(), files::SECRET_MODE)?;
        anstream::eprintln!("{GOOD}wrote{GOOD:#} their cases in {}", cases.display());
    }
    Ok(())
}

/// Returns test cases that expect the recorded answers. A case for a redacted request does not check the patch and the
/// message, because they may depend on values that are no longer in the recording.
fn test_cases(path: &Path) -> Result<String, String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut cases = Vec::new();
    for recorded_request in recorded::open_recording(path)? {
        let recorded = recorded_request?;
        let (request, answer) = (&recorded.request, recorded.recorded_answer()?);
        let object = human::object_name(request.namespace.as_deref(), &request.name);
        let mut expect = Map::new();
        expect.insert("allowed".to_owned(), answer.allowed.into());
        expect.insert("warnings".to_owned(), json!(answer.warnings));
        if !recorded.is_redacted {
            if answer.allowed {
                let patch = answer.patch.unwrap_or_else(|| json!([]));
                expect.insert("patch".to_owned(), patch);
            }
            if let Some(message) = answer.message {
                expect.insert("message".to_owned(), message.into());
            }
            if let Some(code) = answer.code {
                expect.insert("code".to_owned(), code.into());
            }
        }
        cases.push(json!({
            "name": format!("{}: {} of {} {object}", recorded.number, request.operation, request.kind),
            "request": {"recording": file, "number": recorded.number},
            "expect": expect,
        }));
    }
    Ok(to_yaml(&json!({"cases": cases})))
}

/// Creates a file that only its owner can read, because requests may contain secrets.
fn create_output(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    match admittance_watch::file::create_private(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
            "{} already exists; name another file, or remove it",
            path.display()
        )),
        Err(error) => Err(files::error_at(path)(error)),
    }
}

fn progress_bar(arguments: &RecordArguments) -> ProgressBar {
    let is_visible = io::stderr().is_terminal() && (arguments.output_path().is_some() || !io::stdout().is_terminal());
    if !is_visible {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(arguments.count.get() as u64);
    progress::with_style(
        bar,
        "{spinner} recording {bar:30} {pos}/{len} {elapsed} (Ctrl-C ends it)",
    )
}

/// Copies the reply until it ends, standard output is closed, or a signal arrives. Returns whether one arrived.
async fn copy_lines(
    mut response: ClientResponse,
    client: &AdminClient,
    lines: &mut CompleteLines,
    bar: &ProgressBar,
) -> crate::Result<bool> {
    let mut terminate_signal = signal(SignalKind::terminate())?;
    loop {
        let chunk = tokio::select! {
            chunk = response.chunk() => chunk.map_err(|error| client.transport_error(&error))?,
            _ = tokio::signal::ctrl_c() => return Ok(true),
            _ = terminate_signal.recv() => return Ok(true),
        };
        let Some(chunk) = chunk else {
            return Ok(false);
        };
        match lines.write_complete_lines(&chunk) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            result => result?,
        }
        bar.set_position(lines.count);
    }
}

struct CompleteLines {
    out: Box<dyn Write + Send>,
    partial: Vec<u8>,
    count: u64,
}

impl CompleteLines {
    fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            partial: Vec::new(),
            count: 0,
        }
    }

    fn write_complete_lines(&mut self, chunk: &[u8]) -> io::Result<()> {
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
    fn only_complete_lines_of_a_recording_are_written() {
        for (chunks, expected_text, count) in [
            (vec!["{}\n{}\n"], "{}\n{}\n", 2),
            (vec!["{", "}", "\n{}\n{"], "{}\n{}\n", 2),
            (vec!["{}"], "", 0),
            (vec!["", "\n"], "\n", 1),
        ] {
            let buffer = Buffer::default();
            let mut lines = CompleteLines::new(Box::new(buffer.clone()));
            for chunk in chunks {
                lines.write_complete_lines(chunk.as_bytes()).unwrap();
            }
            assert_eq!(
                String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap(),
                expected_text
            );
            assert_eq!(lines.count, count);
        }
    }

    #[test]
    fn a_recording_is_private_and_overwrites_no_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.ndjson");
        drop(create_output(&path).unwrap());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = create_output(&path).err().unwrap();
        assert!(error.contains("already exists"), "{error}");
        assert!(create_output(&folder.path().join("none/a")).is_err());
    }

    #[test]
    fn test_cases_from_a_recording_expect_the_recorded_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recorded.ndjson");
        let review = |name: &str, redacted: u64, response: &str| {
            format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE",
                "kind":{{"group":"","version":"v1","kind":"Pod"}},"name":"{name}","namespace":"shop",
                "object":{{"kind":"Pod"}}}},"response":{response},
                "recording":{{"at":"2026-01-01T00:00:00Z","revision":1,"redacted":{redacted}}}}}"#
            )
        };
        let patched_response =
            r#"{"uid":"u","allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"}"#;
        let refused_response = r#"{"uid":"u","allowed":false,"status":{"code":403,"message":"no"},"warnings":["old"]}"#;
        let texts = [
            review("a", 0, patched_response),
            review("b", 0, refused_response),
            review("c", 2, patched_response),
        ];
        std::fs::write(&path, texts.join("\n")).unwrap();
        let cases = test_cases(&path).unwrap();
        let cases = admittance_definitions::document::to_json("cases.yaml", &cases).unwrap();
        let case = |number: u64, name: &str, expect: serde_json::Value| {
            json!({"name": format!("{number}: CREATE of v1/Pod shop/{name}"),
                   "request": {"recording": "recorded.ndjson", "number": number}, "expect": expect})
        };
        assert_eq!(
            cases["cases"],
            json!([
                case(
                    1,
                    "a",
                    json!({"allowed": true, "warnings": [], "patch": [{"op": "add", "path": "/a", "value": 1}]})
                ),
                case(
                    2,
                    "b",
                    json!({"allowed": false, "warnings": ["old"], "message": "no", "code": 403})
                ),
                case(3, "c", json!({"allowed": true, "warnings": []})),
            ])
        );
    }

    #[test]
    fn invalid_arguments_of_record_are_refused() {
        crate::assert_acceptance(&[
            ("record", true),
            (
                "record --count 10 --for 5m --share 10% --redact /a/* --redact /b -o a.ndjson",
                true,
            ),
            ("record --as-tests tests/", true),
            ("record --as-tests tests/ -o a.ndjson", false),
            ("record --count 0", false),
            ("record --for 0s", false),
            ("record --for 2h", false),
            ("record --for 1500ms", false),
            ("record --for ten", false),
            ("record --share 10", false),
            ("record --redact a", false),
        ]);
    }
}
