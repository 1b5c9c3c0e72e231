use super::*;

const HEAD: &str = "kind: AdmissionChain\nspec:\n  stages:\n  - name: a # the first\n    plugin:\n";

#[test]
fn granted_environment_values_are_redacted_and_the_rest_is_unchanged() {
    let yaml =
        |environment: &str| format!("{HEAD}      allow:\n        environment:{environment}\n      memory: 2MiB\n");
    // (file name, text of the file, text after the redaction)
    for (file, text, expected) in [
        (
            "a.yaml",
            yaml(" { A: s3cret, B: \"s3cret\" }"),
            yaml(" { A: \"[redacted]\", B: \"[redacted]\" }"),
        ),
        (
            "a.yaml",
            yaml("\n          A: s3cret\n          B: ''"),
            yaml("\n          A: \"[redacted]\"\n          B: \"[redacted]\""),
        ),
        (
            "a.yaml",
            yaml("\n          A: |\n            s3cret\n            s3cret\n          B: s3cret # why"),
            yaml("\n          A: |\n            \"[redacted]\"\n          B: \"[redacted]\" # why"),
        ),
        (
            "a.yaml",
            yaml(" { A: s3cret }")
                .replace("allow", "Allow")
                .replace("environment", "\"\\x45nvironment\""),
            yaml(" { A: \"[redacted]\" }")
                .replace("allow", "Allow")
                .replace("environment", "\"\\x45nvironment\""),
        ),
        (
            "a.yaml",
            yaml(" { A: &a s3cret, B: *a, C: { D: &d s3cret }, E: *d }"),
            yaml(" { A: &a \"[redacted]\", B: *a, C: \"[redacted]\", E: *d }"),
        ),
        (
            "a.yaml",
            format!("{}---\n{}", yaml(" { A: s3cret }"), yaml(" { B: s3cret }")),
            format!(
                "{}---\n{}",
                yaml(" { A: \"[redacted]\" }"),
                yaml(" { B: \"[redacted]\" }")
            ),
        ),
        (
            "a.json",
            "{\n\t\"items\": [{\"plugin\": {\"allow\": {\"environment\": {\"A\": \"s3cret\"}}}}]}".to_owned(),
            "{\n\t\"items\": [{\"plugin\": {\"allow\": {\"environment\": {\"A\": \"[redacted]\"}}}}]}".to_owned(),
        ),
        (
            "a.yaml",
            "kind: [ s3cret, environment".to_owned(),
            WITHHELD_TEXT.to_owned(),
        ),
        ("a.yaml", "kind: [ no grant".to_owned(), "kind: [ no grant".to_owned()),
        (
            "a.yaml",
            yaml(" { A: s3cret").replace("environment", "settings"),
            yaml(" { A: s3cret").replace("environment", "settings"),
        ),
    ] {
        let redacted = without_granted_values(Path::new(file), &text);
        assert_eq!(redacted, expected, "{text}");
    }
}
