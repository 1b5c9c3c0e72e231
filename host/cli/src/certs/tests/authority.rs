use time::Duration;

use super::*;

#[test]
fn an_existing_authority_signs_further_certificates() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let report = make_certs(&first, "--service hook.ns").unwrap();
    assert!(report.ca.is_new);

    let further_report = make_certs(&first, "--service other.ns").unwrap();
    assert!(!further_report.ca.is_new);
    assert_eq!(further_report.ca_bundle, report.ca_bundle);
    assert!(is_valid_server(
        &report,
        &first.path().join("other.ns.pem"),
        "other.ns.svc"
    ));

    let ca = first.path().join("ca.pem");
    let elsewhere = make_certs(&second, &format!("--service third.ns --ca {}", ca.display())).unwrap();
    assert_eq!(elsewhere.ca_bundle, report.ca_bundle);
    assert!(is_valid_server(
        &report,
        &second.path().join("third.ns.pem"),
        "third.ns"
    ));
    assert!(!second.path().join("ca.pem").exists());

    let forced = make_certs(&first, "--service hook.ns --force").unwrap();
    assert_eq!(forced.ca_bundle, report.ca_bundle);
}

#[test]
fn a_new_authority_is_trusted_together_with_the_previous_one() {
    let directory = TempDir::new().unwrap();
    let leaf = directory.path().join("hook.ns.pem");
    let first = make_certs(&directory, "--service hook.ns").unwrap();
    let first_key = std::fs::read(directory.path().join("ca.key")).unwrap();

    let second = make_certs(&directory, "--new-ca").unwrap();
    assert!(second.ca.is_new);
    let bundle = std::fs::read(directory.path().join("ca.pem")).unwrap();
    assert_eq!(BASE64_STANDARD.decode(&second.ca_bundle).unwrap(), bundle);
    assert_eq!(root_store(&second.ca_bundle).len(), 2);
    assert!(
        is_valid_server(&second, &leaf, "hook.ns"),
        "it was not touched, and is trusted still"
    );

    // After an interruption, ca.pem may contain the new CA while ca.key belongs to the previous one.
    let second_key = std::fs::read(directory.path().join("ca.key")).unwrap();
    std::fs::write(directory.path().join("ca.key"), first_key).unwrap();
    make_certs(&directory, "--service between.ns").unwrap();
    assert!(is_valid_server(
        &first,
        &directory.path().join("between.ns.pem"),
        "between.ns"
    ));
    std::fs::write(directory.path().join("ca.key"), second_key).unwrap();

    let renewed = make_certs(&directory, "--service hook.ns --renew").unwrap();
    assert!(renewed.certificates[0].entry.is_new && !renewed.ca.is_new);
    assert!(is_valid_server(&second, &leaf, "hook.ns"));
    assert!(!is_valid_server(&first, &leaf, "hook.ns"), "the new one signs");

    let third = make_certs(&directory, "--new-ca").unwrap();
    assert_eq!(root_store(&third.ca_bundle).len(), 2, "the first is gone");
    assert!(is_valid_server(&third, &leaf, "hook.ns"));

    let much_later = make_certificates(&arguments(&directory, "--new-ca"), now() + Duration::days(3651)).unwrap();
    assert_eq!(
        root_store(&much_later.ca_bundle).len(),
        1,
        "what has expired is not trusted"
    );
}

#[test]
fn an_authority_that_expires_within_a_year_is_reported() {
    let directory = TempDir::new().unwrap();
    make_certs(&directory, "").unwrap();
    for (days, expected) in [(0, false), (3284, false), (3286, true)] {
        let report = make_certificates(&arguments(&directory, ""), now() + Duration::days(days)).unwrap();
        assert_eq!(report.to_string().contains("--new-ca"), expected, "{days}");
    }
}

#[test]
fn a_damaged_certificate_authority_is_refused() {
    type Change = fn(&Path);
    let cases: [(&str, Change, &str); 7] = [
        (
            "no key",
            |at| std::fs::remove_file(at.join("ca.key")).unwrap(),
            "restore it",
        ),
        (
            "no certificate",
            |at| std::fs::remove_file(at.join("ca.pem")).unwrap(),
            "restore it",
        ),
        (
            "no PEM",
            |at| std::fs::write(at.join("ca.pem"), "x").unwrap(),
            "contains no certificate",
        ),
        (
            "broken key",
            |at| std::fs::write(at.join("ca.key"), "x").unwrap(),
            "key cannot be read",
        ),
        (
            "another key",
            |at| {
                std::fs::copy(at.join("hook.ns.key"), at.join("ca.key")).unwrap();
            },
            "does not match the certificate",
        ),
        (
            "not a CA",
            |at| {
                std::fs::copy(at.join("hook.ns.key"), at.join("ca.key")).unwrap();
                std::fs::copy(at.join("hook.ns.pem"), at.join("ca.pem")).unwrap();
            },
            "CA:TRUE",
        ),
        (
            "the key in the same file",
            |at| {
                let both = ["ca.pem", "ca.key"].map(|name| std::fs::read_to_string(at.join(name)).unwrap());
                std::fs::write(at.join("ca.pem"), both.concat()).unwrap();
            },
            "a separate file",
        ),
    ];
    for (case, change, part) in cases {
        let directory = TempDir::new().unwrap();
        make_certs(&directory, "--service hook.ns").unwrap();
        change(directory.path());
        let error = make_certs(&directory, "--service other.ns").unwrap_err();
        assert!(error.to_string().contains(part), "{case}: {error}");
        assert!(!directory.path().join("other.ns.pem").exists(), "{case}");
    }
}

#[test]
fn no_certificate_outlives_its_authority() {
    let directory = TempDir::new().unwrap();
    let line = "--service hook.ns --days 3650";
    let report = make_certs(&directory, line).unwrap();
    let later = now() + Duration::days(3000);
    let later_report = make_certificates(&arguments(&directory, "--service other.ns --days 3650"), later).unwrap();
    assert_eq!(
        later_report.certificates[0].entry.not_after.date(),
        report.ca.not_after.date()
    );
    let too_late = now() + Duration::days(3651);
    let error = make_certificates(&arguments(&directory, "--service third.ns"), too_late).unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}
