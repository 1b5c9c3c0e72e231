//! The addresses at which kube-apiserver calls webhooks, and the replies for calls that are not valid reviews.

mod address;
mod reply;

pub use address::{AddressError, ReviewAddress};
pub(crate) use reply::refusal_reply;
pub use reply::{status_reply, status_with_reason};
