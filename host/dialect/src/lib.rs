//! Reads the requests of a front end and writes the replies.
//!
//! A [`Dialect`] implements one control plane's way of writing: [`Rest`] any JSON API that rules in the configuration
//! describe, [`KubernetesApi`] the API of Kubernetes; the dialect of BCS is in a crate of its own. kube-apiserver's
//! webhooks are different: they have no upstream, so [reviews](admittance_admission::Review) are read and answered.
//!
//! A dialect turns the head and the body of an HTTP request into an
//! [`admission::Request`](admittance_admission::Request), a changed object back into a body, and everything that can
//! end a request at the front end into a reply.
//!
//! Nothing here opens a socket or blocks: a dialect is a set of plain functions.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod dialect;
mod end;
mod kubernetes;
mod list;
mod rest;
mod review;
mod template;
mod warning;

pub use admittance_admission::{Pattern, Pointer, PointerError};
pub use dialect::{Class, Dialect, Inspection, Reading, StoredQuery};
pub use end::{End, Rejection, RejectionKind, ambiguous, json_reply, overridden};
pub use kubernetes::{KubernetesApi, ResourceTarget, StoredState, Target};
pub use list::{
    InvalidItemPath, ItemPath, ItemRequest, ListError, ListPage, ListPages, ListRoute, NextToken, ObjectPlace,
};
pub use rest::{
    KindSource, PlainPatch, Rest, RestConfig, Route, RouteError, RouteProblem, StoredRoute, Unmatched,
    ValueSource,
};
pub use review::{AddressError, ReviewAddress, status_reply, status_with_reason};
pub use warning::append_warnings;
