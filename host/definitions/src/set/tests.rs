use std::{fs, os::unix::fs::symlink, path::Path, sync::atomic::AtomicBool, sync::atomic::Ordering};

use super::*;

fn chain(name: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: {name} }}\nspec:\n  rules: \
         [ {{ operations: [CREATE], kinds: [pod] }} ]\n  stages: [ {{ name: s, plugin: {{ source: file:s.wasm }} }} ]\n"
    )
}

fn of(path: &str, text: &str) -> DefinitionSet {
    DefinitionSet::of_files(vec![DefinitionFile {
        path: path.into(),
        text: text.to_owned(),
        place: None,
    }])
}

#[test]
fn files_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let paths = [directory.path().to_owned()];
    assert_eq!(DefinitionSet::read(&paths), Ok(DefinitionSet::default()));

    fs::write(path("b.yaml"), chain("b")).unwrap();
    fs::write(path("a.json"), "\u{feff}").unwrap();
    fs::write(path(".hidden.yaml"), "").unwrap();
    let expected = DefinitionSet::of_files(vec![
        DefinitionFile {
            path: path("a.json"),
            text: "\u{feff}".to_owned(),
            place: None,
        },
        DefinitionFile {
            path: path("b.yaml"),
            text: chain("b"),
            place: None,
        },
    ]);
    let read = DefinitionSet::read(&paths).unwrap();
    assert_eq!(read, expected);
    assert_eq!(read.files(), expected.files());
    assert_eq!(read.chains(), crate::load(&paths));
}

#[test]
fn what_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("bytes.yaml"), b"a: 1\nb: \xff").unwrap();
    fs::write(path("large.yaml"), vec![b'#'; document::LARGEST_FILE + 1]).unwrap();
    fs::write(path("right.yaml"), chain("a")).unwrap();
    symlink(path("nowhere"), path("link.yaml")).unwrap();
    let found = DefinitionSet::read(&[directory.path().to_owned(), path("gone")]).unwrap_err();
    let place = format!("{}/", directory.path().display());
    assert_eq!(
        found.to_string().replace(&place, ""),
        "bytes.yaml:2:4: the file is not UTF-8 from here on; save it as UTF-8\n\
         gone: the file cannot be read: No such file or directory (os error 2)\n\
         large.yaml: the file has more than 4194304 bytes; split it\n\
         link.yaml: the file cannot be read: No such file or directory (os error 2)"
    );
}

/// Files beside a link that is swapped, as Kubernetes mounts a ConfigMap, are never read half from one
/// and half from the other.
#[test]
fn the_texts_are_of_one_moment() {
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
        symlink(
            format!("../data/{file}"),
            path("chains").join(format!("{file}.yaml")),
        )
        .unwrap();
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
            match DefinitionSet::read(&[path("chains")]) {
                Ok(set) => {
                    let texts: Vec<&str> = set.files().iter().map(|file| file.text.as_str()).collect();
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

/// A directory that goes while it is read is missing, and not empty.
#[test]
fn a_directory_that_goes_and_returns() {
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
            if let Ok(set) = DefinitionSet::read(std::slice::from_ref(&chains)) {
                assert_eq!(set.files().len(), 20);
            }
        }
    });
}

#[test]
fn definitions_as_they_are_written() {
    let pods = chain("pods");
    let text = format!(
        "# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n---\n\n{jobs}...\n\
         --- {{ apiVersion: v4, kind: AdmissionWebhook, metadata: {{ namespace: n, name: x }} }}\n",
        jobs = chain("jobs").replace('\n', "\r\n"),
    );
    let stored = of("chains/a.yaml", &text).documents();
    let found: Vec<_> = stored
        .iter()
        .map(|stored| (stored.id.to_string(), stored.line, stored.text.as_str()))
        .collect();
    let jobs = format!("\n{}", chain("jobs").replace('\n', "\r\n"));
    let pods =
        format!("# Of the team shop.\n\n# Sidecars.\n{pods}  # Not indented like the rest.\n# About jobs.\n");
    assert_eq!(
        found,
        [
            ("AdmissionChain/pods".to_owned(), 4, pods.as_str()),
            ("AdmissionChain/jobs".to_owned(), 14, jobs.as_str()),
            (
                "AdmissionWebhook/n/x".to_owned(),
                21,
                "{ apiVersion: v4, kind: AdmissionWebhook, metadata: { namespace: n, name: x } }\n"
            ),
        ]
    );
    let chains: Vec<_> = stored
        .iter()
        .map(|stored| stored.chain.as_ref().map(ToString::to_string))
        .collect();
    // What is in the last is not enough for a chain.
    assert_eq!(
        chains,
        [
            Some("Mutating:pods".to_owned()),
            Some("Mutating:jobs".to_owned()),
            None
        ]
    );
    assert!(
        stored
            .iter()
            .all(|stored| !stored.is_item && stored.file == Path::new("chains/a.yaml"))
    );
}

#[test]
fn names_of_definitions() {
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}- {{ kind: Pod }}\n",
        chain("b").replace('\n', "\n  ").trim_end_matches(' ')
    );
    let table = [
        (list.as_str(), vec![("AdmissionChain/b", Some("Mutating:b"))]),
        (
            "{\"kind\": \"ValidatingWebhookConfigurationList\", \"apiVersion\": \"admissionregistration.k8s.io/v1\",\n\
             \"items\": [{\"metadata\": {\"name\": \"a\"}}, {\"metadata\": {}}]}",
            vec![("ValidatingWebhookConfiguration/a", Some("Validating:a"))],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }",
            vec![],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }\nspec: {}",
            vec![("AdmissionWebhookConfiguration/n/x", None)],
        ),
        (
            "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: { namespace: n, name: x }\n\
             spec: { Metadata: { Namespace: m, Name: y } }",
            vec![("AdmissionWebhookConfiguration/m/y", None)],
        ),
        ("kind: Pod\nmetadata: { name: a }", vec![]),
        ("a: [", vec![]),
    ];
    for (text, expected) in table {
        let stored = of("f", text).documents();
        let found: Vec<_> = stored
            .iter()
            .map(|stored| {
                (
                    stored.id.to_string(),
                    stored.chain.as_ref().map(ToString::to_string),
                )
            })
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(id, chain)| (id.to_owned(), chain.map(str::to_owned)))
            .collect();
        assert_eq!(found, expected, "{text}");
        assert!(
            stored
                .iter()
                .all(|stored| stored.is_item == text.contains("items"))
        );
    }
    // What is shown of an item can be a document of its own.
    let stored = of("f", &list).documents();
    assert_eq!(stored[0].text.trim_end(), chain("b").trim_end());
}
