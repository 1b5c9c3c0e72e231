use super::*;

#[test]
fn an_invalid_expression_is_refused_with_a_reason() {
    let long_name = "a".repeat(64);
    // (name of the condition, expression, part of the error), from kube-apiserver's validation and CEL's checker.
    let table: &[(&str, &str, &str)] = &[
        ("", "true", "it is empty"),
        ("no good", "true", "the name part may have"),
        (&long_name, "true", "longer than 63"),
        ("a", "", "the expression is empty"),
        ("a", " \n", "the expression is empty"),
        (
            "a",
            "imnotathing == 1",
            "line 1, column 1: undeclared reference to 'imnotathing'",
        ),
        ("a", "params.x == 1", "undeclared reference to 'params'"),
        ("a", "variables.x == 1", "undeclared reference to 'variables'"),
        (
            "a",
            "true &&\n  nope",
            "line 2, column 3: undeclared reference to 'nope'",
        ),
        ("a", "request.foo == 'x'", "undefined field 'foo'"),
        ("a", "request.object.metadata.name == 'x'", "undefined field 'object'"),
        ("a", "request.oldObject == null", "undefined field 'oldObject'"),
        ("a", "request.uid == 'x'", "undefined field 'uid'"),
        ("a", "request.kind.resource == 'x'", "undefined field 'resource'"),
        ("a", "request.resource.kind == 'x'", "undefined field 'kind'"),
        ("a", "request.userInfo.name == 'x'", "undefined field 'name'"),
        ("a", "has(request.foo)", "undefined field 'foo'"),
        (
            "a",
            "request.name.foo == 'x'",
            "type 'string' does not support field selection",
        ),
        ("a", "namespaceObject.labels.x == 'y'", "undefined field 'labels'"),
        ("a", "1", "must evaluate to bool but got int"),
        ("a", "'true'", "must evaluate to bool but got string"),
        ("a", "null", "must evaluate to bool but got null"),
        ("a", "1.5 + 2.0", "must evaluate to bool but got double"),
        ("a", "[true]", "must evaluate to bool but got list(bool)"),
        ("a", "{'a': 1}", "must evaluate to bool but got map(string, int)"),
        ("a", "object", "must evaluate to bool but got dyn"),
        ("a", "object.spec.foo", "must evaluate to bool but got dyn"),
        (
            "a",
            "object.a ? object.b : object.c",
            "must evaluate to bool but got dyn",
        ),
        ("a", "request.name", "must evaluate to bool but got string"),
        (
            "a",
            "object.items.map(x, x == 1)",
            "must evaluate to bool but got list(bool)",
        ),
        ("a", "size(object.x)", "must evaluate to bool but got int"),
        ("a", "string", "must evaluate to bool but got type"),
        ("a", "object.?x", "must evaluate to bool but got optional_type(dyn)"),
        (
            "a",
            "1 == 'a'",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "a",
            "1 + 'a' == 2",
            "found no matching overload for '_+_' applied to '(int, string)'",
        ),
        ("a", "request.name == 1", "'_==_' applied to '(string, int)'"),
        ("a", "request.name > 1", "'_>_' applied to '(string, int)'"),
        ("a", "request.dryRun && request.name", "expected type 'bool'"),
        ("a", "!request.name", "'!_' applied to '(string)'"),
        ("a", "request.name ? true : false", "expected type 'bool'"),
        ("a", "true ? 1 : 'a'", "'_?_:_' applied to '(bool, int, string)'"),
        ("a", "[1, 'a'] == []", "expected type 'int' but found 'string'"),
        ("a", "1 in ['a']", "'@in' applied to '(int, list(string))'"),
        (
            "a",
            "request.name.startsWith(1)",
            "'startsWith' applied to 'string.(int)'",
        ),
        ("a", "size(1, 2) == 1", "'size' applied to '(int, int)'"),
        (
            "a",
            "request.name.all(x, true)",
            "expression of type 'string' cannot be range",
        ),
        ("a", "object.x.all(y.z, true)", "must be a simple name"),
        ("a", "object.x.all(y, y > 1) && y > 1", "undeclared reference to 'y'"),
        ("a", "has(object)", "invalid argument to has() macro"),
        (
            "a",
            "frobnicate(object.x)",
            "undeclared reference to 'frobnicate': there is no such function",
        ),
        (
            "a",
            "object.x.startWith('a')",
            "there is no such function here (did you mean startsWith?)",
        ),
        ("a", "object.x.frobnicate()", "undeclared reference to 'frobnicate'"),
        // In this row, `sign` is called as a member, but Kubernetes declares it as a global function.
        ("a", "quantity('1').sign() == 1", "undeclared reference to 'sign'"),
        ("a", "int('abc') == 1", "parsing \"abc\": invalid syntax"),
        ("a", "int(1e300) == 1", "integer overflow"),
        ("a", "bool('yes')", "type conversion error from 'string' to 'bool'"),
        ("a", "string(b'\\xff') == ''", "invalid UTF-8 in bytes"),
        ("a", "duration('1 day') > duration('1s')", "invalid duration"),
        (
            "a",
            "timestamp('2024-02-30T00:00:00Z') == timestamp(0)",
            "not a timestamp",
        ),
        (
            "a",
            "'%d'.format(['a']) == ''",
            "decimal clause can only be used on integers, was given string",
        ),
        ("a", "'%s %s'.format(['a']) == ''", "index 1 out of range"),
        (
            "a",
            "'%s'.format(['a', 'b']) == ''",
            "too many arguments supplied to string.format (expected 1, got 2)",
        ),
        ("a", "'%q'.format(['a']) == ''", "unrecognized formatting clause \"q\""),
        (
            "a",
            "'%.'.format([1.0]) == ''",
            "could not find end of precision specifier",
        ),
        ("a", "['a', 1].size() == 2", "expected type 'string' but found 'int'"),
        ("a", "object.x.all(i, i, true)", "duplicate variable name: i"),
        (
            "a",
            "[1].transformMapEntry(i, v, v) == {}",
            "transformMapEntry must give a map but gives 'int'",
        ),
        ("a", "[1].sortBy(v, [v]) == [1]", "sortBy cannot sort by a 'list(int)'"),
        ("a", "'abc'.reverse() == 'cba'", "'reverse' applied to 'string.()'"),
        ("a", "math.greatest(1, 2) == 2", "undeclared reference to 'greatest'"),
        ("a", "base64.encode(b'a') == ''", "undeclared reference to 'encode'"),
        ("a", "Object{spec: 1} == null", "undeclared reference to 'Object'"),
        (
            "a",
            "jsonpatch.escapeKey('a/b') == ''",
            "undeclared reference to 'jsonpatch.escapeKey'",
        ),
        (
            "a",
            "google.protobuf.Int32Value{size: 1} == 1",
            "undefined field 'size'",
        ),
        (
            "a",
            "google.protobuf.Int32Value{value: 'a'} == 1",
            "expected type of field 'value' is 'int'",
        ),
        (
            "a",
            "google.protobuf.Any{} == null",
            "undeclared reference to 'google.protobuf.Any'",
        ),
        ("a", "Foo{a: 1} == null", "undeclared reference to 'Foo'"),
        ("a", "request.name.matches('(')", "error parsing regexp"),
        ("a", "authorizer.check('get').allowed()", "'check' applied to"),
        ("a", "authorizer.group('').check('get').allowed()", "'check' applied to"),
        ("a", "authorizer.foo == 1", "does not support field selection"),
        (
            "a",
            "object.x ==",
            "Syntax error: mismatched input '<EOF>': the expression ends too early",
        ),
        ("a", "object x == 1", "column 8: Syntax error"),
        ("a", "namespace == 'a'", "reserved identifier: namespace"),
    ];
    for (name, expression, expected) in table {
        let Err(error) = MatchCondition::compile(name, expression) else {
            panic!("{expression} compiles");
        };
        let text = error.to_string();
        assert!(text.contains(expected), "{name}: {expression}: {text}");
    }
}

