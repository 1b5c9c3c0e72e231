//! Receives requests: from the proxy layer, in AdmissionReviews, and for evaluations.

pub(crate) mod applies;
pub(crate) mod body;
pub(crate) mod evaluate;
pub(crate) mod layer;
pub(crate) mod reviews;
pub(crate) mod stored;
pub(crate) mod trace;
