//! Tests of the store on disk: damaged entries, crashes of programs, and pruning.

use std::{
    collections::HashSet,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, SystemTime},
};

use admittance_catalog::{CompiledCode, CompiledForm, CompiledKey, Digest, Error, InUse, Module, Store};
use tempfile::TempDir;

use crate::scene::{CatalogScene, component};

fn compiled_key(settings: &str) -> CompiledKey {
    CompiledKey::new(Digest::of_bytes("module"), settings, "engine")
}

async fn obtain_module(scene: &CatalogScene, bytes: &[u8]) -> Module {
    let path = scene.path("module.wasm");
    fs::write(&path, bytes).unwrap();
    let reference = format!("file:{}", path.display());
    scene.obtain(&scene.catalog(), &reference).await.unwrap()
}

fn only_entry(scene: &CatalogScene, kind: &str) -> std::path::PathBuf {
    let names = scene.stored_files(kind);
    assert_eq!(names.len(), 1, "{names:?}");
    scene.store().directory().join(kind).join(&names[0])
}

#[tokio::test]
async fn a_store_entry_is_found_only_under_its_key() {
    let scene = CatalogScene::new();
    let store = scene.store();
    assert_eq!(store.read_compiled(compiled_key("{}")), None);
    store.keep_compiled(compiled_key("{}"), b"code", b"header").unwrap();
    store.keep_compiled(compiled_key("{}"), b"code2", b"header2").unwrap();
    let CompiledForm { code, header } = store.read_compiled(compiled_key("{}")).unwrap();
    let CompiledCode::File(path) = code else {
        panic!("{code:?}: tests run on a local disk")
    };
    assert!(fs::read(path).unwrap().starts_with(b"code2header2") && header == b"header2");
    assert_eq!(store.read_compiled(compiled_key("{} ")), None);
    assert_ne!(
        compiled_key("{}"),
        CompiledKey::new(Digest::of_bytes("module"), "{}", "other engine")
    );

    let stored_module = obtain_module(&scene, b"bytes").await;
    assert_eq!(store.read_module(stored_module.digest()), None);
    store.insert_module(&stored_module).unwrap();
    store.insert_module(&stored_module).unwrap();
    assert_eq!(store.read_module(stored_module.digest()).unwrap(), "bytes");
    assert_eq!(store.read_module(Digest::of_bytes("other")), None);
    let changed_module = obtain_module(&scene, b"changed").await;
    let loaded_module = scene
        .catalog()
        .load_stored(changed_module.reference(), stored_module.digest())
        .await
        .unwrap();
    assert_eq!(loaded_module.bytes(), "bytes");
    fs::remove_file(scene.path("module.wasm")).unwrap();
    scene
        .catalog()
        .load_stored(changed_module.reference(), stored_module.digest())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_damaged_store_entry_is_removed() {
    for damage in ["cut", "bit", "empty"] {
        let scene = CatalogScene::new();
        let store = scene.store();
        store
            .keep_compiled(compiled_key("{}"), b"some code", b"header")
            .unwrap();
        let stored_module = obtain_module(&scene, b"some bytes").await;
        store.insert_module(&stored_module).unwrap();
        for kind in ["compiled", "modules"] {
            let path = only_entry(&scene, kind);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "cut" => bytes.truncate(bytes.len() - 1),
                "bit" => *bytes.last_mut().unwrap() ^= 1,
                _ => bytes.clear(),
            }
            fs::write(&path, bytes).unwrap();
        }
        assert_eq!(store.read_compiled(compiled_key("{}")), None, "{damage}");
        assert_eq!(store.read_module(stored_module.digest()), None, "{damage}");
        assert_eq!(scene.stored_files("compiled"), [""; 0], "{damage}");
        assert_eq!(scene.stored_files("modules"), [""; 0], "{damage}");
    }
}

