use x509_parser::extensions::GeneralName;

use super::*;

#[test]
fn rustls_accepts_a_certificate_only_for_its_names() {
    let directory = TempDir::new().unwrap();
    let report = make_certs(
        &directory,
        "--service hook.ns --service images.image-ns --host localhost --host 127.0.0.1 --host ::1 \
         --host *.example.com --client driver",
    )
    .unwrap();
    for (file, names, others) in [
        (
            "hook.ns",
            &[
                "hook.ns",
                "hook.ns.svc",
                "hook.ns.svc.cluster.local",
                "localhost",
                "127.0.0.1",
                "::1",
                "a.example.com",
            ][..],
            &["images.image-ns", "hook", "example.com", "127.0.0.2", "driver"][..],
        ),
        (
            "images.image-ns",
            &["images.image-ns", "images.image-ns.svc", "localhost"],
            &["hook.ns", "hook.ns.svc"],
        ),
        ("driver", &[], &["driver", "localhost"]),
    ] {
        let path = directory.path().join(format!("{file}.pem"));
        for name in names {
            assert!(is_valid_server(&report, &path, name), "{file} for {name}");
        }
        for name in others {
            assert!(!is_valid_server(&report, &path, name), "{file} for {name}");
        }
        assert_eq!(is_valid_client(&report, &path), file == "driver", "{file}");
    }
}

#[test]
fn a_certificate_has_the_requested_names_and_its_key_usage() {
    let directory = TempDir::new().unwrap();
    let report = make_certs(&directory, "--service hook.ns --host 127.0.0.1 --days 30").unwrap();
    let files = &report.certificates[0].entry.files;
    let leaf = read_der(&files.certificate);
    let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    let extension = leaf.subject_alternative_name().unwrap().unwrap().value;
    let names: Vec<_> = extension.general_names.iter().map(GeneralName::to_string).collect();
    assert_eq!(
        names,
        [
            "DNSName(hook.ns)",
            "DNSName(hook.ns.svc)",
            "DNSName(hook.ns.svc.cluster.local)",
            "IPAddress(7f:00:00:01)"
        ]
    );
    assert_eq!(leaf.subject().to_string(), "CN=hook.ns");
    assert!(!leaf.is_ca());
    assert!(leaf.extended_key_usage().unwrap().unwrap().value.server_auth);
    let days = |certificate: &x509_parser::certificate::X509Certificate<'_>| {
        (certificate.validity().not_after.timestamp() - now().unix_timestamp() + 60) / 86_400
    };
    assert_eq!(days(&leaf), 30);

    let authority = read_der(&report.ca.files.certificate);
    let (_, authority) = x509_parser::parse_x509_certificate(&authority).unwrap();
    assert!(authority.is_ca());
    assert_eq!(days(&authority), 3650);
    assert_eq!(leaf.issuer(), authority.subject());
}
