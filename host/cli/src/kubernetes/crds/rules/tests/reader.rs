//! Tests that schemas and rules refuse the same documents as the reader of definitions. For this, complete definitions
//! are changed in one place at a time.

use std::collections::BTreeSet;

use admittance_definitions::CHAIN_SCHEMA;
use serde_json::{Value as Json, json};

use super::{
    evaluator::{Schemas, matches_pattern, satisfies_schema},
    examples::{ExampleDocument, examples},
    read_document,
};
use crate::schema;

/// A meaningless string that these tests write into documents. No field has this name.
const UNKNOWN_WORD: &str = "qqqq";

fn collect_pointers(value: &Json, pointer: &str, pointers: &mut Vec<String>) {
    pointers.push(pointer.to_owned());
    for (name, value) in value.as_object().into_iter().flatten() {
        collect_pointers(value, &format!("{pointer}/{name}"), pointers);
    }
    for (index, value) in value.as_array().into_iter().flatten().enumerate() {
        collect_pointers(value, &format!("{pointer}/{index}"), pointers);
    }
}

#[derive(Clone, Debug)]
enum ExampleChange {
    To(Json),
    Removal,
}

impl ExampleChange {
    fn kind(&self) -> ExampleKind {
        match self {
            Self::To(Json::String(_)) => ExampleKind::Text,
            Self::To(_) => ExampleKind::Value,
            Self::Removal => ExampleKind::Removal,
        }
    }

    fn apply_to(&self, document: &Json, pointer: &str) -> Json {
        let mut changed = document.clone();
        match (self, pointer.rsplit_once('/')) {
            (Self::To(other), _) => *changed.pointer_mut(pointer).unwrap() = other.clone(),
            (Self::Removal, Some((parent, name))) => match changed.pointer_mut(parent).unwrap() {
                Json::Object(fields) => drop(fields.remove(name)),
                list => drop(list.as_array_mut().unwrap().remove(name.parse().unwrap())),
            },
            (Self::Removal, None) => {}
        }
        changed
    }
}

/// Returns the changes to try at one place of the document. `null` is not among them, because the results differ by
/// design: the reader treats a field with `null` as absent, and an API server refuses it.
fn example_changes(document: &Json, pointer: &str, schema: &Json) -> Vec<ExampleChange> {
    let value = document.pointer(pointer).unwrap();
    let mut replacements = vec![
        json!(UNKNOWN_WORD),
        json!(""),
        json!("7"),
        json!(-1),
        json!(0),
        json!(7),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
    ];
    match value {
        Json::String(text) => {
            replacements.extend([json!(text.to_uppercase()), json!(text.to_lowercase())]);
            let unknown = ExampleChange::To(json!(UNKNOWN_WORD)).apply_to(document, pointer);
            replacements.extend(suggested_words(&unknown).map(Json::String));
            replacements.extend(schema["enum"].as_array().into_iter().flatten().cloned());
        }
        Json::Object(fields) => {
            let mut extended_fields = fields.clone();
            extended_fields.insert(UNKNOWN_WORD.to_owned(), json!(7));
            replacements.push(extended_fields.into());
        }
        Json::Array(items) => replacements.push(items.iter().chain(items.first()).cloned().collect()),
        _ => {}
    }
    for (bound, beyond) in [("minimum", -1), ("maximum", 1)] {
        let bound = schema[bound].as_i64().into_iter();
        replacements.extend(bound.flat_map(|bound| [json!(bound), json!(bound + beyond)]));
    }
    replacements.retain(|other| other != value);
    let removal = (!pointer.is_empty()).then_some(ExampleChange::Removal);
    replacements.into_iter().map(ExampleChange::To).chain(removal).collect()
}

