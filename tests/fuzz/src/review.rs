use admittance::admission::{Object, Request, Review, read_review, write_review};

/// Reads an AdmissionReview, as kube-apiserver would send it. If it is valid, writes it in the format for webhooks, and
/// reads it again. Checks that nothing is lost, and that every string keeps its spelling.
pub fn review(input: &[u8]) {
    let Ok(Review { version, request }) = read_review(input.to_vec()) else {
        return;
    };
    let written_review = write_review(version, &request);
    let again = read_review(written_review).expect("a written review can be read");
    assert_eq!(again.version, version);
    assert_same(&request, &again.request);
}

fn assert_same(before: &Request, after: &Request) {
    assert_eq!(before.uid, after.uid);
    assert_eq!(before.operation, after.operation);
    assert_eq!(before.kind, after.kind);
    assert_eq!(before.resource, after.resource);
    assert_eq!(before.subresource, after.subresource);
    assert_eq!(before.requested_kind, after.requested_kind);
    assert_eq!(before.name, after.name);
    assert_eq!(before.namespace, after.namespace);
    assert_eq!(before.user, after.user);
    assert_eq!(before.dry_run, after.dry_run);
    for (before, after) in [
        (&before.object, &after.object),
        (&before.old_object, &after.old_object),
        (&before.options, &after.options),
    ] {
        let text = |object: &Option<Object>| object.as_ref().map(|object| object.text().to_owned());
        assert_eq!(text(before), text(after));
    }
}
