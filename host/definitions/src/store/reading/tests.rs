use std::{
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;

#[test]
fn files_are_read_unchanged() {
    const CHAIN: &str = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: b }\nspec: { \
                         rules: [ { operations: [CREATE], kinds: [pod] } ], stages: [ { name: s, plugin: { source: \
                         file:s.wasm } } ] }\n";
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let paths = [directory.path().to_owned()];
    assert_eq!(read_files(&paths), Ok(Vec::new()));

    fs::write(path("b.yaml"), CHAIN).unwrap();
    fs::write(path("a.json"), "\u{feff}").unwrap();
    fs::write(path(".hidden.yaml"), "").unwrap();
    let expected = vec![
        DefinitionFile::file(path("a.json"), "\u{feff}"),
        DefinitionFile::file(path("b.yaml"), CHAIN),
    ];
    let chains = crate::DefinitionSet::of_files(expected.clone()).chains();
    assert_eq!(read_files(&paths), Ok(expected));
    assert_eq!(crate::load(&paths), chains);
}

#[test]
fn a_directory_without_definitions_causes_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let warning =
        || empty_directory_mistake(directory.path()).map(|warning| format!("{}; {}", warning.message, warning.fix));
    let none = "no definition was found; name a file, or a directory with *.yaml, *.yml or *.json in it";
    assert_eq!(warning().as_deref(), Some(none));
    fs::write(directory.path().join(".hidden.yaml"), "").unwrap();
    assert_eq!(warning().as_deref(), Some(none));
    fs::write(directory.path().join("first.ymal"), "").unwrap();
    let misspelt = "no definition was found; first.ymal is not read: end its name in .yaml, .yml or .json";
    assert_eq!(warning().as_deref(), Some(misspelt));
    let file = directory.path().join("a.yaml");
    fs::write(&file, "").unwrap();
    assert_eq!((warning(), empty_directory_mistake(&file)), (None, None));
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("bytes.yaml"), b"a: 1\nb: \xff").unwrap();
    fs::write(path("large.yaml"), vec![b'#'; document::LARGEST_FILE + 1]).unwrap();
    fs::write(path("right.yaml"), "a: 1").unwrap();
    symlink(path("nowhere"), path("link.yaml")).unwrap();
    let mistakes = read_files(&[directory.path().to_owned(), path("gone")]).unwrap_err();
    let directory_prefix = format!("{}/", directory.path().display());
    assert_eq!(
        mistakes.to_string().replace(&directory_prefix, ""),
        "bytes.yaml:2:4: the file is not UTF-8 from here on; save it as UTF-8\n\
         gone: the file cannot be read: No such file or directory (os error 2); correct the path; if the file was deleted, \
         its definitions are removed with its entry in `definitions` of the configuration\n\
         large.yaml: the file has more than 4194304 bytes; split it\n\
         link.yaml: the file cannot be read: No such file or directory (os error 2); let it be a file that can be read, or \
         delete it to remove its definitions"
    );
}

/// A mounted ConfigMap changes by swapping a link. A read must not mix texts of the old and the new directory.
#[test]
fn a_read_does_not_mix_texts_of_different_moments() {
    const FILES: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for version in ["1", "2"] {
        fs::create_dir(path(version)).unwrap();
        for file in 0..FILES {
            fs::write(path(version).join(file.to_string()), version).unwrap();
        }
    }
    symlink("1", path("data")).unwrap();
    fs::create_dir(path("chains")).unwrap();
    for file in 0..FILES {
        symlink(format!("../data/{file}"), path("chains").join(format!("{file}.yaml"))).unwrap();
    }
    let is_over = AtomicBool::new(false);
    let (swap, is_over) = (&path("swap"), &is_over);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in ["2", "1"].repeat(500) {
                symlink(version, swap).unwrap();
                fs::rename(swap, path("data")).unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        loop {
            let last = is_over.load(Ordering::SeqCst);
            match read_files(&[path("chains")]) {
                Ok(files) => {
                    let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
                    assert_eq!(texts.len(), FILES);
                    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
                }
                Err(mistakes) => {
                    let mistakes = mistakes.to_string();
                    assert!(
                        mistakes.contains("the file kept changing while it was read"),
                        "{mistakes}"
                    );
                    assert!(!last, "nothing changes any more");
                }
            }
            if last {
                break;
            }
        }
    });
}

/// The directory is moved away and back during the reads. While it is missing, it must not be read as empty.
#[test]
fn a_directory_that_vanishes_is_never_read_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    let chains = directory.path().join("chains");
    let aside = directory.path().join("aside");
    fs::create_dir(&aside).unwrap();
    for file in 0..20 {
        fs::write(aside.join(format!("{file}.yaml")), "").unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                fs::rename(&aside, &chains).unwrap();
                fs::rename(&chains, &aside).unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            if let Ok(files) = read_files(std::slice::from_ref(&chains)) {
                assert_eq!(files.len(), 20);
            }
        }
    });
}
