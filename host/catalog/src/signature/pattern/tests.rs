use super::*;

#[test]
fn a_source_pattern_matches_only_the_expected_sources() {
    for (pattern, reference, expected) in [
        ("**", "https://example.com/a", true),
        ("**", "oci://example.com/a", true),
        ("https://**", "https://example.com/a", true),
        ("https://**", "oci://example.com/a", false),
        ("oci://**", "oci://example.com/a", true),
        ("file:**", "oci://example.com/a", false),
        ("https://example.com/**", "https://example.com/a/b.wasm", true),
        ("https://example.com/*", "https://example.com/a/b.wasm", false),
        ("https://example.com/**", "https://example.com.evil.example/a", false),
        ("https://example.com/**", "https://EXAMPLE.COM./a", true),
        ("https://Example.com/**", "https://example.com/a", true),
        ("https://example.com/**", "https://example.com:8443/a", false),
        ("https://example.com:8443/**", "https://example.com:8443/a", true),
        ("https://example.com:443/**", "https://example.com/a", true),
        ("https://example.com/a/**", "https://example.com/a/../b", false),
        ("https://example.com/a/**", "https://example.com/%61/b", true),
        ("https://*.example.com/**", "https://a.example.com/b", true),
        ("https://*.example.com/**", "https://example.com/b", false),
        ("https://*.example.com/**", "https://a.b.example.com/b", false),
        ("https://example.com/a.wasm", "https://example.com/a.wasm?b=c", true),
        ("oci://example.com/plugins/**", "oci://example.com/plugins/a:1", true),
        ("oci://example.com/plugins/**", "oci://example.com/plugins/a/b", true),
        ("oci://example.com/plugins/**", "oci://EXAMPLE.com:443/plugins/a", true),
        (
            "oci://example.com/plugins/**",
            "oci://example.com:5000/plugins/a",
            false,
        ),
        ("oci://example.com/plugins/**", "oci://example.com/plugins", false),
        ("oci://example.com/plugins/*", "oci://example.com/plugins/a/b", false),
        ("oci://example.com/plugins", "oci://example.com/plugins:1", true),
        ("oci://[::1]:5000/**", "oci://[::1]:5000/a", true),
        ("oci://docker.io/**", "oci://registry-1.docker.io/a", true),
        ("oci://docker.io/a", "oci://index.docker.io/library/a", true),
        ("oci://docker.io:5000/a", "oci://docker.io:5000/a", true),
        ("oci://docker.io:5000/a", "oci://docker.io:5000/library/a", false),
    ] {
        let source = ReferenceSource::from_reference(&reference.parse().unwrap()).unwrap();
        let pattern: SourcePattern = pattern.parse().unwrap();
        assert_eq!(pattern.matches(&source), expected, "{pattern} {reference}");
    }
}

#[test]
fn files_are_matched_by_their_path_after_symbolic_links() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    for name in ["good", "evil"] {
        std::fs::create_dir(root.join(name)).unwrap();
        std::fs::write(root.join(name).join("a.wasm"), "").unwrap();
    }
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(root.join(to), root.join(at)).unwrap();
    link("evil/a.wasm", "good/link.wasm");
    link("good", "alias");
    for (pattern, file, expected) in [
        ("good/**", "good/a.wasm", true),
        ("good/*.wasm", "good/a.wasm", true),
        ("good/a.wasm", "good/a.wasm", true),
        ("good/**", "evil/../good/a.wasm", true),
        ("good/**", "good/../evil/a.wasm", false),
        ("good/**", "good/link.wasm", false),
        ("evil/**", "good/link.wasm", true),
        ("good/**", "alias/a.wasm", true),
        ("alias/**", "alias/a.wasm", true),
        ("alias/**", "good/a.wasm", true),
        ("goo/**", "good/a.wasm", false),
        ("*/a.wasm", "good/a.wasm", true),
        ("**", "good/a.wasm", true),
    ] {
        let source = ReferenceSource::from_reference(&crate::ModuleReference::File(root.join(file))).unwrap();
        let pattern: SourcePattern = format!("file:{}/{pattern}", root.display()).parse().unwrap();
        assert_eq!(pattern.matches(&source), expected, "{pattern} {file}");
    }
}

#[test]
fn an_invalid_pattern_is_reported_with_the_fix() {
    for (text, problem) in [
        ("", "names no source"),
        ("*", "names no source"),
        ("a/**", "names no source"),
        ("http://example.com/**", "names no source"),
        ("file:plugins/**", "has no absolute path"),
        ("file:/a/../b", "has an empty part, a `.` or a `..` in its path"),
        ("file:/a//b", "has an empty part, a `.` or a `..` in its path"),
        ("file:/a**", "has `**` next to other characters"),
        ("https://example.com", "names no host and path"),
        ("https://example.com**", "names no host and path"),
        ("https://*/a", "names no host"),
        ("https://a*.example.com/a", "names no host"),
        ("https://user@example.com/**", "has a user, or no host"),
        (
            "https://example.com/a?b",
            "has a query, a fragment, an escape or a `\\`",
        ),
        (
            "https://example.com/%61",
            "has a query, a fragment, an escape or a `\\`",
        ),
        ("oci://example.com", "names no registry and repository"),
        ("oci://example.com/a:1", "has a tag or a digest"),
        ("oci://example.com/A", "names no repository"),
        ("oci://example.com:port/a", "has an invalid port"),
        ("oci://*.1.2.3.4/a", "names no registry"),
    ] {
        let error = text.parse::<SourcePattern>().unwrap_err();
        assert_eq!(error.problem, problem, "{text}");
    }
}
