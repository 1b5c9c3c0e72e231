//! Reads the requests of a front end, and writes its replies.
//!
//! A [`Dialect`] translates the head and body of an HTTP request into an
//! [`admission::Request`](admittance_admission::Request). It writes an object that chains have changed back into a
//! body. It also writes the reply to a request that ends at the front end, whatever the reason is. It opens no socket
//! and does not block.
//!
//! [`Rest`] is the dialect of JSON APIs whose requests are described by routes in the configuration. [`KubernetesApi`]
//! is the dialect of the Kubernetes API. BCS's dialect is in another crate. The webhook calls of kube-apiserver need no
//! dialect, because nothing is forwarded: each [review](admittance_admission::Review) gets a direct reply.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod dialect;
mod end_reason;
mod kubernetes;
mod list;
mod rest;
mod review;
mod template;
mod warning;

pub use admittance_admission::{Pointer, PointerError, PointerPattern};
pub use dialect::{BodyReading, Class, Dialect, Inspection, StoredQuery};
pub use end_reason::{EndReason, Rejection, RejectionKind, ambiguous_rejection, json_reply, override_rejection};
pub use kubernetes::{ApiTarget, KubernetesApi, ResourceTarget, StoredState};
pub use list::{
    InvalidItemPath, ItemObjectRequest, ItemPath, ItemRequest, ListError, ListPage, ListPages, ListRoute, NextToken,
};
pub use rest::{
    KindSource, PatchType, Rest, RestConfig, RestRoute, RouteError, RouteProblem, StoredRoute, UnmatchedWrites,
    ValueSource,
};
pub use review::{AddressError, ReviewAddress, status_reply, status_with_reason};
pub use warning::append_warnings;
