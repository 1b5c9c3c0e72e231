use super::*;

#[tokio::test]
async fn expressions_have_the_values_that_the_specification_requires() {
    let no_key = |key: &str| Err(format!("no such key: {key}"));
    let no_overload = || Err("no such overload".to_owned());
    // (expression, expected result). The sources are CEL's specification, cel-go's strings extension, Kubernetes'
    // libraries, and kube-apiserver 1.36.
    let table: Vec<(&str, Result<bool, String>)> = vec![
        ("object.metadata.namespace == 'shop'", Ok(true)),
        ("object.metadata.namespace != 'kube-system'", Ok(true)),
        ("oldObject == null", Ok(true)),
        ("oldObject.metadata.name == 'a'", no_key("metadata")),
        ("namespaceObject == null", Ok(true)),
        ("namespaceObject.metadata.name == 'a'", no_key("metadata")),
        ("request.operation == 'CREATE'", Ok(true)),
        (
            "request.kind.kind == 'Pod' && request.kind.group == '' && request.kind.version == 'v1'",
            Ok(true),
        ),
        (
            "request.resource.resource == 'pods' && request.requestResource == request.resource",
            Ok(true),
        ),
        (
            "request.name == 'web' && request.namespace == 'shop' && !request.dryRun",
            Ok(true),
        ),
        ("has(request.subResource)", Ok(false)),
        ("request.subResource == ''", no_key("subResource")),
        ("request.options == null", Ok(true)),
        ("request.userInfo.username == 'alice'", Ok(true)),
        ("has(request.userInfo.uid)", Ok(false)),
        ("'dev' in request.userInfo.groups", Ok(true)),
        ("!('system:nodes' in request.userInfo.groups)", Ok(true)),
        ("request.userInfo.extra['example.com/scopes'] == ['all']", Ok(true)),
        ("object.spec.replicas == 3", Ok(true)),
        ("object.spec.ratio == 0.5", Ok(true)),
        ("object.spec.large > 1.8e19", Ok(true)),
        ("object.spec.host == null", Ok(true)),
        ("object.spec.nothing == null", no_key("nothing")),
        ("object.spec.host.name == 'a'", no_key("name")),
        ("object.spec.image.name == 'a'", no_key("name")),
        ("object.metadata.labels['app'] == 'web'", Ok(true)),
        ("object.metadata.labels['nope'] == 'web'", no_key("nope")),
        ("object.metadata.labels[1] == 'web'", no_key("1")),
        ("object.spec.ports[1] == 443", Ok(true)),
        ("object.spec.ports[3] == 443", Err("index out of bounds: 3".into())),
        ("object.spec.ports[-1] == 443", Err("index out of bounds: -1".into())),
        (
            "object.spec.ports['a'] == 443",
            Err("unsupported index type 'string' in list".into()),
        ),
        ("object.spec.image[0] == 'E'", no_overload()),
        ("has(object.spec.host)", Ok(true)),
        ("has(object.spec.nothing)", Ok(false)),
        ("has(object.nothing.more)", no_key("nothing")),
        ("has(object.spec.image.more)", Ok(false)),
        ("'app' in object.metadata.labels", Ok(true)),
        ("'nope' in object.metadata.labels", Ok(false)),
        ("443 in object.spec.ports", Ok(true)),
        ("443.0 in object.spec.ports", Ok(true)),
        ("1 in object.metadata.labels", Ok(false)),
        ("1 in object.spec.image", no_overload()),
        // If one side of `&&` or `||` decides, an error on the other side is ignored.
        ("object.nope == 1 || true", Ok(true)),
        ("true || object.nope == 1", Ok(true)),
        ("object.nope == 1 && false", Ok(false)),
        ("false && object.nope == 1", Ok(false)),
        ("object.nope == 1 || false", no_key("nope")),
        ("true && object.nope == 1", no_key("nope")),
        ("object.spec.image && true", no_overload()),
        ("object.spec.image || true", Ok(true)),
        ("(object.nope ? true : false) || true", Ok(true)),
        (
            "true == (object.spec.replicas > 2 ? object.spec.ratio < 1.0 : object.nope)",
            Ok(true),
        ),
        ("object.spec.image ? true : false", no_overload()),
        ("1 + 2 * 3 - 4 / 2 == 5 && 7 % 4 == 3 && -(-1) == 1", Ok(true)),
        ("1u + 2u == 3u && 5u / 2u == 2u && 5u % 2u == 1u", Ok(true)),
        ("1.5 * 2.0 == 3.0 && 1.0 / 0.0 > 1.0", Ok(true)),
        ("1 / 0 == 1", Err("division by zero".into())),
        ("1 % 0 == 1", Err("modulus by zero".into())),
        ("9223372036854775807 + 1 == 0", Err("integer overflow".into())),
        ("-9223372036854775808 / -1 == 0", Err("integer overflow".into())),
        ("-9223372036854775808 % -1 == 0", Err("integer overflow".into())),
        ("1u - 2u == 0u", Err("unsigned integer overflow".into())),
        ("object.spec.replicas + 'a' == 'a'", no_overload()),
        ("object.spec.replicas + 1.0 == 4.0", no_overload()),
        (
            "dyn(1) == 1.0 && dyn(1) == 1u && dyn(1) != 'a' && dyn(null) != 0",
            Ok(true),
        ),
        ("1 < 1.5 && 2u > 1 && 1 <= 1u", Ok(true)),
        ("object.spec.replicas < 'a'", no_overload()),
        ("'a' < 'b' && false < true && b'a' < b'b'", Ok(true)),
        ("0x10 == 16 && 'a' + 'b' == 'ab' && b'a' + b'b' == b'ab'", Ok(true)),
        (
            "[1] + [2] == [1, 2] && [] == [] && {'a': 1} == {'a': 1} && {'a': 1} != {'a': 2}",
            Ok(true),
        ),
        (
            "{'a': 1, 'b': 2} == {'b': 2, 'a': 1} && {'a': 1}['a'] == 1 && {1: 'x'}[1] == 'x'",
            Ok(true),
        ),
        ("{'a': 1, 'a': 2}['a'] == 1", Err("Failed with repeated key".into())),
        (
            "object.spec.containers == [{'name': dyn('a'), 'image': dyn('one'), 'resources': dyn({'limits': {'memory': '2Gi'}})}, {'image': dyn('two'), 'name': dyn('b')}]",
            Ok(true),
        ),
        ("object.spec.containers.all(c, c.image in ['one', 'two'])", Ok(true)),
        ("object.spec.containers.all(c, has(c.resources))", Ok(false)),
        ("object.spec.containers.exists(c, c.name == 'b')", Ok(true)),
        ("object.spec.containers.exists_one(c, c.name == 'b')", Ok(true)),
        ("object.spec.containers.existsOne(c, c.name != 'x')", Ok(false)),
        ("object.spec.containers.map(c, c.name) == ['a', 'b']", Ok(true)),
        (
            "object.spec.containers.map(c, c.name == 'b', c.image) == ['two']",
            Ok(true),
        ),
        ("object.spec.containers.filter(c, c.name == 'b').size() == 1", Ok(true)),
        (
            "object.metadata.labels.exists(key, object.metadata.labels[key] == 'front')",
            Ok(true),
        ),
        ("object.metadata.annotations.all(key, false)", Ok(true)),
        (
            "object.spec.containers.exists(c, c.resources.limits.memory == '1Gi')",
            no_key("resources"),
        ),
        (
            "object.spec.containers.exists(c, c.resources.limits.memory == '2Gi')",
            Ok(true),
        ),
        (
            "object.spec.containers.all(c, c.resources.limits.memory == '1Gi')",
            Ok(false),
        ),
        (
            "object.spec.containers.all(c, c.resources.limits.memory == '2Gi')",
            no_key("resources"),
        ),
        (
            "object.spec.containers.exists_one(c, c.resources.limits.memory == '2Gi')",
            no_key("resources"),
        ),
        (
            "object.spec.ports.all(x, object.spec.ports.exists(y, y == x) && x > 0)",
            Ok(true),
        ),
        ("[1, 2].all(object, object < 3) && object.kind == 'Pod'", Ok(true)),
        ("[1].all(x, [2].all(x, x == 2) && x == 1)", Ok(true)),
        ("object.spec.replicas.all(x, true)", no_overload()),
        (
            "object.spec.image.startsWith('Ex') && object.spec.image.endsWith(':1.2') && object.spec.image.contains('/')",
            Ok(true),
        ),
        (
            "object.spec.image.lowerAscii() == 'example.com/web:1.2' && 'aé'.upperAscii() == 'Aé'",
            Ok(true),
        ),
        (
            "'  a '.trim() == 'a' && 'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
            Ok(true),
        ),
        (
            "'a,b'.split(',', 0) == [] && 'a,b'.split(',', 1) == ['a,b'] && 'a,b'.split(',', -1) == ['a', 'b']",
            Ok(true),
        ),
        (
            "'éa'.split('') == ['é', 'a'] && 'abc'.split('', 2) == ['a', 'bc']",
            Ok(true),
        ),
        ("['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b'", Ok(true)),
        (
            "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
            Ok(true),
        ),
        (
            "'hello hello'.replace('he', 'we', 0) == 'hello hello' && 'ab'.replace('', '_') == '_a_b_'",
            Ok(true),
        ),
        (
            "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'é'.substring(1) == ''",
            Ok(true),
        ),
        ("'tacocat'.substring(8) == ''", Err("index out of range: 8".into())),
        (
            "'tacocat'.substring(2, 1) == ''",
            Err("invalid substring range. start: 2, end: 1".into()),
        ),
        (
            "'héllo'.indexOf('l') == 2 && 'héllo'.lastIndexOf('l') == 3 && 'a'.indexOf('b') == -1",
            Ok(true),
        ),
        (
            "'hello mellow'.indexOf('ello', 2) == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1 && 'a'.indexOf('') == 0",
            Ok(true),
        ),
        ("'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == ''", Ok(true)),
        ("'hello'.charAt(6) == ''", Err("index out of range: 6".into())),
        (
            "size('hé') == 2 && 'hé'.size() == 2 && size(b'ab') == 2 && size([1]) == 1 && size({}) == 0",
            Ok(true),
        ),
        (
            "object.spec.image.matches('^[A-Z].*[0-9]$') && matches('abc', 'b')",
            Ok(true),
        ),
        (
            "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
            Ok(true),
        ),
        (
            "'1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']",
            Ok(true),
        ),
        ("'a'.matches(object.metadata.name)", Ok(false)),
        (
            "'a'.matches('(' + object.metadata.name)",
            Err("error parsing regexp".into()),
        ),
        ("object.spec.replicas.startsWith('a')", no_overload()),
        (
            "object.spec.ports.indexOf(443) == 1 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
            Ok(true),
        ),
        (
            "object.spec.ports.isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted()",
            Ok(true),
        ),
        (
            "[1, 2].sum() == 3 && object.spec.ports.max() == 8080 && object.spec.ports.min() == 80",
            Ok(true),
        ),
        (
            "[1].filter(x, x > 1).min() == 1",
            Err("min called on empty list".into()),
        ),
        (
            "sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
            Ok(true),
        ),
        (
            "int('12') == 12 && int(1.9) == 1 && int(2u) == 2 && uint(1) == 1u && double('1.5') == 1.5",
            Ok(true),
        ),
        (
            "int(object.metadata.name) == 1",
            Err("strconv.ParseInt: parsing \"web\": invalid syntax".into()),
        ),
        ("int(object.spec.ratio * 1e300) == 1", Err("integer overflow".into())),
        (
            "string(1) == '1' && string(true) == 'true' && string(b'a') == 'a' && string(1.5) == '1.5'",
            Ok(true),
        ),
        (
            "string([b'\\xff'][0]) == ''",
            Err("invalid UTF-8 in bytes, cannot convert to string".into()),
        ),
        ("bool('true') && bytes('a') == b'a'", Ok(true)),
        (
            "type(1) == int && type(object.spec) == map && type(object.spec.ports) == list && type('a') == string",
            Ok(true),
        ),
        (
            "type(null) == null_type && type(type(1)) == type && type(1) != uint",
            Ok(true),
        ),
        (
            "timestamp(object.metadata.creationTimestamp) < timestamp('2024-03-01T00:00:00Z')",
            Ok(true),
        ),
        (
            "timestamp(object.metadata.creationTimestamp).getMonth() == 1 && timestamp('2024-02-29T12:30:15Z').getDate() == 29",
            Ok(true),
        ),
        (
            "timestamp('2024-02-29T23:30:15.5Z').getHours('+01:00') == 0 && timestamp('2024-02-29T00:00:00Z').getDayOfWeek() == 4",
            Ok(true),
        ),
        (
            "timestamp('2024-02-29T00:00:00Z').getHours('Europe/Berlin') == 1 && \
             timestamp('2024-07-29T00:00:00Z').getHours('Europe/Berlin') == 2",
            Ok(true),
        ),
        (
            "timestamp('9999-12-31T23:59:59Z').getFullYear('America/New_York') == 9999 && \
             timestamp('2024-02-29T00:00:00Z').getHours('-02:30') == 21",
            Ok(true),
        ),
        (
            "timestamp('2024-02-29T00:00:00Z').getHours('europe/berlin') == 1",
            Err("unknown time zone europe/berlin".into()),
        ),
        (
            "timestamp('2024-03-01T00:00:00Z') - timestamp('2024-02-29T00:00:00Z') == duration('24h')",
            Ok(true),
        ),
        (
            "timestamp('2024-02-29T00:00:00Z') + duration('1h30m') == timestamp('2024-02-29T01:30:00Z')",
            Ok(true),
        ),
        (
            "duration('90m').getHours() == 1 && duration('1.5s').getMilliseconds() == 1500 && string(duration('1m')) == '60s'",
            Ok(true),
        ),
        (
            "timestamp(object.metadata.name) == timestamp(0)",
            Err("not a timestamp".into()),
        ),
        (
            "timestamp(['9999-12-31T23:59:59-12:00'][0]) == timestamp(0)",
            Err("not a timestamp".into()),
        ),
        (
            "string(timestamp(0)) == '1970-01-01T00:00:00Z' && int(timestamp('1970-01-01T00:01:00Z')) == 60",
            Ok(true),
        ),
        (
            "timestamp('9999-12-31T23:59:59Z') + duration('2h') == timestamp(0)",
            Err("timestamp overflow".into()),
        ),
        ("object.?spec.?image.orValue('') != ''", Ok(true)),
        ("object.?nope.?image.orValue('none') == 'none'", Ok(true)),
        (
            "object.?spec.image.hasValue() && !object.?nope.image.hasValue()",
            Ok(true),
        ),
        (
            "object.metadata.labels[?'app'].orValue('') == 'web' && object.spec.ports[?9].orValue(1) == 1",
            Ok(true),
        ),
        (
            "optional.of(1).value() == 1 && optional.none().or(optional.of(2)).value() == 2",
            Ok(true),
        ),
        (
            "optional.none().value() == 1",
            Err("optional.none() dereference".into()),
        ),
        (
            "!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue('a').hasValue()",
            Ok(true),
        ),
        ("[?object.?nope, dyn(1)] == [1] && {?'a': object.?nope} == {}", Ok(true)),
        ("object.?spec.optMap(s, s.replicas).orValue(0) == 3", Ok(true)),
        ("object.?spec.optFlatMap(s, s.?nope).orValue(0) == 0", Ok(true)),
        ("has(object.?spec.image) && !has(object.?nope.image)", Ok(true)),
        (
            "quantity(object.spec.containers[0].resources.limits.memory).isGreaterThan(quantity('1Gi'))",
            Ok(true),
        ),
        (
            "quantity('1Ki').asInteger() == 1024 && quantity('500m').add(quantity('0.5')) == quantity('1')",
            Ok(true),
        ),
        (
            "isQuantity('2G') && !isQuantity('2Q') && sign(quantity('1').sub(2)) == -1",
            Ok(true),
        ),
        (
            "isIP('10.0.0.1') && !isIP('10.0.0.256') && ip('::1').isLoopback() && ip('10.0.0.1').family() == 4",
            Ok(true),
        ),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
            Ok(true),
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
            Ok(true),
        ),
        (
            "cidr('0.0.0.0/0').containsIP('1.2.3.4') && cidr('::/0').containsIP('::1') && cidr('::1/128').prefixLength() == 128",
            Ok(true),
        ),
        (
            "ip.isCanonical('::1') && !ip.isCanonical('0:0:0:0:0:0:0:1') && string(ip('::1')) == '::1'",
            Ok(true),
        ),
        (
            "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
            Ok(true),
        ),
        (
            "ip(cidr('10.1.2.3/8').ip() == ip('10.1.2.3') ? '::1' : '') == ip('::1')",
            Ok(true),
        ),
        ("dyn('::1').ip() == ip('::1')", no_overload()),
        (
            "authorizer.serviceAccount('Not A Name', 'a').path('/').check('get').allowed()",
            Err("Invalid service account namespace".into()),
        ),
        (
            "authorizer.path('').check('get').allowed()",
            Err("path must not be empty".into()),
        ),
    ];
    let request = pod();
    for (expression, expected) in table {
        let outcome = evaluate(expression, &request).await;
        match (&outcome, &expected) {
            (Err(text), Err(expected)) => {
                assert!(text.starts_with(expected.as_str()), "{expression}: {text}")
            }
            _ => assert_eq!(outcome, expected, "{expression}"),
        }
    }
}

