//! Tests of the fields `candidate` and `refresh` in the documents of every policy system that has them.

use admittance_admission::{ClusterKind, Grants};
use serde_json::json;

use crate::{CandidateDefinition, ChainDefinition, ModuleReference, PluginDefinition, Share, load_text};

const PIN: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Returns documents of four kinds, each with a stage that has the fields `fields`. A row is (document, line on which
/// the fields begin, path of the stage). The fields begin in column 5, and in the last document in column 7.
fn documents_of_all_forms(fields: &str) -> [(String, u32, &'static str); 4] {
    let bcs = format!(
        "resourcesRef: {{ operation: Create, kind: Application }}\nadmissionWebhooks:\n  - name: s\n      {fields}\n"
    )
    .replace("\n      ", "\n    ");
    [
        (
            format!(
                "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\nspec:\n  \
                 rules: [ {{ operations: ['*'], resources: [pods] }} ]\n  stages:\n  - name: s\n    {fields}\n"
            ),
            8,
            "spec.stages[0]",
        ),
        (
            format!(
                "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                 metadata: {{ name: c }}\nwebhooks:\n  - name: a.b.c\n    rules: [ {{ operations: ['*'], apiGroups: \
                 ['*'], apiVersions: ['*'], resources: [pods] }} ]\n    {fields}\n"
            ),
            7,
            "webhooks[0]",
        ),
        (
            format!("apiVersion: v4\nkind: admissionwebhook\nmetadata: {{ namespace: m, name: c }}\n{bcs}"),
            7,
            "admissionWebhooks[0]",
        ),
        (
            format!(
                "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\n\
                 metadata: {{ namespace: m, name: c }}\nspec:\n  {}\n",
                bcs.trim_end().replace('\n', "\n  ")
            ),
            8,
            "spec.admissionWebhooks[0]",
        ),
    ]
}

fn candidate(mut chains: Vec<ChainDefinition>) -> Option<CandidateDefinition> {
    let stage = chains.remove(0).stages.remove(0);
    assert!(stage.hook.get::<PluginDefinition>().is_some());
    stage.candidate
}

#[test]
fn a_candidate_inherits_missing_fields_from_the_plugin() {
    let beside = format!(
        "source: file:a.wasm, digest: '{PIN}', settings: {{ a: 1 }}, allow: {{ cluster: [v1/Node] }}, memory: 2MiB"
    );
    let like_plugin = PluginDefinition {
        settings: json!({"a": 1}),
        allow: Grants {
            cluster: [ClusterKind::new("v1", "Node")].into(),
            ..Grants::default()
        },
        memory: Some(2 << 20),
        ..PluginDefinition::new("oci://r.example.com/a:2".parse().unwrap())
    };
    let table = [
        (
            "{ source: 'oci://r.example.com/a:2' }".to_owned(),
            like_plugin.clone(),
            Share::WHOLE,
        ),
        (
            "{ source: 'oci://r.example.com/a:2', share: 2.5%, refresh: 1h }".to_owned(),
            PluginDefinition {
                refresh: Some(std::time::Duration::from_secs(3600)),
                ..like_plugin.clone()
            },
            Share::of_ten_thousand(250).unwrap(),
        ),
        (
            format!("{{ source: file:b.wasm, digest: '{PIN}', settings: {{}}, allow: {{}}, memory: 3MiB }}"),
            PluginDefinition {
                digest: Some(PIN.parse().unwrap()),
                memory: Some(3 << 20),
                ..PluginDefinition::new(ModuleReference::File("chains/b.wasm".into()))
            },
            Share::WHOLE,
        ),
        (
            "{ source: 'https://p.example.com/a.wasm', settings: null }".to_owned(),
            PluginDefinition {
                source: "https://p.example.com/a.wasm".parse().unwrap(),
                ..like_plugin
            },
            Share::WHOLE,
        ),
    ];
    for (text, plugin, share) in table {
        for (document, ..) in documents_of_all_forms(&format!("plugin: {{ {beside} }}\n    candidate: {text}")) {
            let expected = CandidateDefinition {
                plugin: plugin.clone(),
                share,
                rollout: None,
            };
            let chains =
                load_text("chains/f.yaml", &document).unwrap_or_else(|mistakes| panic!("{mistakes}\n{document}"));
            assert_eq!(candidate(chains), Some(expected), "{document}");
        }
    }
    for fields in [
        "plugin: { source: file:a.wasm }",
        "plugin: { source: file:a.wasm }\n    candidate:",
    ] {
        for (document, ..) in documents_of_all_forms(fields) {
            let chains = load_text("f", &document).unwrap_or_else(|mistakes| panic!("{mistakes}\n{document}"));
            assert_eq!(candidate(chains), None);
        }
    }
}

#[test]
fn mistakes_in_candidates_are_reported_with_their_locations() {
    let range = "0.01% to 100%, with at most two digits after the point";
    // (fields of a stage, expected mistake)
    // A mistake is written as column, field and message.
    let table = [
        (
            "candidate: { share: 10% }",
            "5: candidate.source: missing; write `file:` and the path of the module".to_owned(),
        ),
        (
            "candidate: [ { source: file:b.wasm } ]",
            "16: candidate: a list where an object is expected; write `field: value`".to_owned(),
        ),
        (
            "candidate: { source: b.wasm, shares: 1% }",
            "26: candidate.source: \"b.wasm\" does not say where the module is; write `file:b.wasm`\n\
             34: candidate.shares: unknown field; did you mean `share`?"
                .to_owned(),
        ),
        (
            "candidate: { source: file:b.wasm, share: 10 }",
            "46: candidate.share: 10 is not a valid share; write 10%".to_owned(),
        ),
        (
            "candidate: { source: file:b.wasm, share: 0.001 }",
            format!("46: candidate.share: 0.001 is not a valid share; write {range}"),
        ),
        (
            "candidate: { source: file:b.wasm, share: 101% }",
            format!("46: candidate.share: `101%` is not a valid share; write {range}"),
        ),
        (
            "candidate: { source: file:b.wasm, share: all }",
            format!("46: candidate.share: `all` is not a valid share; write {range}"),
        ),
        (
            "candidate: { source: file:b.wasm, refresh: 1h }",
            "48: candidate.refresh: a file is read again when it changes; only `https:` and `oci:` are refreshed; remove it"
                .to_owned(),
        ),
    ];
    for (written, expected) in table {
        for (document, line, path) in
            documents_of_all_forms(&format!("plugin: {{ source: file:a.wasm }}\n    {written}"))
        {
            let message = load_text("f", &document).unwrap_err().to_string();
            let shift = if path.starts_with("spec.admission") { 2 } else { 0 };
            let expected: Vec<String> = expected
                .lines()
                .map(|mistake| {
                    let (column, rest) = mistake.split_once(": ").unwrap();
                    let mut column = column.parse::<u32>().unwrap() + shift;
                    if rest.contains("missing") {
                        column += 11;
                    }
                    format!("f:{}:{column}: {path}.{rest}", line + 1)
                })
                .collect();
            assert_eq!(message, expected.join("\n"), "{document}");
        }
    }
}

#[test]
fn a_candidate_of_a_webhook_is_a_mistake() {
    let webhooks = [
        "webhook: { protocol: BcsResource, url: 'https://h.example' }",
        "clientConfig: { url: 'https://h.example' }\n    sideEffects: None\n    admissionReviewVersions: [v1]",
        "clientConfig: { url: 'https://h.example' }",
        "clientConfig: { url: 'https://h.example' }",
    ];
    for (index, webhook) in webhooks.iter().enumerate() {
        let forms = documents_of_all_forms(&format!("candidate: {{ source: file:b.wasm }}\n    {webhook}"));
        let (document, line, path) = &forms[index];
        let column = if path.starts_with("spec.admission") { 18 } else { 16 };
        assert_eq!(
            load_text("f", document).unwrap_err().to_string(),
            format!(
                "f:{line}:{column}: {path}.candidate: a candidate is compared with a plugin, and the stage has none; remove it, or write `plugin` beside it"
            )
        );
    }
}

#[test]
fn only_module_sources_that_can_change_are_resolved_again() {
    let refresh_seconds = |plugin: &str| {
        let [(document, ..), ..] = documents_of_all_forms(&format!("plugin: {{ {plugin} }}"));
        match load_text("f", &document) {
            Ok(chains) => {
                let plugin: &PluginDefinition = chains[0].stages[0].hook.get().unwrap();
                Ok(plugin.refresh.map(|refresh| refresh.as_secs()))
            }
            Err(mistakes) => {
                let mistakes = mistakes.to_string();
                Err(mistakes.replace("f:8:", "").replace("spec.stages[0].plugin.", ""))
            }
        }
    };
    let oci = "source: 'oci://r.example.com/a:1'";
    for (plugin, expected) in [
        (oci.to_owned(), None),
        (format!("{oci}, refresh: 10s"), Some(10)),
        (format!("{oci}, refresh: 7d"), Some(7 * 24 * 3600)),
        ("source: 'https://p.example.com/a', refresh: 5m".to_owned(), Some(300)),
    ] {
        assert_eq!(refresh_seconds(&plugin), Ok(expected), "{plugin}");
    }
    let pinned = "pins the module, so there is nothing to refresh; remove it, or";
    for (plugin, expected) in [
        (
            format!("{oci}, refresh: 9s"),
            "9s is out of range; write 10s to 7days".to_owned(),
        ),
        (
            format!("{oci}, refresh: 8d"),
            "8d is out of range; write 10s to 7days".to_owned(),
        ),
        (
            format!("{oci}, refresh: 60"),
            "60 has no unit; write 60ms or 60s".to_owned(),
        ),
        (
            "source: file:a.wasm, refresh: 1m".to_owned(),
            "a file is read again when it changes; only `https:` and `oci:` are refreshed; remove it".to_owned(),
        ),
        (
            format!("{oci}, digest: '{PIN}', refresh: 1m"),
            format!("`digest` {pinned} `digest`"),
        ),
        (
            format!("source: 'https://p.example.com/a', digest: '{PIN}', refresh: 1m"),
            format!("`digest` {pinned} `digest`"),
        ),
        (
            format!("source: 'oci://r.example.com/a@{PIN}', refresh: 1m"),
            format!("`@sha256:` in the source {pinned} `@sha256:` and the digits after it"),
        ),
    ] {
        let mistake = refresh_seconds(&plugin).unwrap_err();
        let (_, message) = mistake.split_once(": refresh: ").unwrap();
        assert_eq!(message, expected, "{plugin}");
    }
}
