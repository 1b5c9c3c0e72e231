//! Tests the commands with which an operator controls a running driver.

mod evaluate;
mod modules;
#[path = "../../host/catalog/tests/catalog/registry.rs"]
#[expect(
    dead_code,
    reason = "it is that of the catalog's own tests, and not all of it is wanted here"
)]
pub(crate) mod registry;
mod rollouts;
mod setup;
mod steering;
mod trials;
