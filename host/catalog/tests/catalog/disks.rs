//! Tests the store on full and read-only disks. Each test runs itself again in a new mount namespace, where any user
//! may mount if the kernel allows it.

use std::{env, fs, io, path::Path, process::Command};

use admittance_catalog::{Catalog, CompiledCode, CompiledForm, CompiledKey, Digest, Error, InUse, Store};
use tempfile::TempDir;

use crate::{
    scene::{CatalogScene, component},
    site::Site,
};

/// The environment variable that contains the mounted directory. It is set only when a test runs itself again.
const MOUNT_VARIABLE: &str = "ADMITTANCE_TEST_MOUNTED";

/// Returns the mounted directory if the test runs in a child process, for which the shell commands have mounted it.
/// Otherwise, starts this child process, waits until it has passed the test, and returns `None`.
fn run_in_mount_namespace(test: &str, at: &Path, commands: &str) -> Option<std::path::PathBuf> {
    if let Some(at) = env::var_os(MOUNT_VARIABLE) {
        return Some(at.into());
    }
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", script]);
        command
    };
    match namespace("mount -t tmpfs none /tmp").output() {
        Ok(output) if output.status.success() => {}
        other => {
            println!("left out: this machine has no namespaces for users: {other:?}");
            return None;
        }
    }
    let output = namespace(&format!("at=$1; {commands}; exec \"$2\" --exact \"$3\""))
        .arg("sh")
        .arg(at)
        .arg(env::current_exe().unwrap())
        .arg(test)
        .env(MOUNT_VARIABLE, at)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

fn compiled_key(name: &str) -> CompiledKey {
    CompiledKey::new(Digest::of_bytes(name), "{}", "engine")
}

#[tokio::test]
async fn a_full_disk_is_reported_and_retried() {
    let directory = TempDir::new().unwrap();
    let mount = "mount -t tmpfs -o size=500k,mode=700 none \"$at\"";
    let Some(at) = run_in_mount_namespace("disks::a_full_disk_is_reported_and_retried", directory.path(), mount) else {
        return;
    };
    let mut scene = CatalogScene::new();
    let store = Store::open(&at).unwrap();
    store.keep_compiled(compiled_key("small"), b"code", b"").unwrap();
    let is_full = |error: &Error| {
        assert!(
            matches!(error, Error::Store { source, .. } if source.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        assert!(
            error.is_transient() && error.to_string().contains("make room"),
            "{error}"
        );
    };
    is_full(
        &store
            .keep_compiled(compiled_key("large"), &[0; 1 << 20], b"")
            .unwrap_err(),
    );

    let site = Site::start(&scene.authority).await;
    let bytes = component(1 << 20, 1);
    site.put_file("/a.wasm", &bytes, None);
    scene.config.store = Some(store.clone());
    is_full(&scene.obtain(&scene.catalog(), &site.url("/a.wasm")).await.unwrap_err());
    for kind in ["temporary", "partial", "modules", "resolved"] {
        assert_eq!(scene.stored_files(kind), [""; 0], "{kind}");
    }
    assert!(store.read_compiled(compiled_key("small")).is_some());
    assert_eq!(store.read_compiled(compiled_key("large")), None);
    store.keep_compiled(compiled_key("large"), &[0; 1 << 17], b"").unwrap();
}

#[test]
fn code_on_a_noexec_disk_is_read_into_memory() {
    let directory = TempDir::new().unwrap();
    let Some(at) = run_in_mount_namespace(
        "disks::code_on_a_noexec_disk_is_read_into_memory",
        directory.path(),
        "mount -t tmpfs -o noexec,mode=700 none \"$at\"",
    ) else {
        return;
    };
    let store = Store::open(&at).unwrap();
    store.keep_compiled(compiled_key("kept"), b"code", b"header").unwrap();
    let form = CompiledForm {
        code: CompiledCode::Memory(b"code".to_vec()),
        header: b"header".to_vec(),
    };
    assert_eq!(store.read_compiled(compiled_key("kept")), Some(form));
}

#[tokio::test]
async fn a_read_only_store_serves_its_entries() {
    let directory = TempDir::new().unwrap();
    let mut scene = CatalogScene::new();
    let site = Site::start(&scene.authority).await;
    if env::var_os(MOUNT_VARIABLE).is_none() {
        let store = Store::open(directory.path()).unwrap();
        store.keep_compiled(compiled_key("kept"), b"code", b"").unwrap();
        // The store must open although one of its directories is missing and cannot be created.
        fs::remove_dir(directory.path().join("partial")).unwrap();
    }
    let mount = "mount --bind \"$at\" \"$at\"; mount -o remount,bind,ro \"$at\"";
    let test = "disks::a_read_only_store_serves_its_entries";
    let Some(at) = run_in_mount_namespace(test, directory.path(), mount) else {
        return;
    };
    let store = Store::open(&at).unwrap();
    assert!(store.read_compiled(compiled_key("kept")).is_some());
    assert_eq!(store.prune(0, &InUse::default()).entries, 0);
    let is_told = |error: &Error| {
        assert!(error.to_string().contains("mount it writable"), "{error}");
        assert!(!error.is_transient());
    };
    is_told(&store.keep_compiled(compiled_key("new"), b"code", b"").unwrap_err());
    site.put_file("/a.wasm", &component(1000, 1), None);
    scene.config.store = Some(store);
    let catalog = Catalog::new(scene.config.clone()).unwrap();
    let error = scene.obtain(&catalog, &site.url("/a.wasm")).await.unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
    assert!(site.requests().is_empty());
}
