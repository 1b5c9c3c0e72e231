//! Reads recorded requests and their responses from a file.

use std::{fmt::Display, io::BufReader, path::Path};

use admittance::{
    RecordingNote, Redacted,
    admission::{Request, read_review},
};
use admittance_cluster::ManifestFiles;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{RecordedResponse, ReplayAnswer};
use crate::{files, simulation::RequestSurroundings};

#[derive(Debug)]
pub(crate) struct RecordedAdmission {
    pub(crate) number: u64,
    pub(crate) request: Request,
    /// The recorded results of the plugins' lookups and HTTP requests.
    pub(crate) surroundings: RequestSurroundings,
    pub(crate) is_redacted: bool,
    response: Option<RecordedResponse>,
    /// The file of the recording and the number of the request in it.
    location: String,
}

#[derive(Deserialize)]
struct ReviewExtras {
    #[serde(default)]
    response: Option<RecordedResponse>,
    #[serde(default)]
    recording: Option<RecordingNote>,
}

pub(crate) fn open_recording(path: &Path) -> Result<impl Iterator<Item = Result<RecordedAdmission, String>>, String> {
    let file = files::open(path)?;
    let texts = serde_json::Deserializer::from_reader(BufReader::new(file)).into_iter::<Box<RawValue>>();
    Ok((1..).zip(texts).map(move |(number, text)| {
        let location = format!("{}: request {number}", path.display());
        let invalid = |error: &dyn Display| {
            format!("{location}: {error}; give a file written by `admittance record`, or AdmissionReviews")
        };
        let text = text.map_err(|error| invalid(&error))?;
        let review = read_review(text.get().to_owned()).map_err(|error| invalid(&error))?;
        let extras: ReviewExtras = serde_json::from_str(text.get()).map_err(|error| invalid(&error))?;
        let mut surroundings = RequestSurroundings::default();
        let mut is_redacted = false;
        if let Some(note) = extras.recording {
            is_redacted = note.redacted > 0;
            surroundings.http = Some(note.http.into_iter().map(Redacted::into_inner).collect());
            let objects = note
                .cluster
                .map(|objects| objects.into_iter().map(Redacted::into_inner));
            let cluster = objects.map(ManifestFiles::new).transpose();
            surroundings.cluster = cluster.map_err(|error| invalid(&error))?;
        }
        Ok(RecordedAdmission {
            number,
            request: review.request,
            surroundings,
            is_redacted,
            response: extras.response,
            location,
        })
    }))
}

impl RecordedAdmission {
    pub(crate) fn recorded_answer(&self) -> Result<ReplayAnswer, String> {
        let location = &self.location;
        let response = self.response.as_ref().ok_or_else(|| {
            format!("{location} has no response to compare with; name the chains to compare with: --against CHAINS")
        })?;
        ReplayAnswer::from_response(&self.request, response)
            .map_err(|error| format!("{location}: its response cannot be compared: {error}"))
    }
}
