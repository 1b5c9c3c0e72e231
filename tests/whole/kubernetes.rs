//! Admittance as the admission webhook of a Kubernetes API server.
//!
//! - `recorded` replays requests that a real kube-apiserver sent.
//! - `http`, `stopping` and `deadlines` test Admittance as a server.
//! - `conformance` lists what kube-apiserver's own tests of admission webhooks check. In `conformance` and
//!   `documents`, Admittance reads webhook configurations and calls the webhooks that they name.
//! - `policies` runs Kubewarden policies.
//! - `resources` and `many` store chains in the cluster, and `systems` stores policies of other policy systems there.
//!   `statuses`, `events`, `registrations` and `audits` test the objects that the leader among the replicas writes.
//! - `replicas` and `rollouts` test replicas that go live together.
//! - `observed` tests the spans and the replay of lookups.

mod audits;
mod conformance;
mod deadlines;
mod documents;
mod events;
mod hooks;
mod http;
mod many;
mod observed_lookups;
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
