//! Recorded requests in a file, with their responses.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use admittance::{RecordingNote, admission::Request};
use admittance_dialect::read_review;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{Answer, AnswerError, Response};

/// A recorded request.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Its number in the file, from 1.
    pub(super) number: u64,
    pub(super) request: Request,
    /// Whether values of it were redacted.
    pub(super) is_redacted: bool,
    response: Option<Response>,
    file: PathBuf,
}

/// Why requests of a file cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordedError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: request {number}: {problem}; give a file written by `admittance record`, or \
    AdmissionReviews", path.display())]
    Wrong {
        path: PathBuf,
        number: u64,
        problem: String,
    },
    #[error(
        "{}: request {number} has no response to compare with; name the chains to compare with: --against CHAINS",
        path.display()
    )]
    Unanswered { path: PathBuf, number: u64 },
    #[error("{}: request {number}: its response cannot be compared: {source}", path.display())]
    Answer {
        path: PathBuf,
        number: u64,
        source: AnswerError,
    },
}

/// The fields of a review besides the request.
#[derive(Deserialize)]
struct ReviewExtras {
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    recording: Option<RecordingNote>,
}

/// The requests of a file, one at a time.
pub(super) fn open(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Recorded, RecordedError>>, RecordedError> {
    let path = path.to_owned();
    let file = File::open(&path).map_err(|source| RecordedError::Unreadable {
        path: path.clone(),
        source,
    })?;
    let texts = serde_json::Deserializer::from_reader(BufReader::new(file)).into_iter::<Box<RawValue>>();
    Ok((1..).zip(texts).map(move |(number, text)| {
        let wrong = |problem: String| RecordedError::Wrong {
            path: path.clone(),
            number,
            problem,
        };
        let text = text.map_err(|error| wrong(error.to_string()))?;
        let review = read_review(text.get().as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let extras: ReviewExtras =
            serde_json::from_str(text.get()).map_err(|error| wrong(error.to_string()))?;
        Ok(Recorded {
            number,
            request: review.request,
            is_redacted: extras.recording.is_some_and(|note| note.redacted > 0),
            response: extras.response,
            file: path.clone(),
        })
    }))
}

impl Recorded {
    /// The recorded answer.
    pub(super) fn answer(&self) -> Result<Answer, RecordedError> {
        let (path, number) = (self.file.clone(), self.number);
        match &self.response {
            None => Err(RecordedError::Unanswered { path, number }),
            Some(response) => Answer::of_response(&self.request, response)
                .map_err(|source| RecordedError::Answer { path, number, source }),
        }
    }
}
