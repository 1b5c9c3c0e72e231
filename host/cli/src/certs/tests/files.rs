use super::*;

#[test]
fn existing_certificates_are_kept_without_the_option_force() {
    let directory = TempDir::new().unwrap();
    make_certs(&directory, "--service hook.ns").unwrap();
    let read_key = || std::fs::read(directory.path().join("hook.ns.key")).unwrap();
    let before = read_key();
    let error = make_certs(&directory, "--service new.ns --service hook.ns")
        .unwrap_err()
        .to_string();
    for part in ["hook.ns.pem", "hook.ns.key already exist;", "--force"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("new.ns"), "{error}");
    assert_eq!(read_key(), before);
    assert!(!directory.path().join("new.ns.pem").exists(), "all or nothing");

    make_certs(&directory, "--service hook.ns --force").unwrap();
    assert_ne!(read_key(), before);
}

#[cfg(unix)]
#[test]
fn key_files_are_readable_only_by_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().unwrap();
    make_certs(&directory, "--service hook.ns --client driver").unwrap();
    let mut file_count = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let is_key = entry.path().extension().is_some_and(|extension| extension == "key");
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if is_key { 0o600 } else { 0o644 }, "{:?}", entry.path());
        file_count += 1;
    }
    assert_eq!(file_count, 6, "no temporary file is left");
}

#[test]
fn certificate_files_are_named_after_their_subjects() {
    for (line, expected) in [
        ("", Ok(vec!["ca"])),
        ("--host localhost --host 127.0.0.1", Ok(vec!["ca", "localhost"])),
        ("--host ::1", Ok(vec!["ca", "__1"])),
        ("--host *.example.com", Ok(vec!["ca", "_.example.com"])),
        ("--service hook.ns --host localhost", Ok(vec!["ca", "hook.ns"])),
        ("--client driver", Ok(vec!["ca", "driver"])),
        ("--service hook.ns --client hook.ns", Err("both be written")),
        ("--client ca", Err("both be written")),
        ("--client a --ca /nowhere/ca.pem", Err("/nowhere/ca.pem")),
    ] {
        let directory = TempDir::new().unwrap();
        match (make_certs(&directory, line), expected) {
            (Ok(_), Ok(names)) => {
                for name in &names {
                    assert!(directory.path().join(format!("{name}.pem")).exists(), "{line}: {name}");
                    assert!(directory.path().join(format!("{name}.key")).exists(), "{line}: {name}");
                }
                let count = std::fs::read_dir(directory.path()).unwrap().count();
                assert_eq!(count, 2 * names.len(), "{line}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{line}: {error}"),
            (made, _) => panic!("{line}: {made:?}"),
        }
    }
}
