use super::*;

#[test]
fn a_stamp_is_reliable_when_the_file_is_older_than_the_clock_resolution() {
    let change_time = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
    for (changed, now, expected) in [
        (Some(change_time), change_time, false),
        (Some(change_time), change_time + TIMESTAMP_COARSENESS, false),
        (
            Some(change_time),
            change_time + TIMESTAMP_COARSENESS + Duration::from_nanos(1),
            true,
        ),
        (Some(change_time), change_time - Duration::from_secs(1), false),
        (None, change_time, false),
    ] {
        let stamp = Stamp {
            file: (0, 0),
            length: 0,
            modified: None,
            changed,
        };
        assert_eq!(stamp.is_settled(now), expected, "{changed:?} at {now:?}");
    }
}

#[test]
fn a_file_is_read_again_when_its_stamp_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "1").unwrap();
    let mut digests = DigestCache::default();
    let stamp = Stamp::from_metadata(&path.metadata().unwrap());
    // The test puts a wrong digest into the cache. If the fingerprint contains this wrong digest, the digest came from
    // the cache, and the file was not read again.
    let cached_digest = [7; 32];
    digests.last.insert(path.clone(), (stamp, cached_digest));
    for _ in 0..2 {
        let fingerprint = Fingerprint::read_with_digests([path.clone()], &[], &mut digests);
        assert_eq!(fingerprint.contents[&path], FileContent::File(cached_digest));
    }
    std::fs::write(&path, "22").unwrap();
    let expected = FileContent::File(Sha256::digest("22").into());
    for _ in 0..2 {
        let fingerprint = Fingerprint::read_with_digests([path.clone()], &[], &mut digests);
        assert_eq!(fingerprint.contents[&path], expected);
    }
}

#[test]
fn the_digest_of_a_fingerprint_depends_on_paths_and_contents() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
    std::fs::write(&a, "1").unwrap();
    let digest_of = |paths: &[&PathBuf]| Fingerprint::read(paths.iter().map(|path| (*path).clone())).digest();
    let digests = [
        digest_of(&[&a]),
        digest_of(&[&a, &b]),
        digest_of(&[&b]),
        digest_of(&[&directory.path().to_owned()]),
    ];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(digest), "{index}");
    }
    assert_eq!(digest_of(&[&a]), digests[0]);
    std::fs::write(&b, "1").unwrap();
    assert_eq!(digest_of(&[&a]), digests[0]);
    assert_ne!(digest_of(&[&a, &b]), digests[1]);
    assert_ne!(digest_of(&[&directory.path().to_owned()]), digests[3]);
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    let before = Fingerprint::read([path.clone()]);
    assert_eq!(Fingerprint::read([path.clone()]), before);
    file.set_len((1 << 40) + 1).unwrap();
    assert_ne!(Fingerprint::read([path]), before);
}

/// A second write within the clock's resolution may leave the stamp of the file unchanged.
#[test]
fn a_file_that_was_just_written_is_read_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "1").unwrap();
    let mut digests = DigestCache::default();
    Fingerprint::read_with_digests([path.clone()], &[], &mut digests);
    assert!(digests.last.is_empty());
}

#[test]
fn files_with_other_extensions_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let read_fingerprint =
        || Fingerprint::read_extensions([directory.path().to_owned(), path("named.log")], &["yaml", "json"]);
    let mut previous = read_fingerprint();
    for (name, expected) in [
        ("a.yaml", true),
        ("A.JSON", true),
        ("a.yaml~", false),
        (".#a.yaml", false),
        ("a.yaml.bak", false),
        ("yaml", false),
        ("app.log", false),
        ("named.log", true),
    ] {
        std::fs::write(path(name), "1").unwrap();
        let current = read_fingerprint();
        assert_eq!(current != previous, expected, "{name}");
        previous = current;
    }
}
