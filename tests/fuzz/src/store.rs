use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use admittance::{Digest, Host, ModuleReference};
use admittance_catalog::{CompiledKey, Resolution, Store};
use serde_json::{Value, json};

use crate::{block_on, in_directory, parts};

/// Reads a file that a crash, a full disk or another program may have damaged. The input is the kind of the file, an
/// empty line, and its content. These are the kinds:
///
/// - `sealed`: a whole entry of the store.
/// - `resolution`: the content of an entry of the store, to which this function adds a valid seal.
/// - `revision`: the content of a revision in the history, to which this function adds a valid digest.
/// - `change`: the texts of an interrupted change.
pub fn store(input: &[u8]) {
    let [kind, content] = parts(input);
    in_directory(|directory| match kind {
        b"sealed" => check_sealed(directory, content),
        b"resolution" => check_resolution(directory, content),
        b"revision" => check_revision(directory, content),
        b"change" => check_change(directory, content),
        _ => {}
    });
}

fn only_file(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).expect("it is there");
    files.next().expect("it holds a file").expect("it can be read").path()
}

/// Reads an entry of the store. Checks that it is used only if its digest is right.
fn check_sealed(directory: &Path, content: &[u8]) {
    let store = Store::open(directory).expect("the directory is private");
    let key = CompiledKey::new(Digest::of_bytes("module"), "{}", "engine");
    store
        .keep_compiled(key, b"compiled", b"header")
        .expect("it can be written");
    fs::write(only_file(&directory.join("compiled")), content).expect("it can be written");
    if let Some(compiled) = store.read_compiled(key) {
        let (sealed, seal) = content.split_at(content.len() - 40);
        assert!(seal.starts_with(Digest::of_bytes(sealed).as_bytes()));
        assert!(sealed[..sealed.len() - 8].ends_with(&compiled.header));
    }
}

/// Reads a resolved reference. If it is valid, checks that it is the same after it is stored and read again.
fn check_resolution(directory: &Path, content: &[u8]) {
    let store = Store::open(directory).expect("the directory is private");
    let reference: ModuleReference = "oci://registry.example.com/a:1".parse().expect("a reference");
    let module = Digest::of_bytes("module");
    let first = Resolution {
        module,
        manifest: None,
        validator: None,
        resolved: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
    };
    store.keep_resolution(&reference, &first).expect("it can be written");
    for file in fs::read_dir(directory.join("resolved")).expect("it is there") {
        let path = file.expect("it can be read").path();
        let entry = fs::read(&path).expect("it can be read");
        let magic = &entry[..8];
        let sealed = [magic, Digest::of_bytes(content).as_bytes(), content].concat();
        fs::write(path, sealed).expect("it can be written");
    }
    if let Some(stored_resolution) = store.read_resolution(&reference) {
        store
            .keep_resolution(&reference, &stored_resolution)
            .expect("it can be written");
        assert_eq!(store.read_resolution(&reference), Some(stored_resolution));
    }
}

fn check_revision(directory: &Path, content: &[u8]) {
    let mut file = Digest::of_bytes(content).to_string().into_bytes();
    file.push(b'\n');
    file.extend(content);
    fs::write(directory.join("0000000001.revision"), file).expect("it can be written");
    let store = tempfile::tempdir().expect("a directory can be made");
    block_on(async {
        let start = || Host::builder().history(directory).store(store.path()).build();
        // If the program cannot build a table from this revision, the start returns an error, which is allowed.
        let Ok(host) = start().await else {
            return;
        };
        let revisions = host.history();
        for revision in &revisions {
            host.revision(revision.number).expect("what is listed is there");
            host.compare(revision.number, revisions[0].number)
                .expect("what is listed can be compared");
        }
        drop(host);
    });
}

/// Starts a program after a change of several files was interrupted, and checks that the program completes the change.
/// If somebody has edited a file since the interruption, the program must not touch that file.
fn check_change(directory: &Path, content: &[u8]) {
    let Ok(Value::Array(entries)) = serde_json::from_slice::<Value>(content) else {
        return;
    };
    let text = |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let (definitions, history) = (directory.join("definitions"), directory.join("history"));
    fs::create_dir(&definitions).expect("it can be made");
    fs::create_dir(&history).expect("it can be made");
    let mut files = Vec::new();
    for (index, entry) in entries.iter().enumerate().take(8) {
        let path = definitions.join(format!("{index}.yaml"));
        let file_text = text(entry, "held");
        if let Some(written_text) = &file_text {
            fs::write(&path, written_text).expect("it can be written");
        }
        let (before, after) = (text(entry, "before"), text(entry, "after"));
        if before != after {
            files.push((path, file_text, before, after));
        }
    }
    let pending: Vec<_> = files
        .iter()
        .map(|(path, _, before, after)| json!({ "path": path, "before": before, "after": after }))
        .collect();
    let revision = json!({
        "number": 1,
        "at": "2026-01-01T00:00:00Z",
        "origin": { "type": "applied" },
        "chains": 0,
        "modules": [],
        "files": [],
        "pending": pending,
    })
    .to_string();
    let file = format!("{}\n{revision}", Digest::of_bytes(&revision));
    fs::write(history.join("0000000001.revision"), file).expect("it can be written");
    let store = tempfile::tempdir().expect("a directory can be made");
    let builder = Host::builder()
        .definitions(&definitions)
        .history(&history)
        .store(store.path());
    // The interrupted change may leave invalid files, but the start succeeds nevertheless. In this case, the program
    // serves the table that was live before.
    block_on(builder.build()).expect("the change can be completed");
    for (path, initial_text, before, after) in files {
        let expected = if initial_text == before { after } else { initial_text };
        assert_eq!(fs::read_to_string(&path).ok(), expected);
    }
}
