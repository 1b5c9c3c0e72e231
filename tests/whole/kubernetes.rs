//! Admittance as the admission webhook of a Kubernetes API server.
//!
//! `recorded` sends it what a real kube-apiserver sent to a webhook. `http`, `stopping` and `deadlines`
//! test how it answers as a server. `conformance` contains the list of what kube-apiserver's own tests of
//! admission webhooks check, with the status of each row here; there and in `documents`, Admittance reads
//! webhook configurations of Kubernetes and is itself the caller of a webhook server in the test. `policies` runs
//! policies of Kubewarden.

mod conformance;
mod deadlines;
mod documents;
mod hooks;
mod http;
mod policies;
mod recorded;
mod server;
mod stopping;
