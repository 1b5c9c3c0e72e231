//! The stock plugins that a released program contains.

use std::path::Path;

use bytes::Bytes;

use crate::ModuleReference;

/// The names of the stock plugins, and their modules, compressed with gzip.
///
/// `cargo task release` compresses the modules and names their directory in `ADMITTANCE_STOCK`.
#[cfg(feature = "stock")]
const PLUGINS: [(&str, &[u8]); 4] = [
    (
        "edge-health",
        include_bytes!(concat!(env!("ADMITTANCE_STOCK"), "/edge_health.wasm.gz")),
    ),
    (
        "image-policy",
        include_bytes!(concat!(env!("ADMITTANCE_STOCK"), "/image_policy.wasm.gz")),
    ),
    (
        "rego",
        include_bytes!(concat!(env!("ADMITTANCE_STOCK"), "/rego.wasm.gz")),
    ),
    (
        "sidecar-injector",
        include_bytes!(concat!(env!("ADMITTANCE_STOCK"), "/sidecar_injector.wasm.gz")),
    ),
];
#[cfg(not(feature = "stock"))]
const PLUGINS: [(&str, &[u8]); 0] = [];

/// Whether this program contains the stock plugin that a reference names. A file in the directory of stock plugins is
/// used instead of it.
pub fn is_in_program(reference: &ModuleReference) -> bool {
    let name = reference.stock_name();
    name.is_some_and(|name| PLUGINS.iter().any(|(plugin, _)| *plugin == name))
}

/// Returns the module of a stock plugin that this program contains, unless there is a file of it.
pub(crate) fn module(reference: &ModuleReference) -> Option<Bytes> {
    let name = reference.stock_name()?;
    let (_, compressed) = PLUGINS.iter().find(|(plugin, _)| *plugin == name)?;
    let ModuleReference::File(path) = reference else {
        return None;
    };
    if path.exists() { None } else { unpacked(compressed) }
}

#[cfg(feature = "stock")]
fn unpacked(compressed: &[u8]) -> Option<Bytes> {
    use std::io::Read;

    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(compressed)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes.into())
}

#[cfg(not(feature = "stock"))]
fn unpacked(_: &[u8]) -> Option<Bytes> {
    None
}

/// Returns advice about a module that cannot be read, if it is a stock plugin.
pub(crate) fn advice(path: &Path) -> String {
    let Some(name) = ModuleReference::File(path.to_owned()).stock_name() else {
        return String::new();
    };
    let directory = "set the environment variable ADMITTANCE_PLUGINS to the directory of the stock plugins";
    if PLUGINS.is_empty() {
        return format!(
            "; this build of the program does not contain the stock plugins, as releases do: {directory}, which `cargo \
             task plugins` compiles to target/plugins"
        );
    }
    let names: Vec<_> = PLUGINS.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    format!(
        "; the program contains no stock plugin `{name}`, but {names}: write one of these, or {directory}"
    )
}
