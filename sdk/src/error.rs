//! The reasons why `admit` fails without a verdict.

use std::fmt;

use jsonptr::PointerBuf;

use crate::{cluster, http};

/// A JSON document in the request. An error names the document in which it occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Document {
    /// The document `request.object`.
    Object,
    /// The document `request.old-object`.
    OldObject,
    /// The document `request.options`.
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

/// The reasons why `admit` returns no verdict.
///
/// The host counts such a call as a failure of the plugin and applies the stage's failure policy. To deny a request,
/// return [`Response::deny`](crate::Response::deny) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document of the request cannot be parsed as the plugin's type.
    #[error("{document} cannot be parsed as the plugin's type: at \"{pointer}\": {message}")]
    Read {
        /// The document that cannot be parsed.
        document: Document,
        /// The path of the invalid value in the document.
        pointer: PointerBuf,
        /// The problem with the invalid value.
        message: String,
    },
    /// A value of the plugin cannot be serialized as JSON.
    #[error("the value for \"{pointer}\" cannot be serialized as JSON: {source}")]
    Write {
        /// The path in the object to which the value belongs.
        pointer: PointerBuf,
        /// The error that the serializer reported.
        source: serde_json::Error,
    },
    /// A typed change cannot be converted to a patch, because the plugin's type drops or adds elements of a list when
    /// the object is parsed.
    #[error(
        "no patch can be built for the list at \"{pointer}\": it has {original} elements, but {read} in the plugin's type; \
         parse all of them, or build the patch with `Patch`"
    )]
    ListNotKept {
        /// The path of the list in the object.
        pointer: PointerBuf,
        /// The number of elements that the list has in the object of the request.
        original: usize,
        /// The number of elements of the list after the object is parsed as the plugin's type.
        read: usize,
    },
    /// The plugin could not read resources of the control plane.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// An HTTP request of the plugin failed.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// An error that the plugin itself reports.
    #[error("{0}")]
    Plugin(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Makes any error, or a message, the failure of this call.
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
