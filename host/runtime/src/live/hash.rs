//! Computes the content hash of a table. Replicas whose tables have the same hash give the same verdicts.

use std::sync::Arc;

use admittance_admission::Digest;
use admittance_definitions::{DefinitionFile, DefinitionSet, StoreKind};

use crate::{
    RevisionModule,
    live::{assembly::AssembledTable, plugins::LivePlugin, stage::LiveChain},
};

/// Returns a digest of the texts of all definitions. The order of the definitions does not matter. For a definition in
/// a shared store, the digest also depends on its path. For a definition file it does not, because the same file may
/// have another path on another replica.
pub(crate) fn of_definitions(set: &DefinitionSet) -> Digest {
    let of_file = |file: &DefinitionFile| {
        let path_bytes = match file.kind {
            StoreKind::Files => &[],
            StoreKind::Entries => file.path.as_os_str().as_encoded_bytes(),
        };
        Digest::of_parts([path_bytes, file.normalized().as_bytes()])
    };
    let mut digests: Vec<Digest> = set.files().iter().map(of_file).collect();
    digests.sort_unstable();
    Digest::of_parts(digests.iter().map(|digest| &digest.as_bytes()[..]))
}

/// Returns the content hash of a table. It depends on the definitions, on the order of the chains, and on the module
/// and the settings of each plugin, but on nothing that differs between replicas.
pub(crate) fn of_table(definitions: Digest, assembled: &AssembledTable) -> Digest {
    let chain = |chain: &Arc<LiveChain>| format!("{}:{}", chain.phase, chain.name);
    let plugin = |(module, plugin): &(RevisionModule, Arc<LivePlugin>)| {
        let RevisionModule {
            stage,
            candidate,
            digest,
            ..
        } = module;
        let settings = Digest::of_bytes(&plugin.settings);
        format!("{stage} {candidate} {digest} {settings}")
    };
    let chains: Vec<String> = assembled.chains.iter().map(chain).collect();
    let mut plugins: Vec<String> = assembled.plugins.iter().map(plugin).collect();
    plugins.sort_unstable();
    let lists = [chains, plugins].map(|list| Digest::of_parts(list.iter().map(String::as_bytes)));
    let [chains, plugins] = &lists;
    Digest::of_parts(
        [definitions, *chains, *plugins]
            .iter()
            .map(|digest| &digest.as_bytes()[..]),
    )
}

/// Returns the first 48 bits of the content hash, which a metric can represent exactly.
pub(crate) fn metric_value(hash: Digest) -> f64 {
    let bytes = hash.as_bytes().iter().take(6);
    bytes.fold(0.0, |number, byte| number * 256.0 + f64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(files: &[(&str, &str)]) -> DefinitionSet {
        let file = |(path, text): &(&str, &str)| DefinitionFile::file(*path, *text);
        DefinitionSet::of_files(files.iter().map(file).collect())
    }

    #[test]
    fn the_hash_of_definitions_depends_on_their_texts_but_not_on_file_paths() {
        let hash = of_definitions(&set(&[("a.yaml", "one"), ("b.yaml", "two")]));
        let elsewhere = set(&[("/etc/chains/y.yaml", "one"), ("/etc/chains/x.yaml", "two")]);
        assert_eq!(of_definitions(&elsewhere), hash);
        for other in [
            &[("a.yaml", "one")][..],
            &[("a.yaml", "one"), ("b.yaml", "two!")],
            &[("a.yaml", "onetwo")],
            &[("a.yaml", "one"), ("b.yaml", "two"), ("c.yaml", "two")],
        ] {
            assert_ne!(of_definitions(&set(other)), hash, "{other:?}");
        }
    }

    #[test]
    fn the_hash_of_definitions_depends_on_the_data_and_path_of_a_store_entry() {
        let entry = |text: &str, path: &str| {
            let file = DefinitionFile::entry(path, text, None);
            of_definitions(&DefinitionSet::of_files(vec![file]))
        };
        let hash = entry("{\"a\": 1, \"b\": 2}", "zookeeper:/a");
        assert_eq!(entry("{\"b\":2,\n\"a\":1}", "zookeeper:/a"), hash);
        assert_ne!(entry("{\"a\": 1, \"b\": 2}", "zookeeper:/b"), hash);
        assert_ne!(entry("{\"a\": 1, \"b\": 3}", "zookeeper:/a"), hash);
    }

    #[test]
    fn the_table_hash_metric_is_represented_exactly() {
        let mut bytes = [0xff; 32];
        assert_eq!(metric_value(bytes.into()), 281_474_976_710_655.0);
        bytes[..6].copy_from_slice(&[0, 0, 0, 0, 1, 2]);
        assert_eq!(metric_value(bytes.into()), 258.0);
    }
}
