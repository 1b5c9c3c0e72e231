//! The stock plugins, whose modules are embedded in a released program.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use flate2::read::GzDecoder;

use crate::ModuleReference;

/// The names of the stock plugins, and their modules, compressed with gzip.
///
/// `cargo task release` compresses the modules, and passes their directory in `ADMITTANCE_STOCK` to this build.
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

/// Returns whether the program contains the stock plugin that the reference names. It does not matter here whether
/// there is a file at the path of the reference, which takes precedence over the stock plugin.
pub fn is_in_program(reference: &ModuleReference) -> bool {
    reference
        .stock_name()
        .is_some_and(|name| compressed_module(&PLUGINS, &name).is_some())
}

/// Returns the module of a stock plugin if the program contains it and no file is at the path of the reference.
pub(crate) fn embedded_module(reference: &ModuleReference) -> Option<Bytes> {
    find_module_among(&PLUGINS, reference)
}

fn find_module_among(plugins: &[(&str, &'static [u8])], reference: &ModuleReference) -> Option<Bytes> {
    let module = compressed_module(plugins, &reference.stock_name()?)?;
    match reference {
        ModuleReference::File(path) if !path.exists() => {
            let mut bytes = Vec::new();
            GzDecoder::new(module).read_to_end(&mut bytes).ok()?;
            Some(bytes.into())
        }
        _ => None,
    }
}

fn compressed_module(plugins: &[(&str, &'static [u8])], name: &str) -> Option<&'static [u8]> {
    let mut matching_plugins = plugins.iter().filter(|(plugin, _)| *plugin == name);
    matching_plugins.next().map(|(_, module)| *module)
}

/// Returns advice about a stock plugin that is missing at `path`. `beside` lists the files in the same directory.
pub(crate) fn advice(path: &Path, beside: &[PathBuf]) -> String {
    let Some(name) = ModuleReference::File(path.to_owned()).stock_name() else {
        return String::new();
    };
    let mut names: BTreeSet<_> = PLUGINS.iter().map(|(name, _)| (*name).to_owned()).collect();
    for file in beside {
        names.extend(ModuleReference::File(file.clone()).stock_name());
    }
    let directory = "set the environment variable ADMITTANCE_PLUGINS to the directory of the stock plugins";
    if names.is_empty() {
        return format!(
            "; this build of the program does not contain the stock plugins, as releases do: {directory}, which `cargo \
             task plugins` compiles to target/plugins"
        );
    }
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    format!("; there is no stock plugin `{name}`, but {names}: write one of these, or {directory}")
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, read::GzEncoder};

    use super::*;

    #[test]
    fn a_file_takes_precedence_over_the_embedded_stock_plugin() {
        let mut module = Vec::new();
        let mut encoder = GzEncoder::new(&b"a module"[..], Compression::best());
        encoder.read_to_end(&mut module).unwrap();
        let plugins = [("image-policy", &*module.leak())];
        let find_module = |name| find_module_among(&plugins, &ModuleReference::stock(name));
        assert_eq!(find_module("image-policy").as_deref(), Some(&b"a module"[..]));
        assert_eq!(find_module("edge-health"), None);
        let ModuleReference::File(path) = ModuleReference::stock("image-policy") else {
            unreachable!("a stock plugin is a file");
        };
        let elsewhere = ModuleReference::File(path.with_file_name("other").join("image_policy.wasm"));
        assert_eq!(find_module_among(&plugins, &elsewhere), None);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "another module").unwrap();
        let module_with_file = find_module("image-policy");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(module_with_file, None);
    }

    #[test]
    fn the_portable_reference_to_a_stock_plugin_is_its_name() {
        for (reference, expected) in [
            (ModuleReference::stock("image-policy"), "stock:image-policy"),
            (ModuleReference::File("a.wasm".into()), "file:a.wasm"),
        ] {
            assert_eq!(reference.to_portable_text(), expected);
        }
    }

    /// Plugins are embedded only in builds with the feature `stock`, such as the builds of `cargo task release`. Other
    /// builds have nothing to test here.
    #[cfg(feature = "stock")]
    #[test]
    fn every_embedded_module_can_be_decompressed() {
        for (name, _) in PLUGINS {
            let module = embedded_module(&ModuleReference::stock(name));
            assert!(module.is_some_and(|module| module.starts_with(b"\0asm")), "{name}");
        }
    }
}
