use admittance_definitions::{
    BcsObject, DefinitionFile, DefinitionId, DefinitionSet, ExpectedDefinitions, Mistakes, load_text,
};

/// Reads definitions in any format, as YAML or JSON. If they are invalid, checks that each mistake has a position. If
/// they are valid, checks three properties: Reading the file again gives the same chains. Applying the file's own
/// documents to the file changes nothing. Each document can be deleted.
pub fn definitions(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let name = if text.trim_start().starts_with('{') {
        "definitions/file.json"
    } else {
        "definitions/file.yaml"
    };
    let set = DefinitionSet::of_files(vec![DefinitionFile::file(name, text)]);
    match load_text(name, text) {
        // `load_text` accepts a text without definitions, and returns no chains. `set.chains()` reads the same text as
        // a file, and reports a mistake, because a file must have definitions.
        Ok(chains) => match set.chains() {
            Err(mistakes) if chains.is_empty() => check_mistakes(&mistakes, text),
            again => {
                assert_eq!(again.as_ref(), Ok(&chains), "what was accepted is accepted again");
                change_back_and_forth(&set);
            }
        },
        Err(mistakes) => check_mistakes(&mistakes, text),
    }
    check_bcs_object(input);
}

pub(crate) fn check_mistakes(mistakes: &Mistakes, text: &str) {
    assert!(!mistakes.is_empty(), "an error without a mistake");
    let lines = text.split('\n').count() + text.matches('\r').count();
    for mistake in mistakes {
        assert!(!mistake.message.is_empty(), "{mistake:?}");
        let line = mistake.location.line as usize;
        assert!(line <= lines, "{mistake} in a text of {lines} lines");
    }
}

fn change_back_and_forth(set: &DefinitionSet) {
    for stored in set.documents() {
        let applied = set.apply(&stored.text, "input", ExpectedDefinitions::Existing, &|_| None);
        // A document may be an item of a list in the file. Such an item cannot be replaced without the rest of the
        // list, so `apply` returns an error for it.
        let Ok(change) = applied else {
            continue;
        };
        assert_eq!(&change.set, set, "applying what is there changes it:\n{}", stored.text);
    }
    for stored in set.documents() {
        let id: DefinitionId = stored.id;
        if let Ok(change) = set.delete(&id) {
            change.set.chains().expect("what is left can be read");
            let is_left = change.set.documents().iter().any(|document| document.id == id);
            assert!(!is_left, "{id} was deleted and is there");
        }
    }
}

/// Reads a BCS definition. If the definition is valid, checks that it is the same after it is written with its defaults
/// and read again.
fn check_bcs_object(input: &[u8]) {
    if let Ok(object) = BcsObject::parse(input) {
        let text = object.to_text();
        let again = BcsObject::parse(text.as_bytes()).expect("a written definition can be read");
        assert_eq!(again.to_text(), text);
    }
}
