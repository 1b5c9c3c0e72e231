//! Tests a driver in front of a scheduler: what the scheduler receives, and what clients receive.

mod bodies;
mod consoles;
mod kubernetes;
mod masters;
mod replies;
mod requests;
mod routes;
mod scheduler;