#[test]
fn a_store_directory_that_other_users_can_write_is_refused() {
    for inner in ["", "compiled"] {
        let directory = TempDir::new().unwrap();
        Store::open(directory.path()).unwrap();
        fs::set_permissions(directory.path().join(inner), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Store::open(directory.path()).unwrap_err();
        assert!(matches!(error, Error::StoreNotPrivate { .. }), "{error}");
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let error = Store::open(directory.path().join("file/store")).unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
}

#[test]
fn files_of_killed_programs_are_removed_but_not_files_in_use() {
    let directory = TempDir::new().unwrap();
    Store::open(directory.path()).unwrap();
    let file = |name: &str| directory.path().join(name);
    let (left_over_file, written_file) = (file("temporary/left"), file("temporary/written"));
    let (old_file, new_file, used_file) = (file("partial/old"), file("partial/new"), file("partial/used"));
    for path in [&left_over_file, &written_file, &old_file, &new_file, &used_file] {
        fs::write(path, "half").unwrap();
    }
    let long_ago = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    for path in [&old_file, &used_file] {
        File::open(path).unwrap().set_modified(long_ago).unwrap();
    }
    // The file `written` is locked as by a program that writes it, and the file `used` as by a program that reads it.
    // Locked files are not removed.
    let (writer, user) = (File::open(&written_file).unwrap(), File::open(&used_file).unwrap());
    writer.lock().unwrap();
    user.lock().unwrap();
    Store::open(directory.path()).unwrap();
    let exist = |paths: [&std::path::PathBuf; 5]| paths.map(|path| path.exists());
    assert_eq!(
        exist([&left_over_file, &written_file, &old_file, &new_file, &used_file]),
        [false, true, false, true, true]
    );
}

#[tokio::test]
async fn the_least_recently_used_entries_are_pruned_first() {
    let scene = CatalogScene::new();
    let store = scene.store();
    for name in ["a", "b", "c", "d"] {
        store.keep_compiled(compiled_key(name), &[0; 1000], b"").unwrap();
    }
    let old = obtain_module(&scene, &component(1000, 1)).await;
    store.insert_module(&old).unwrap();
    let now = SystemTime::now();
    for (age, kind) in [(50, "compiled"), (100, "modules")] {
        for name in scene.stored_files(kind) {
            let path = store.directory().join(kind).join(name);
            let time = now - Duration::from_secs(age);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
    }
    store.read_compiled(compiled_key("b")).unwrap();
    let in_use = InUse {
        modules: HashSet::from([old.digest()]),
        compiled: HashSet::from([compiled_key("c")]),
    };
    let size = store.prune(u64::MAX, &in_use).size_left;
    assert_eq!(store.prune(size, &in_use).entries, 0);
    let pruned = store.prune(size - 1, &in_use);
    assert_eq!((pruned.entries, pruned.size_left + pruned.bytes), (1, size));
    let pruned = store.prune(3500, &in_use);
    assert_eq!(pruned.entries, 1);
    let is_stored = ["a", "b", "c", "d"].map(|name| store.read_compiled(compiled_key(name)).is_some());
    assert_eq!(is_stored, [false, true, true, false]);
    assert_eq!(store.prune(0, &in_use).entries, 1);
    assert!(store.read_module(old.digest()).is_some() && store.read_compiled(compiled_key("c")).is_some());
}

#[tokio::test]
async fn several_programs_can_use_one_store_at_once() {
    let scene = CatalogScene::new();
    let digests: Vec<_> = (0..8)
        .map(|seed| {
            let directory = scene.path("store");
            std::thread::spawn(move || {
                for round in 0..50_u8 {
                    let store = Store::open(&directory).unwrap();
                    store
                        .keep_compiled(compiled_key("shared"), b"", &[seed ^ round; 10_000])
                        .unwrap();
                    let header = store.read_compiled(compiled_key("shared")).unwrap().header;
                    assert!(header.iter().all(|byte| *byte == header[0]) && header.len() == 10_000);
                }
            })
        })
        .collect();
    for thread in digests {
        thread.join().unwrap();
    }
    assert_eq!(scene.stored_files("temporary"), [""; 0]);
}
