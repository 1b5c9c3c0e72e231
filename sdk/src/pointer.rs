//! JSON Pointers (RFC 6901), built from segments.

pub use jsonptr::{Pointer, PointerBuf};

/// Builds a JSON Pointer from its segments: names and indexes, each escaped as RFC 6901 requires. `pointer![base; ...]`
/// appends segments to another pointer.
///
/// ```
/// use admittance_sdk::pointer;
///
/// let index = 2;
/// assert_eq!(pointer!["spec", "containers", index, "image"].as_str(), "/spec/containers/2/image");
/// assert_eq!(pointer!["metadata", "annotations", "example.com/team"].as_str(), "/metadata/annotations/example.com~1team");
/// assert_eq!(pointer![].as_str(), "");
///
/// let spec = pointer!["spec", "template", "spec"];
/// let image = pointer![spec; "containers", 0, "image"];
/// assert_eq!(image.as_str(), "/spec/template/spec/containers/0/image");
/// assert_eq!(spec.concat(&pointer!["volumes"]).as_str(), "/spec/template/spec/volumes");
/// ```
#[macro_export]
macro_rules! pointer {
    () => { $crate::PointerBuf::new() };
    ($base:expr; $($segment:expr),+ $(,)?) => {{
        let mut pointer = ::core::convert::AsRef::<$crate::Pointer>::as_ref(&$base).to_buf();
        $(pointer.push_back($segment);)+
        pointer
    }};
    ($($segment:expr),+ $(,)?) => {{
        let mut pointer = $crate::PointerBuf::new();
        $(pointer.push_back($segment);)+
        pointer
    }};
}

/// Converts a path of `serde_path_to_error` to a JSON Pointer, up to the first segment of the path that is unknown.
pub(crate) fn from_path(path: &serde_path_to_error::Path) -> PointerBuf {
    use serde_path_to_error::Segment;
    let mut pointer = PointerBuf::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => pointer.push_back(*index),
            Segment::Map { key } => pointer.push_back(key.as_str()),
            Segment::Enum { variant } => pointer.push_back(variant.as_str()),
            // serde does not report the path inside of a value with `#[serde(untagged)]` or `#[serde(flatten)]`. So the
            // pointer ends at the last part of the path that is known.
            Segment::Unknown => break,
        }
    }
    pointer
}

/// Returns the message of `serde_json` without its line and column, because these do not refer to the operator's file.
pub(crate) fn message(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    if error.line() > 0
        && let Some(end) = message.rfind(" at line ")
    {
        message.truncate(end);
    }
    message
}
