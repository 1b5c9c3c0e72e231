//! Replaces the sources of plugins in the text of a document, and leaves the rest of the text unchanged.

use std::ops::Range;

use admittance_definitions::{
    Location, Mistake, Mistakes, PluginPart,
    document::{self, Document},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewSource {
    pub(super) location: Location,
    /// The field of the definition that names the plugin: `plugin` or `candidate`. A plugin that is a member of a
    /// policy group has no such field (`None`).
    pub(super) field: Option<&'static str>,
    pub(super) source: String,
    /// Whether the document may lack a source. A Gatekeeper policy, for example, runs in a stock plugin without naming
    /// it.
    pub(super) may_be_implied: bool,
}

impl NewSource {
    pub(super) fn new(part: &PluginPart<'_>, source: String) -> Self {
        let field = if part.is_candidate { "candidate" } else { "plugin" };
        Self {
            location: part.location.clone(),
            field: (!part.is_member).then_some(field),
            source,
            may_be_implied: false,
        }
    }
}

/// Returns the text of a file in which these sources of plugins are replaced.
///
/// # Errors
///
/// Returns an error if a source is written in a form that cannot be replaced.
pub(super) fn replace_sources(file: &str, text: &str, new_sources: &[NewSource]) -> Result<String, Mistakes> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut mistakes = Mistakes::new();
    let documents = document::read_text(file, text, &mut mistakes);
    let parts = new_sources
        .iter()
        .filter_map(|new_source| {
            Some((
                source_range(&documents, text, new_source, &mut mistakes)?,
                new_source.source.clone(),
            ))
        })
        .collect();
    mistakes.into_result(document::replace_ranges(text, parts))
}

fn source_range(
    documents: &[Document],
    text: &str,
    new_source: &NewSource,
    mistakes: &mut Mistakes,
) -> Option<Range<usize>> {
    let source_node = documents
        .iter()
        .find_map(|document| document.root_ignoring_mistakes().object_at(&new_source.location))
        .and_then(|object| match new_source.field {
            Some(name) => object.child(name),
            None => Some(object),
        })
        .and_then(|plugin| plugin.child("source"));
    let Some(node) = source_node else {
        if new_source.may_be_implied {
            return None;
        }
        let name = new_source.field.unwrap_or("plugin");
        mistakes.push(Mistake {
            location: new_source.location.clone(),
            path: String::new(),
            message: format!("the source of this stage's {name} was not found"),
            fix: format!("write it as `{name}: {{ source: file:... }}`"),
        });
        return None;
    };
    let node = node.reporting_to(mistakes);
    let old_source = node.string()?;
    let span = node.span();
    // In the text of the file, a source with escapes such as `"a\x2eb"` looks different from its value `a.b`. So the
    // value is not found in the text, and the source cannot be replaced.
    let Some(offset) = text.get(span.clone())?.find(old_source) else {
        return node.reject(
            "the source is written in a way that cannot be changed where it stands",
            format!("write it on one line, `source: {old_source}`"),
        );
    };
    let start = span.start + offset;
    Some(start..start + old_source.len())
}

#[cfg(test)]
mod tests {
    use admittance::definitions::load_text;

    use super::*;

    fn rewrite_sources(name: &str, text: &str) -> Result<String, String> {
        let chains = load_text(name, text).map_err(|error| format!("not read: {error}"))?;
        let stages = chains.iter().flat_map(|chain| &chain.stages);
        let new_sources: Vec<_> = stages
            .flat_map(|stage| stage.plugins())
            .enumerate()
            .map(|(index, (part, _))| NewSource::new(&part, format!("file:new-{index}")))
            .collect();
        replace_sources(name, text, &new_sources).map_err(|error| error.to_string())
    }

    const HEAD: &str = "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: a }\n\
                        spec:\n  rules: [ { operations: [CREATE], resources: [pods] } ]\n  stages:\n";

