//! Runs every input of the corpora once, without instrumentation.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, fs, path::PathBuf};

use admittance_fuzz::TARGETS;

fn corpus_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn every_fuzz_target_has_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let corpus_names: BTreeSet<String> = fs::read_dir(corpus_directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(corpus_names, targets);
}

/// Makes a test of each fuzz target, so that the targets run in parallel and a failure names the target.
macro_rules! corpora {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name), admittance_fuzz::$name);
            }
        )*

        #[test]
        fn every_fuzz_target_has_a_test() {
            assert_eq!([$(stringify!($name)),*], TARGETS.map(|(name, _)| name));
        }
    };
}

corpora!(bcs cel config definitions guest patch references registry rest review selectors signatures store tunnel webhook yaml);

fn run(name: &str, target: admittance_fuzz::FuzzTarget) {
    let mut inputs: Vec<PathBuf> = fs::read_dir(corpus_directory().join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty());
    target(&[]);
    for input in inputs {
        println!("{}", input.display());
        let bytes = fs::read(&input).unwrap();
        target(&bytes);
        target(&bytes[..bytes.len() / 2]);
    }
}
