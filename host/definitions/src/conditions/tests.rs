use admittance_conditions::MatchCondition;

use crate::load_text;

fn read(conditions: &str) -> Result<Vec<(String, String)>, String> {
    let native = format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: a }}\nspec:\n  rules: [ {{ \
         operations: [CREATE], kinds: [pod] }} ]\n  stages:\n  - name: a\n    plugin: {{ source: file:a }}\n    \
         matchConditions: {conditions}"
    );
    let kubernetes = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{ name: a }}\n\
         webhooks:\n  - name: webhook.k8s.io\n    plugin: {{ source: file:a }}\n    rules: [ {{ operations: [CREATE], \
         apiGroups: [''], apiVersions: [v1], resources: [pods] }} ]\n\n    matchConditions: {conditions}"
    );
    let [native, kubernetes] = [(native, "spec.stages[0]."), (kubernetes, "webhooks[0].")].map(|(text, path)| {
        let mistakes = match load_text("f", &text) {
            Ok(chains) => {
                let conditions = chains[0].stages[0].spec.match_conditions.expressions();
                return Ok(conditions
                    .into_iter()
                    .map(|(name, expression)| (name.to_owned(), expression.to_owned()))
                    .collect());
            }
            Err(mistakes) => mistakes.to_string(),
        };
        Err(mistakes.replace("f:9:", "").replace(path, ""))
    });
    assert_eq!(native, kubernetes, "{conditions}");
    native
}

fn condition_list(count: usize) -> String {
    let conditions: Vec<String> = (0..count)
        .map(|number| format!("{{ name: c{number}, expression: 'true' }}"))
        .collect();
    format!("[ {} ]", conditions.join(", "))
}

#[test]
fn conditions_are_read_with_names_and_expressions() {
    assert_eq!(read("[]"), Ok(Vec::new()));
    assert_eq!(read(""), Ok(Vec::new()));
    let conditions = read(
        "[ { name: exclude-leases, expression: \"request.resource.resource != 'leases'\" }, { name: example.com/Own_1.x, \
         expression: '!has(object.metadata.labels)' } ]",
    );
    let expected = [
        ("exclude-leases", "request.resource.resource != 'leases'"),
        ("example.com/Own_1.x", "!has(object.metadata.labels)"),
    ];
    assert_eq!(
        conditions,
        Ok(expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec())
    );
    assert_eq!(read(&condition_list(MatchCondition::MAX_COUNT)).unwrap().len(), 64);
}

/// The mistakes are those that kube-apiserver reports about match conditions in webhook configurations.
#[test]
fn mistakes_in_conditions_are_reported_with_their_locations() {
    let name_part = "the name part may have letters, digits, `-`, `_` and `.`, and must begin and end with \
    a letter or a digit";
    let table = [
        ("{}", "22: matchConditions: an object where a list is expected".to_owned()),
        (
            "[ { expression: 'true' } ]",
            "24: matchConditions[0].name: missing; name the condition".to_owned(),
        ),
        (
            "[ { expression: 'true' }, { name: '', expression: 'true' } ]",
            "24: matchConditions[0].name: missing; name the condition\n\
             56: matchConditions[1].name: empty; write a value or remove the field"
                .to_owned(),
        ),
        (
            "[ { name: -hello, expression: 'true' } ]",
            format!("32: matchConditions[0].name: \"-hello\" is not a valid condition name: {name_part}"),
        ),
        (
            "[ { name: .io, expression: 'true' }, { name: thing.test.com, expression: 'true' } ]",
            format!("32: matchConditions[0].name: \".io\" is not a valid condition name: {name_part}"),
        ),
        (
            "[ { name: some name, expression: '' } ]",
            format!(
                "32: matchConditions[0].name: \"some name\" is not a valid condition name: {name_part}\n\
                 55: matchConditions[0].expression: empty; write a value or remove the field"
            ),
        ),
        (
            "[ { name: webhook.k8s.io } ]",
            "24: matchConditions[0].expression: missing; write what must be true, `object.metadata.namespace != 'kube-system'`".to_owned(),
        ),
        (
            "[ { name: webhook.k8s.io, expression: 'true' }, { name: webhook.k8s.io, expression: 'true' } ]",
            "78: matchConditions[1].name: \"webhook.k8s.io\" is also the name of the condition on line 9; give each condition its own name".to_owned(),
        ),
        (
            "[ { name: a, expression: true } ]",
            "47: matchConditions[0].expression: true or false where a string is expected; put it in quotes: \"true\""
                .to_owned(),
        ),
        (
            "[ { name: a, expression: 'true', expresion: 'true' } ]",
            "55: matchConditions[0].expresion: unknown field; known here: expression, name".to_owned(),
        ),
        (
            &condition_list(65),
            "22: matchConditions: there are 65 conditions; write 64 at most; several can be one, joined by `&&`"
                .to_owned(),
        ),
    ];
    for (conditions, expected) in table {
        assert_eq!(read(conditions).unwrap_err(), expected, "{conditions}");
    }
}

#[test]
fn an_expression_that_does_not_compile_is_a_mistake() {
    for expression in [
        "object.x in [1, 2, ",
        "6",
        "object.spec.paused",
        "params.x == 1",
        "variables.x == 1",
        "request.x == 1",
        "  ",
    ] {
        let reason = MatchCondition::compile("a", expression).unwrap_err();
        let actual = read(&format!("[ {{ name: a, expression: '{expression}' }} ]"));
        let expected = format!("47: matchConditions[0].expression: {reason}");
        assert_eq!(actual, Err(expected.clone()), "{expression}");
        let both = read(&format!("[ {{ name: -a, expression: '{expression}' }} ]")).unwrap_err();
        let (name, rest) = both.split_once('\n').unwrap();
        assert!(
            name.starts_with("32: matchConditions[0].name: \"-a\" is not a valid condition name"),
            "{name}"
        );
        assert_eq!(rest, expected.replacen("47", "48", 1), "{expression}");
    }
}
