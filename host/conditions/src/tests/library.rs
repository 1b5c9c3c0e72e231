//! The functions of kube-apiserver 1.36, with a table for each library.

use super::*;

const STRINGS: &str = "cel-go, ext.Strings version 2";
const LISTS: &str = "cel-go, ext.Lists version 3";
const TWO_VARIABLES: &str = "cel-go, ext.TwoVarComprehensions";
const OPTIONAL: &str = "cel-go, cel.OptionalTypes";
const STANDARD: &str = "cel-go, the standard library";
const URLS: &str = "k8s.io/apiserver, library.URLs";
const FORMATS: &str = "k8s.io/apiserver, library.Format";
const SEMVER: &str = "k8s.io/apiserver, library.SemverLib version 1";
const QUANTITY: &str = "k8s.io/apiserver, library.Quantity";

/// The library functions that the tables in this file test.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        STRINGS,
        "'%s, %s and %d%%'.format(['a', dyn(true), dyn(3)]) == 'a, true and 3%'",
    ),
    (
        STRINGS,
        "'%s'.format([[dyn('a'), dyn(1), dyn(1.5), dyn(null), dyn(b'b')]]) == '[\"a\", 1, 1.500000, null, b\"b\"]'",
    ),
    (
        STRINGS,
        "'%s'.format([{'b': dyn(duration('1h')), 'a': dyn(timestamp(0))}]) == '{\"a\":timestamp(\"1970-01-01T00:00:00Z\"), \"b\":duration(\"3600s\")}'",
    ),
    (
        STRINGS,
        "'%s %s'.format([type(1), type('')]) == 'int string' && '%s'.format([1e9]) == '1e+09'",
    ),
    (
        STRINGS,
        "'%.2f %f'.format([10002.714, 2.71828]) == '10,002.71 2.718280'",
    ),
    (
        STRINGS,
        "'%e'.format([1052.032911275]) == '1.052033\\u00d710\\u2070\\u00b3'",
    ),
    (
        STRINGS,
        "'%f %f %e'.format(['NaN', 'Infinity', '-Infinity']) == 'NaN ∞     -∞'",
    ),
    (
        STRINGS,
        "'%b %b %o %x %X'.format([dyn(5), dyn(true), dyn(8), dyn(255), dyn('hello')]) == '101 1 10 ff 68656C6C6F'",
    ),
    (STRINGS, "'%x %d'.format([-255, -1]) == '-ff -1'"),
    (STRINGS, "object.metadata.name.format(['a']) == 'web'"),
    (
        STRINGS,
        "strings.quote('say \"hi\"\\n') == '\"say \\\\\"hi\\\\\"\\\\n\"'",
    ),
    (LISTS, "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []"),
    (
        LISTS,
        "[[dyn(1), dyn(2)], [dyn(3), dyn([4])]].flatten() == [dyn(1), dyn(2), dyn(3), dyn([4])]",
    ),
    (
        LISTS,
        "[dyn(1), dyn([dyn(2), dyn([dyn(3), dyn([4])])])].flatten(2) == [dyn(1), dyn(2), dyn(3), dyn([4])] && [dyn(1), dyn([2])].flatten(0) == [dyn(1), dyn([2])]",
    ),
    (LISTS, "[1, 2, 3].reverse() == [3, 2, 1] && [].reverse() == []"),
    (
        LISTS,
        "[1, 2, 2, 3, 3].distinct() == [1, 2, 3] && [dyn(1), dyn(1.0), dyn('a')].distinct() == [dyn(1), dyn('a')]",
    ),
    (LISTS, "lists.range(3) == [0, 1, 2] && lists.range(0) == []"),
    (
        LISTS,
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [true, false].sort() == [false, true]",
    ),
    (
        LISTS,
        "object.spec.containers.sortBy(c, c.image).map(c, c.name) == ['a', 'b'] && [1, 2].sortBy(v, -v) == [2, 1]",
    ),
    (
        TWO_VARIABLES,
        "[1, 2].all(i, v, i + 1 == v) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
    ),
    (
        TWO_VARIABLES,
        "[1, 2].exists(i, v, i == 1 && v == 2) && !object.metadata.labels.exists(k, v, k == v)",
    ),
    (
        TWO_VARIABLES,
        "[1, 2].existsOne(i, v, v > 1) && [1, 2].exists_one(i, v, v > 1)",
    ),
    (
        TWO_VARIABLES,
        "object.metadata.labels.transformList(k, v, k + v) == ['appweb', 'tierfront']",
    ),
    (TWO_VARIABLES, "[1, 2, 3].transformList(i, v, v > 1, v * i) == [2, 6]"),
    (
        TWO_VARIABLES,
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'a': 2, 'b': 4} && [5].transformMap(i, v, v) == {0: 5}",
    ),
    (
        TWO_VARIABLES,
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
    ),
    (
        TWO_VARIABLES,
        "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
    ),
    (
        TWO_VARIABLES,
        "['a', 'b'].transformMapEntry(i, v, i > 0, {v: i}) == {'b': 1}",
    ),
    (
        OPTIONAL,
        "optional.none().orValue(true) && optional.none().or(optional.of(true)).value()",
    ),
    (
        OPTIONAL,
        "optional.of(1).orValue(1 / 0) == 1 && optional.of(1).or(optional.of(1 / 0)).hasValue()",
    ),
    (
        OPTIONAL,
        "[1, 2].first().value() == 1 && [1, 2].last() == optional.of(2) && ![].first().hasValue()",
    ),
    (
        OPTIONAL,
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(2)].unwrapOpt() == [2]",
    ),
    (
        STANDARD,
        "google.protobuf.Int32Value{value: 1} == 1 && google.protobuf.UInt64Value{} == 0u",
    ),
    (
        STANDARD,
        "google.protobuf.StringValue{value: 'a'} == 'a' && google.protobuf.BoolValue{value: true}",
    ),
    (
        STANDARD,
        "google.protobuf.BytesValue{} == b'' && google.protobuf.DoubleValue{value: 1.5} == 1.5",
    ),
    (
        STANDARD,
        "google.protobuf.Duration{seconds: 60} == duration('1m') && google.protobuf.Timestamp{seconds: 1, nanos: 5} > timestamp(1)",
    ),
    (
        STANDARD,
        "google.protobuf.Struct{fields: {'a': 1}}.a == 1 && google.protobuf.ListValue{values: [1]} == [1]",
    ),
    (
        STANDARD,
        "google.protobuf.Value{number_value: 1.0} == 1.0 && google.protobuf.Value{} == null",
    ),
    (
        STANDARD,
        "type(timestamp(0)) == google.protobuf.Timestamp && type(duration('1s')) == google.protobuf.Duration",
    ),
    (
        STANDARD,
        "timestamp('2024-03-31T00:30:00Z').getHours('Europe/Berlin') == 1 && timestamp('2024-03-31T01:30:00Z').getHours('Europe/Berlin') == 3",
    ),
    (
        STANDARD,
        "([] + [true])[0] && {}.size() == 0 && string(1e6) == '1e+06' && string(0.00001) == '1e-05'",
    ),
    (
        URLS,
        "isURL('https://example.com:80/') && isURL('/path') && !isURL('example.com') && !isURL('http://a b')",
    ),
    (
        URLS,
        "url('https://example.com:80/a?k=1').getScheme() == 'https' && url('/path').getScheme() == ''",
    ),
    (
        URLS,
        "url('https://example.com:80/').getHost() == 'example.com:80' && url('https://[::1]:80/').getHost() == '[::1]:80'",
    ),
    (
        URLS,
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://example.com:80/').getPort() == '80'",
    ),
    (
        URLS,
        "url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
    ),
    (
        URLS,
        "url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']} && url('https://example.com/?').getQuery() == {}",
    ),
    (
        URLS,
        "url('https://a/b') == url('https://a/b') && url('https://a/b') != url('https://a/c')",
    ),
    (
        FORMATS,
        "!format.named('dns1123Label').value().validate('my-name').hasValue() && !format.named('nope').hasValue()",
    ),
    (
        FORMATS,
        "format.dns1123Label().validate('contains a space').value()[0].startsWith('a lowercase RFC 1123 label must')",
    ),
    (
        FORMATS,
        "[format.dns1123Subdomain(), format.dns1035Label(), format.qualifiedName(), format.labelValue()].all(f, !f.validate('a').hasValue())",
    ),
    (
        FORMATS,
        "[format.dns1123LabelPrefix(), format.dns1123SubdomainPrefix(), format.dns1035LabelPrefix()].all(f, !f.validate('a-').hasValue())",
    ),
    (
        FORMATS,
        "!format.uri().validate('https://a').hasValue() && !format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
    ),
    (
        FORMATS,
        "!format.byte().validate('aGVsbG8=').hasValue() && !format.date().validate('2021-01-01').hasValue() && format.datetime().validate('2021').hasValue()",
    ),
    (
        SEMVER,
        "isSemver('1.2.3') && !isSemver('v1.2') && isSemver('v1.2', true) && !isSemver('1.2', false)",
    ),
    (
        SEMVER,
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('v1.2.03', true).patch() == 3",
    ),
    (
        SEMVER,
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
    ),
    (
        SEMVER,
        "semver('1.0.0').compareTo(semver('2.0.0')) == -1 && semver('1.0.0+a') == semver('1.0.0+b')",
    ),
    (QUANTITY, "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0"),
    (
        "k8s.io/apiserver, library.AuthzSelectors",
        "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').labelSelector('app=web').check('list').errored()",
    ),
];

