//! The interfaces that plugins may import. Each capability is a Rust module, and a row in the table of interfaces.

mod cluster;
mod http;
pub(crate) mod logging;
mod stdio;
mod wasi;

use admittance_admission::FailureKind;
use wasmtime::component::{HasSelf, Linker};

pub(crate) use self::cluster::SearchPace;
use crate::{
    Capability, Grant,
    contract::{
        accepts_version,
        bindings::{
            admittance::plugin::{cluster as cluster_calls, http as http_calls, types},
            wasi::logging::logging as logging_calls,
        },
    },
    store::{CallState, Violation},
};

pub(crate) struct ProvidedCapabilities {
    interfaces: &'static [&'static str],
    accepts: fn(&str) -> bool,
    pub(crate) grant: Grant,
    link: fn(&mut Linker<CallState>) -> wasmtime::Result<()>,
}

const PROVIDED_CAPABILITIES: [ProvidedCapabilities; 6] = [
    ProvidedCapabilities {
        interfaces: &["admittance:plugin/types"],
        accepts: accepts_version,
        grant: Grant::None,
        link: |linker| types::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state),
    },
    ProvidedCapabilities {
        interfaces: &["admittance:plugin/cluster"],
        accepts: accepts_version,
        grant: Grant::Cluster,
        link: |linker| cluster_calls::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state),
    },
    ProvidedCapabilities {
        interfaces: &["admittance:plugin/http"],
        accepts: accepts_version,
        grant: Grant::Http,
        link: |linker| http_calls::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state),
    },
    ProvidedCapabilities {
        interfaces: &["wasi:cli/environment"],
        accepts: is_wasi,
        grant: Grant::Environment,
        link: wasi::link_environment,
    },
    ProvidedCapabilities {
        interfaces: &["wasi:logging/logging"],
        accepts: |version| version == "0.1.0-draft",
        grant: Grant::None,
        link: |linker| logging_calls::add_to_linker::<_, HasSelf<CallState>>(linker, |state| state),
    },
    ProvidedCapabilities {
        interfaces: &[
            "wasi:cli/exit",
            "wasi:cli/stderr",
            "wasi:cli/stdin",
            "wasi:cli/stdout",
            "wasi:cli/terminal-input",
            "wasi:cli/terminal-output",
            "wasi:cli/terminal-stderr",
            "wasi:cli/terminal-stdin",
            "wasi:cli/terminal-stdout",
            "wasi:clocks/monotonic-clock",
            "wasi:clocks/wall-clock",
            "wasi:io/error",
            "wasi:io/poll",
            "wasi:io/streams",
            "wasi:random/insecure",
            "wasi:random/insecure-seed",
            "wasi:random/random",
        ],
        accepts: is_wasi,
        grant: Grant::None,
        link: wasi::link,
    },
];

pub(crate) fn is_wasi(version: &str) -> bool {
    version.starts_with("0.2.")
}

/// Returns the interface that an import such as `wasi:io/poll@0.2.6` names; `None` if this host does not provide it.
pub(crate) fn find_provided(import: &str) -> Option<&'static ProvidedCapabilities> {
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    let mut all = PROVIDED_CAPABILITIES.iter();
    all.find(|row| row.interfaces.contains(&interface) && (row.accepts)(version))
}

pub(crate) fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    PROVIDED_CAPABILITIES.iter().try_for_each(|row| (row.link)(linker))
}

pub(crate) const PREPARING_MESSAGE: &str = "the plugin is being configured";

pub(crate) fn denied_error(message: String) -> wasmtime::Error {
    Violation::error(FailureKind::CapabilityDenied, message)
}

impl types::Host for CallState {}

impl From<types::Capability> for Capability {
    fn from(capability: types::Capability) -> Self {
        match capability {
            types::Capability::Cluster(kind) => Self::Cluster(kind),
            types::Capability::Http(origin) => Self::Http(origin),
            types::Capability::Environment(name) => Self::Environment(name),
        }
    }
}
