//! Tests of signatures in files next to a module's file.

use std::os::unix::fs::symlink;

use admittance_catalog::{
    ModuleReference,
    signature::{
        FoundSignature, ReferenceSource, SIGNATURE_SIZE_LIMIT, SIGNATURE_SUFFIXES, SignatureError, SignatureKind,
        describe, read_next_to_file, signature_url,
    },
};

use crate::subject::{check, fixture, key_requirement, module_bytes, outcome};

#[test]
fn signatures_are_found_next_to_a_link_and_to_its_target() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("versions")).unwrap();
    let file = root.join("versions/module-1.wasm");
    std::fs::write(&file, module_bytes()).unwrap();
    let link = root.join("module.wasm");
    symlink(&file, &link).unwrap();
    let reference = ModuleReference::File(link.clone());
    let look = || {
        let source = ReferenceSource::from_reference(&reference).unwrap();
        read_next_to_file(&link, source.path().unwrap()).unwrap()
    };
    assert!(look().signatures.is_empty());
    let required = key_requirement(&["p256.pub"]);
    let unsigned = check(&required, &reference, &module_bytes(), &look()).unwrap_err();
    assert!(matches!(unsigned, SignatureError::Unsigned { .. }), "{unsigned}");

    std::fs::write(root.join("versions/module-1.wasm.sig"), fixture("p256.sig")).unwrap();
    assert!(outcome(check(&required, &reference, &module_bytes(), &look())).starts_with("by the key"));
    std::fs::write(root.join("module.wasm.sig"), fixture("p256.sig")).unwrap();
    std::fs::write(root.join("module.wasm.sigstore.json"), "{}").unwrap();
    let material = look();
    let kinds: Vec<SignatureKind> = describe(&material).iter().map(|signature| signature.kind).collect();
    assert_eq!(
        kinds,
        [SignatureKind::Detached, SignatureKind::Bundle, SignatureKind::Detached]
    );
    assert!(outcome(check(&required, &reference, &module_bytes(), &material)).starts_with("by the key"));
}

#[test]
fn an_unreadable_signature_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let module = directory.path().join("module.wasm");
    let signature = directory.path().join("module.wasm.sig");
    let huge = std::fs::File::create(&signature).unwrap();
    huge.set_len(SIGNATURE_SIZE_LIMIT + 1).unwrap();
    let error = read_next_to_file(&module, &module).unwrap_err();
    assert!(matches!(error, SignatureError::TooLarge { .. }), "{error}");
    huge.set_len(SIGNATURE_SIZE_LIMIT).unwrap();
    assert_eq!(read_next_to_file(&module, &module).unwrap().signatures.len(), 1);

    std::fs::remove_file(&signature).unwrap();
    std::fs::create_dir(&signature).unwrap();
    let error = read_next_to_file(&module, &module).unwrap_err();
    assert!(matches!(error, SignatureError::Unreadable { .. }), "{error}");
}

#[test]
fn the_url_of_a_signature_keeps_the_query() {
    let url = "https://example.com/plugins/a.wasm?version=2".parse().unwrap();
    assert_eq!(
        SIGNATURE_SUFFIXES.map(|suffix| signature_url(&url, suffix).to_string()),
        [
            "https://example.com/plugins/a.wasm.sig?version=2",
            "https://example.com/plugins/a.wasm.sigstore.json?version=2",
        ]
    );
}

#[test]
fn the_number_of_signatures_is_limited() {
    let reference: ModuleReference = "oci://registry.example.com/a:1".parse().unwrap();
    let mut material = admittance_catalog::signature::Material::default();
    let signature = |index: usize| FoundSignature::Detached {
        name: index.to_string(),
        content: admittance_catalog::signature::Blob(Vec::new()),
    };
    let limit = admittance_catalog::signature::SIGNATURE_COUNT_LIMIT;
    for index in 0..limit {
        material.add(&reference, signature(index)).unwrap();
    }
    let error = material.add(&reference, signature(limit)).unwrap_err();
    assert!(matches!(error, SignatureError::TooMany { .. }), "{error}");
}
