//! Writes JSON lines to a file or to standard output.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use admittance::{DecisionDetail, admission::async_trait};
use admittance_watch::file;
use futures_util::FutureExt;
use tokio::{
    io::AsyncWriteExt,
    signal::unix::{Signal, SignalKind, signal},
};

use super::{DecisionSink, SinkError, json_lines};
use crate::decisions::config::NdjsonTarget;

#[derive(Debug)]
pub(super) enum Ndjson {
    StandardOutput,
    File(LogFile),
}

/// The file to which lines are appended. It is reopened at SIGHUP, and if log rotation has renamed it without a SIGHUP.
#[derive(Debug)]
pub(super) struct LogFile {
    path: Arc<Path>,
    open_file: Option<File>,
    hangup: Signal,
}

impl Ndjson {
    pub(super) async fn open(destination: NdjsonTarget) -> Result<Self, SinkError> {
        let path = match destination {
            NdjsonTarget::StandardOutput => return Ok(Self::StandardOutput),
            NdjsonTarget::File(path) => path,
        };
        let file_error = |source| SinkError::File {
            path: path.clone(),
            source,
        };
        let mut file = LogFile {
            path: path.as_path().into(),
            open_file: None,
            hangup: signal(SignalKind::hangup()).map_err(file_error)?,
        };
        // A file that cannot be written must be an error when the program starts.
        file.write(Vec::new()).await?;
        Ok(Self::File(file))
    }
}

#[async_trait]
impl DecisionSink for Ndjson {
    fn name(&self) -> &'static str {
        "ndjson"
    }

    async fn write(&mut self, batch: &[DecisionDetail]) -> Result<(), SinkError> {
        let lines = json_lines(batch)?;
        match self {
            Self::StandardOutput => {
                let mut out = tokio::io::stdout();
                let writing = async {
                    out.write_all(&lines).await?;
                    out.flush().await
                };
                writing.await.map_err(SinkError::StandardOutput)
            }
            Self::File(file) => file.write(lines).await,
        }
    }
}

impl LogFile {
    async fn write(&mut self, lines: Vec<u8>) -> Result<(), SinkError> {
        let mut open = self.open_file.take();
        if self.hangup.recv().now_or_never().is_some() {
            open = None;
        }
        let path = self.path.clone();
        let writing = tokio::task::spawn_blocking(move || append(&path, open, &lines));
        let outcome = writing.await.map_err(io::Error::other);
        let file = outcome.flatten().map_err(|source| SinkError::File {
            path: self.path.to_path_buf(),
            source,
        })?;
        self.open_file = Some(file);
        Ok(())
    }
}

/// Appends the lines to the file at `path`. If not all lines can be written, the file keeps none of them. `open_file`
/// is the file that was opened for earlier lines. That file is used again if `path` still leads to it. If log rotation
/// has renamed the file, `path` is opened again.
fn append(path: &Path, open: Option<File>, lines: &[u8]) -> io::Result<File> {
    let mut file = match open.filter(|file| is_file_at(path, file)) {
        Some(file) => file,
        None => file::open_for_appending(path)?,
    };
    let before = file.metadata()?.len();
    if let Err(error) = file.write_all(lines) {
        // After this error, the caller writes the whole batch again. Lines that were already written are therefore
        // removed from the file.
        let _ = file.set_len(before);
        return Err(error);
    }
    Ok(file)
}

/// Returns whether this path leads to the open file. If log rotation has renamed the file, it does not.
fn is_file_at(path: &Path, file: &File) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    match (path.metadata(), file.metadata()) {
        (Ok(path_metadata), Ok(file_metadata)) => identity(path_metadata) == identity(file_metadata),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_is_reopened_after_it_was_renamed_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("a.ndjson"), folder.path().join("a.ndjson.1"));
        let file = append(&path, None, b"1\n").unwrap();
        let file = append(&path, Some(file), b"2\n").unwrap();
        std::fs::rename(&path, &rotated).unwrap();
        let file = append(&path, Some(file), b"3\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        append(&path, Some(file), b"4\n").unwrap();
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "1\n2\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "4\n");
        let mode = path.metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn json_lines_are_appended_only_to_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(append(folder.path(), None, b"1\n").is_err());
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        assert!(append(&pipe, None, b"1\n").is_err());
    }
}
