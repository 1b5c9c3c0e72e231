use time::Duration;

use super::*;

/// A certificate is made with `--service hook.ns --days 90`. Then its files are changed, and some days later it is
/// renewed.
/// (case, change to the files, days until the renewal, arguments of the renewal, whether the certificate is replaced)
#[test]
fn renewal_replaces_only_certificates_that_need_it() {
    const LINE: &str = "--service hook.ns";
    type Change = fn(&Path);
    let cases: [(&str, Change, i64, &str, bool); 11] = [
        ("fresh", |_| {}, 0, LINE, false),
        ("two thirds of its time are not over", |_| {}, 59, LINE, false),
        ("less than a third is left", |_| {}, 61, LINE, true),
        ("it has expired", |_| {}, 91, LINE, true),
        ("another name", |_| {}, 0, "--service hook.ns --host localhost", true),
        ("the same name as a host", |_| {}, 0, "--host hook.ns", true),
        ("a client", |_| {}, 0, "--client hook.ns", true),
        (
            "no key",
            |at| std::fs::remove_file(at.join("hook.ns.key")).unwrap(),
            0,
            LINE,
            true,
        ),
        (
            "another key",
            |at| {
                std::fs::copy(at.join("ca.key"), at.join("hook.ns.key")).unwrap();
            },
            0,
            LINE,
            true,
        ),
        (
            "no certificate in it",
            |at| std::fs::write(at.join("hook.ns.pem"), "x").unwrap(),
            0,
            LINE,
            true,
        ),
        (
            "another CA",
            |at| {
                std::fs::remove_file(at.join("ca.pem")).unwrap();
                std::fs::remove_file(at.join("ca.key")).unwrap();
            },
            0,
            LINE,
            true,
        ),
    ];
    for (case, change, days, line, expected) in cases {
        let directory = TempDir::new().unwrap();
        make_certs(&directory, "--service hook.ns --days 90").unwrap();
        change(directory.path());
        let path = directory.path().join("hook.ns.pem");
        let before = std::fs::read(&path).unwrap();
        let line = arguments(&directory, &format!("{line} --renew --days 90"));
        let report = make_certificates(&line, now() + Duration::days(days)).unwrap();
        assert_eq!(report.certificates[0].entry.is_new, expected, "{case}");
        assert_eq!(std::fs::read(&path).unwrap() != before, expected, "{case}");
        assert_eq!(report_json(&report)["certificates"][0]["new"], expected, "{case}");
        let verb = if expected { "wrote" } else { "kept" };
        let printed = format!("{verb} {}", path.display());
        assert!(report.to_string().contains(&printed), "{case}: {report}");
        let later_report = make_certificates(&line, now() + Duration::days(days)).unwrap();
        assert!(!later_report.certificates[0].entry.is_new, "{case}");
    }
}

#[test]
fn renewal_creates_missing_certificates() {
    let directory = TempDir::new().unwrap();
    let report = make_certs(&directory, "--service hook.ns --client driver --renew").unwrap();
    assert!(report.ca.is_new);
    assert!(report.certificates.iter().all(|certificate| certificate.entry.is_new));
    let changed_report = make_certs(&directory, "--service hook.ns --host ::1 --client driver --renew").unwrap();
    let new: Vec<_> = changed_report
        .certificates
        .iter()
        .map(|certificate| certificate.entry.is_new)
        .collect();
    assert_eq!(new, [true, false]);
    let unchanged_report = make_certs(&directory, "--service hook.ns --host ::1 --client driver --renew").unwrap();
    assert!(
        !unchanged_report.certificates[0].entry.is_new,
        "an address is known again"
    );
}