    #[test]
    fn replacing_a_plugin_source_leaves_the_rest_of_the_text_unchanged() {
        for (stages, expected) in [
            (
                "  - name: s\n    plugin:\n      source: file:a.wasm # the one\n",
                Some("file:a.wasm"),
            ),
            (
                "  - name: s\n    plugin: { source: file:a/b.wasm, settings: {plugin: {source: file:a/b.wasm}} }\n",
                Some("file:a/b.wasm"),
            ),
            (
                "  - { name: s, plugin: { \"source\": \"file:ä b.wasm\" } }\n",
                Some("file:ä b.wasm"),
            ),
            (
                "  - plugin:\n      source: 'file:///x/é.wasm'\n    name: ü\u{301}\n",
                None,
            ),
            (
                "  - plugin:\n      settings: { text: \"ö ü\" }\n      source: 'file:///x/é.wasm'\n    name: s\n",
                Some("file:///x/é.wasm"),
            ),
            ("  - plugin: { source: \"file:\\x61.wasm\" }\n    name: s\n", None),
            (
                "  - name: s\n    plugin:\n      source: >-\n        file:a.wasm\n",
                Some("file:a.wasm"),
            ),
        ] {
            let text = format!("{HEAD}{stages}");
            match (rewrite_sources("chains/a.yaml", &text), expected) {
                (Ok(new), Some(old)) => {
                    assert_eq!(new, format!("{HEAD}{}", stages.replacen(old, "file:new-0", 1)));
                }
                (Err(message), None) => {
                    let reasons = ["write it on one line", "not read"];
                    assert!(reasons.iter().any(|part| message.contains(part)), "{message}");
                }
                (result, _) => panic!("{stages}: {result:?}"),
            }
        }
    }

    #[test]
    fn plugin_sources_are_replaced_in_documents_of_every_supported_system() {
        let native = r#"{"apiVersion": "admittance.dev/v1alpha1", "kind": "AdmissionChain", "metadata": {"name": "n"},
            "spec": {"rules": [{"operations": ["CREATE"], "resources": ["pods"]}],
            "stages": [{"name": "s", "plugin": {"source": "file:a.wasm"}}]}}"#;
        let bcs = "apiVersion: v4\nkind: admissionwebhook\nmetadata: { name: b, namespace: m }\n\
                   resourcesRef: { operation: Create, kind: application }\n\
                   AdmissionWebhooks:\n- name: h\n  Plugin: { source: file:a.wasm }\n";
        let kubernetes = "apiVersion: v1\nkind: List\nitems:\n\
                          - apiVersion: admissionregistration.k8s.io/v1\n  kind: MutatingWebhookConfiguration\n\
                          \x20 metadata: { name: k }\n  webhooks:\n\
                          \x20 - name: a.example.com\n    plugin: { source: file:a.wasm }\n    sideEffects: None\n\
                          \x20   admissionReviewVersions: [v1]\n\
                          \x20   rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]\n\
                          \x20 - name: b.example.com\n    plugin: { source: file:a.wasm }\n    sideEffects: None\n\
                          \x20   admissionReviewVersions: [v1]\n\
                          \x20   rules: [ { operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods] } ]\n";
        for (name, text, count) in [
            ("a.json", native.to_owned(), 1),
            ("a.yaml", native.to_owned(), 1),
            (
                "c.json",
                native.replace("}}]}}", "}, \"candidate\": {\"source\": \"file:a.wasm\"}}]}}"),
                2,
            ),
            (
                "g.json",
                native.replace(
                    r#""plugin": {"source": "file:a.wasm"}"#,
                    r#""group": {"plugins": {"a": {"source": "file:a.wasm"}, "b": {"source": "file:a.wasm"}},
                        "expression": "a() || b()", "message": "m"}"#,
                ),
                2,
            ),
            ("b.yaml", bcs.to_owned(), 1),
            ("k.yaml", kubernetes.to_owned(), 2),
            ("all.yaml", format!("\u{feff}{bcs}---\n{kubernetes}"), 3),
        ] {
            let new_text = rewrite_sources(name, &text).unwrap();
            assert!(!new_text.contains("file:a.wasm"), "{new_text}");
            for index in 0..count {
                assert_eq!(
                    new_text.matches(&format!("file:new-{index}")).count(),
                    1,
                    "{name}: {new_text}"
                );
            }
            assert_eq!(new_text.len(), text.trim_start_matches('\u{feff}').len() - count);
        }
    }
}
