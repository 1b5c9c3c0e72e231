//! How a front door reads requests and writes replies.
//!
//! A [`Dialect`] knows one control plane's way of writing: [`Bcs`] the BCS Mesos driver's, [`Rest`] any
//! JSON API that rules in the configuration describe. kube-apiserver's webhooks are another matter: nothing
//! is behind them, and [`Review`]s are read, answered, and done.
//!
//! A dialect turns the head and the body of an HTTP request into an
//! [`admission::Request`](admittance_admission::Request), a changed object back into a body, and everything
//! that can end a request at the front door into a reply.
//!
//! Nothing here opens a socket or waits: a dialect is a set of plain functions.

pub mod bcs;
mod dialect;
mod end;
mod forwarding;
mod path;
mod rest;
mod review;
mod warning;

pub use admittance_admission::{Pattern, Pointer, PointerError};
pub use bcs::{Bcs, Cluster, InvalidCluster};
pub use dialect::{Class, Dialect, Inspection, Reading};
pub use end::{End, Rejection, RejectionKind};
pub use forwarding::{Forwarding, NextBody, OtherServer, Relay, Rewritten};
pub use rest::{KindSource, Rest, RestConfig, Route, RouteError, RouteProblem, Unmatched, ValueSource};
pub use review::{AddressError, Review, ReviewAddress, ReviewError, read_review, status_reply, write_review};
pub use warning::append_warnings;
