//! Admittance as the admission webhook of a Kubernetes API server.
//!
//! `recorded` sends it what a real kube-apiserver sent to a webhook. `http`, `stopping` and `deadlines` test how it
//! answers as a server. `conformance` contains the list of what kube-apiserver's own tests of admission webhooks check,
//! with the status of each row here; there and in `documents`, Admittance reads webhook configurations of Kubernetes
//! and is itself the caller of a webhook server in the test. `policies` runs policies of Kubewarden, in `resources`
//! chains are resources of the cluster (in `many`, thousands of them), in `systems` policies of other systems are, and
//! in `statuses` their leader writes what became of them. `events` looks at Events, `registrations` at the webhook
//! configurations that the leader keeps, and in `audits` it audits what exists. `replicas` go live together, and share
//! `rollouts`. `observed` looks at the spans of a lookup.

mod audits;
mod conformance;
mod deadlines;
mod documents;
mod events;
mod hooks;
mod http;
mod many;
mod observed;
mod policies;
mod recorded;
mod registrations;
mod replicas;
mod resources;
mod rollouts;
pub(crate) mod server;
mod statuses;
mod stopping;
mod systems;