#[tokio::test]
async fn expressions_read_the_fields_of_a_request() {
    let mut request = pod();
    request.operation = Operation::Update;
    request.old_object = request.object.clone();
    request.subresource = Some("status".into());
    request.dry_run = true;
    request.namespace = None;
    request.options = Object::from_value(json!({"fieldManager": "kubectl"}));
    request.requested_kind = Some(Box::new(admittance_admission::RequestedKind {
        kind: GroupVersionKind::from_api_version("extensions/v1beta1", "Pod"),
        resource: admittance_admission::GroupVersionResource {
            group: "extensions".into(),
            version: "v1beta1".into(),
            resource: "pods".into(),
        },
        subresource: None,
    }));
    for (expression, expected) in [
        ("request.subResource == 'status' && request.dryRun", Ok(true)),
        ("has(request.namespace)", Ok(false)),
        ("request.options.fieldManager == 'kubectl'", Ok(true)),
        (
            "request.requestKind.group == 'extensions' && request.requestResource.version == 'v1beta1'",
            Ok(true),
        ),
        ("has(request.requestSubResource)", Ok(false)),
        ("object == oldObject && oldObject.spec.replicas == 3", Ok(true)),
    ] {
        assert_eq!(evaluate(expression, &request).await, expected, "{expression}");
    }
    request.object = None;
    assert_eq!(evaluate("object == null", &request).await, Ok(true));
}