#[tokio::test]
async fn library_functions_return_the_same_values_as_in_kubernetes() {
    let request = pod();
    let mut wrong = Vec::new();
    for (source, expression) in FUNCTIONS {
        let outcome = match MatchCondition::compile("a", expression) {
            Ok(_) => evaluate(expression, &request).await,
            Err(error) => Err(error.to_string()),
        };
        if outcome != Ok(true) {
            wrong.push(format!("{source}: {expression}: {outcome:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn library_functions_refuse_wrong_arguments() {
    for (expression, expected) in [
        ("[1].slice(0, 2) == []", "cannot slice(0, 2), list is length 1"),
        (
            "[1].slice(1, 0) == []",
            "cannot slice(1, 0), start index must be less than or equal to end index",
        ),
        (
            "[1].slice(-1, 0) == []",
            "cannot slice(-1, 0), negative indexes not supported",
        ),
        (
            "[dyn(1), dyn('a')].sort() == []",
            "list elements must have the same type",
        ),
        (
            "object.spec.containers.sort() == []",
            "list elements must be comparable",
        ),
        ("[1].flatten(-1) == []", "level must be non-negative"),
        (
            "lists.range(100000000).size() > 0",
            "operation cancelled: actual cost limit exceeded",
        ),
        (
            "lists.range(1000).sort().size() > 0",
            "operation cancelled: actual cost limit exceeded",
        ),
        (
            "'%d'.format([object.metadata.name]) == ''",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "object.metadata.name.format([1]) == '' || '%s'.format(object.spec.ports.filter(p, false)) == ''",
            "index 0 out of range",
        ),
        (
            "{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k}) == {}",
            "insert failed: key 1 already exists",
        ),
        (
            "url(object.metadata.name).getHost() == ''",
            "URL parse error during conversion from string: parse \"web\": invalid URI for request",
        ),
        ("semver(object.metadata.name).major() == 1", "unexpected character"),
    ] {
        let outcome = evaluate(expression, &pod()).await;
        let text = outcome.expect_err(expression);
        assert!(text.starts_with(expected), "{expression}: {text}");
    }
    // The format asks for more decimals than Rust's formatter supports.
    let long = "'%.100000f'.format([object.spec.ratio]).size() == 100002 && '%.100000e'.format([0.5]).size() > 100000";
    assert_eq!(evaluate(long, &pod()).await, Ok(true));
}
