//! The failure of a call.

use std::fmt;

use jsonptr::PointerBuf;

use crate::{cluster, http};

/// Which of the texts in a request a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Document {
    /// `request.object`.
    Object,
    /// `request.old-object`.
    OldObject,
    /// `request.options`.
    Options,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Document::Object => "the object",
            Document::OldObject => "the old object",
            Document::Options => "the options",
        })
    }
}

/// Why `admit` has no verdict.
///
/// The host counts it as a failure of the plugin and applies the stage's failure policy. To refuse a
/// request, answer [`Response::deny`](crate::Response::deny) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text of the request does not have the shape that the plugin reads it as.
    #[error("{document} is not what this plugin can read: at \"{pointer}\": {message}")]
    Read {
        /// Which text.
        document: Document,
        /// Where in it.
        pointer: PointerBuf,
        /// What is wrong there.
        message: String,
    },
    /// A value of the plugin cannot be written as JSON.
    #[error("the value for \"{pointer}\" cannot be written as JSON: {source}")]
    Write {
        /// Where in the object it was to go.
        pointer: PointerBuf,
        /// Why not.
        source: serde_json::Error,
    },
    /// A typed change has no honest patch, because the type drops or adds elements of a list as it
    /// reads it.
    #[error(
        "no patch can be made for the list at \"{pointer}\": it has {original} elements, and {read} in the plugin's type; \
         read all of them, or build the patch with `Patch`"
    )]
    ListNotKept {
        /// Where the list is.
        pointer: PointerBuf,
        /// Its length in the request.
        original: usize,
        /// Its length as the type read it.
        read: usize,
    },
    /// The control plane's resources could not be read.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// A request could not be sent.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// The plugin's own.
    #[error("{0}")]
    Plugin(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Any error, or a sentence, as the failure of this call.
    ///
    /// ```
    /// use admittance_sdk::Error;
    ///
    /// fn count(text: &str) -> Result<u32, Error> {
    ///     text.parse().map_err(Error::other)
    /// }
    /// assert_eq!(count("x").unwrap_err().to_string(), "invalid digit found in string");
    /// assert_eq!(Error::other("the table is empty").to_string(), "the table is empty");
    /// ```
    pub fn other(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Plugin(cause.into())
    }
}