#[test]
fn expressions_that_kubernetes_accepts_are_compiled() {
    // The expressions are from kube-apiserver's validation of match conditions, and from Kubernetes' documentation.
    for expression in [
        "true",
        "object.metadata.namespace != 'kube-system'",
        "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')",
        "!('system:nodes' in request.userInfo.groups)",
        "!authorizer.group('admissionregistration.k8s.io').resource('validatingwebhookconfigurations').name('my-webhook.example.com').check('breakglass').allowed()",
        "request.resource.group != 'rbac.authorization.k8s.io'",
        "has(object.spec.template) && object.spec.template.spec.containers.all(c, c.image.startsWith('registry/'))",
        "oldObject == null || object.spec != oldObject.spec",
        "request.requestKind.kind == 'Pod' && request.requestResource.version == 'v1' && request.requestSubResource == ''",
        "request.options == null || has(request.options.fieldManager)",
        "namespaceObject == null || namespaceObject.metadata.labels['a'] == 'b'",
        "request.userInfo.extra['example.com/scopes'].exists(scope, scope == 'all')",
        "type(object.x) == string",
        "object.?spec.?nodeName.orValue('') == ''",
        "dyn(1) == 'a'",
        "[dyn(1), dyn(2), object.x] == [1]",
        "request == null",
        "true // with a comment",
    ] {
        let compiled = MatchCondition::compile("example.com/a", expression);
        assert!(compiled.is_ok(), "{expression}: {compiled:?}");
        assert_eq!(compiled.unwrap().expression(), expression);
    }
}