/// If the reader refuses the document, its error message suggests what to write, such as `write Fail or Ignore`.
/// Returns the suggested words, here `Fail` and `Ignore`.
fn suggested_words(document: &Json) -> impl Iterator<Item = String> {
    let fixes: Vec<_> = match read_document(document) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.iter().map(|mistake| mistake.fix.clone()).collect(),
    };
    fixes.into_iter().flat_map(|fix| {
        let words = fix
            .strip_prefix("write ")
            .unwrap_or_default()
            .split(", ")
            .flat_map(|words| words.split(" or "));
        words.map(str::to_owned).collect::<Vec<_>>()
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExampleKind {
    Text,
    Value,
    Removal,
}

/// Whether a changed document is refused by the schema for files, by the schema for resources, and by the reader of
/// definitions, in this order.
type RefusedBy = [bool; 3];

const BY_READER: RefusedBy = [false, false, true];
const BY_READER_AND_FILES: RefusedBy = [true, false, true];

/// The places where the schemas and the reader of definitions differ on purpose.
/// (pattern of paths, kinds of changes, who refuses the changed document, reason for the difference)
const DIFFERENCES: &[(&str, &[ExampleKind], RefusedBy, &str)] = &[
    (
        "^/metadata/(labels|annotations)(/[a-z]+)?$",
        &[ExampleKind::Value],
        BY_READER,
        "API servers check these values, whatever a schema says",
    ),
    (
        "(e|E)xpression$",
        &[ExampleKind::Text],
        BY_READER,
        "CEL is not described by a pattern",
    ),
    (
        "/group/plugins/[a-z]+$",
        &[ExampleKind::Removal],
        BY_READER,
        "the expression uses it",
    ),
    (
        "/memory$",
        &[ExampleKind::Text],
        BY_READER,
        "the size that a text stands for may be out of range",
    ),
    (
        "/allow/http/[0-9]",
        &[ExampleKind::Text, ExampleKind::Value, ExampleKind::Removal],
        BY_READER_AND_FILES,
        "structural schemas have no choice of a text or an object",
    ),
    (
        "/allow/images/[0-9]+$",
        &[ExampleKind::Text],
        BY_READER,
        "names in a registry are parsed",
    ),
    ("/caBundle$", &[ExampleKind::Text], BY_READER, "certificates are parsed"),
    (
        "/rego/(file|libs/[0-9]+)$",
        &[ExampleKind::Text],
        BY_READER,
        "the file must exist",
    ),
    (
        "/service/path$",
        &[ExampleKind::Text],
        BY_READER,
        "what a path may contain depends on the protocol",
    ),
];

async fn find_differences(example: ExampleDocument) -> Vec<(String, ExampleChange, RefusedBy)> {
    let ExampleDocument {
        document,
        start_pointer: under,
    } = example;
    let schemas = Schemas::for_kind(document["kind"].as_str().unwrap());
    let refused = async |document: &Json| {
        [
            schemas.files_refuse(document),
            schemas.resources_refuse(document).await,
            read_document(document).is_err(),
        ]
    };
    assert_eq!(refused(&document).await, [false; 3], "{document:#}");
    let mut pointers = Vec::new();
    collect_pointers(document.pointer(under).unwrap(), under, &mut pointers);
    let mut differences = Vec::new();
    for pointer in pointers {
        for change in example_changes(&document, &pointer, schemas.schema_at(&pointer)) {
            let [files, resources, reader] = refused(&change.apply_to(&document, &pointer)).await;
            // The schema for resources must refuse exactly the documents that the reader of definitions refuses. The
            // schema for files may refuse fewer, because it has no rules in CEL. But it must not refuse a document that
            // the reader accepts.
            if resources != reader || (files && !reader) {
                differences.push((pointer.clone(), change, [files, resources, reader]));
            }
        }
    }
    differences
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_refuse_the_documents_that_the_reader_refuses() {
    let tasks: Vec<_> = examples()
        .into_iter()
        .map(|example| tokio::spawn(find_differences(example)))
        .collect();
    let mut matched_rows = BTreeSet::new();
    let mut unknown = Vec::new();
    for task in tasks {
        for (pointer, change, refused) in task.await.unwrap() {
            let is_matching = |(pattern, kinds, refused_by, _): &&(&str, &[ExampleKind], RefusedBy, &str)| {
                matches_pattern(pattern, &pointer) && kinds.contains(&change.kind()) && *refused_by == refused
            };
            match DIFFERENCES.iter().position(|row| is_matching(&row)) {
                Some(row) => drop(matched_rows.insert(row)),
                None => unknown.push(format!("{pointer}: {change:?} is refused by {refused:?}")),
            }
        }
    }
    assert!(
        unknown.is_empty(),
        "the schema of files, that of resources and the reader differ:\n{}",
        unknown.join("\n")
    );
    for (row, difference) in DIFFERENCES.iter().enumerate() {
        assert!(
            matched_rows.contains(&row),
            "schemas and reader no longer differ here, so remove the row: {difference:?}"
        );
    }
}

#[test]
fn the_schema_examples_together_have_every_field() {
    let examples = examples();
    for (is_exception, text) in [(false, CHAIN_SCHEMA), (true, schema::EXCEPTION)] {
        let documents: Vec<_> = examples
            .iter()
            .map(|example| &example.document)
            .filter(|document| (document["kind"] == "AdmissionException") == is_exception)
            .collect();
        let schema: Json = serde_json::from_str(text).unwrap();
        let mut pointers = Vec::new();
        collect_pointers(&schema, "", &mut pointers);
        for pointer in pointers {
            let (parent, _) = pointer.rsplit_once('/').unwrap_or_default();
            let mut without = schema.clone();
            let field = without.pointer_mut(&pointer).unwrap();
            if !parent.ends_with("/properties") || *field == Json::Bool(false) {
                continue;
            }
            *field = Json::Bool(false);
            let mut documents = documents.iter();
            assert!(
                documents.any(|document| !satisfies_schema(&without, &without, document)),
                "{pointer}"
            );
        }
    }
}
