//! Policies of Kyverno as hooks. The cases are from the documentation of Kyverno's libraries, and from its responses.

use std::sync::atomic::{AtomicU32, Ordering};

use admittance_admission::{
    ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Failure, FailurePolicy, Hook, HttpAnswer,
    HttpAnswers, HttpGrant, HttpOrigin, Moment, PolicyHttp, Response, ResponseRecorder, Verdict,
};

use super::*;

#[derive(Debug, Default)]
struct SingleConfigMap(AtomicU32);

#[async_trait]
impl ClusterReader for SingleConfigMap {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(match (kind.to_string().as_str(), namespace, name) {
            ("v1/ConfigMap", Some("shop"), "limits") => Some(json!({"data": {"most": "2"}}).to_string()),
            ("v1/Namespace", None, "shop") => Some(json!({"metadata": {"labels": {"a": "b"}}}).to_string()),
            (_, _, "hidden") => return Err(ClusterError::Refused("forbidden".to_owned())),
            _ => None,
        })
    }

    async fn list(&self, kind: &ClusterKind, query: &ClusterQuery, _: Deadline) -> Result<ClusterPage, ClusterError> {
        let name = format!("{kind} {:?} {}", query.namespace, query.label_selector);
        let mut page = ClusterPage::default();
        page.objects
            .push(json!({"metadata": {"name": name}}).to_string().into());
        Ok(page)
    }
}

fn binding(actions: &[Action]) -> Binding {
    Binding {
        wording: MessageWording::Kyverno { policy: "p".to_owned() },
        actions: actions.to_vec(),
        ..Binding::default()
    }
}

fn compile(namespace: Option<&str>, expressions: &[&str]) -> Result<CompiledPolicy, ConditionError> {
    let mut compiler = PolicyCompiler::new(false).for_kyverno(namespace);
    let mut validations = Vec::new();
    for expression in expressions {
        let (expression, message) = expression.split_once(" | ").unwrap_or((expression, "no"));
        validations.push(Validation {
            expression: compiler.compile(Role::Validation, expression)?,
            message: Some(message.to_owned()),
            message_expression: None,
            reason: DenialReason::Invalid,
        });
    }
    Ok(compiler.finish(Vec::new(), validations, Vec::new(), Vec::new()))
}

async fn admit(
    policy: CompiledPolicy,
    binding: Binding,
    cluster: Option<Arc<SingleConfigMap>>,
) -> Result<Response, Failure> {
    let cluster = cluster.map(|cluster| cluster as Arc<dyn ClusterReader>);
    let hook = PolicyHook::new(Arc::new(policy), binding, Arc::new(NoAuthorizer), cluster);
    hook.admit(&Arc::new(pod()), Deadline::after(Duration::from_secs(60)))
        .await
}

fn message(answer: &Response) -> Option<&str> {
    match &answer.verdict {
        Verdict::Deny(denial) => Some(&denial.message),
        _ => None,
    }
}

async fn denial_message(expression: &str) -> Option<String> {
    let policy = compile(None, &[expression]).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let answer = admit(policy, binding(&[Action::Deny]), Some(Arc::default())).await;
    message(&answer.unwrap()).map(str::to_owned)
}

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn each_function_of_kyverno_returns_the_expected_value() {
    let digest = format!("image('ghcr.io/a/b:1@{DIGEST}')");
    let digest_expressions = [
        format!("{digest}.digest() == '{DIGEST}' && {digest}.identifier() == '{DIGEST}' && {digest}.tag() == ''"),
        format!(
            "{digest}.containsDigest() && {digest}.repository() == 'a/b' && {digest} == parseImageReference('ghcr.io/a/b@{DIGEST}')"
        ),
    ];
    let expressions = [
        "image('nginx').registry() == 'index.docker.io' && image('nginx').repository() == 'library/nginx'",
        "image('nginx').tag() == 'latest' && image('nginx').identifier() == 'latest' && !image('nginx').containsDigest()",
        "image('docker.io/a/b:1').registry() == 'index.docker.io' && image('a/b:1').repository() == 'a/b'",
        "image('localhost:5000/aa:1').registry() == 'localhost:5000' && image('localhost/aa').repository() == 'aa'",
        "isImage('a.b/cc:1') && !isImage('A/b') && !isImage('aa:') && !isImage('aa@sha256:0') && !isImage('')",
        "parseServiceAccount('system:serviceaccount:a:b') == {'Name': 'b', 'Namespace': 'a'}",
        "parseServiceAccount('alice').Name == '' && user.parseServiceAccount('system:serviceaccount:a:b').Namespace == 'a'",
        "md5('a') == '0cc175b9c0f1b6a831c399e269772661' && hash.md5('a') == md5('a')",
        "sha1('a') == '86f7e437faa5a7fce15d1ddcb9eaeaea377667b8' && hash.sha1('a') == sha1('a')",
        "sha256('').startsWith('e3b0c442') && hash.sha256('a') == sha256('a')",
        "json.unmarshal('{\"a\": [1, 2.5, null, true]}').a == [dyn(1), dyn(2.5), dyn(null), dyn(true)]",
        "json.marshal({'a': [1, 2]}) == '{\"a\":[1,2]}' && json.marshal('b') == '\"b\"'",
        "yaml.parse('a:\\n- b: 1\\n').a[0].b == 1",
        "random().matches('^[0-9a-z]{8}$') && random() != random()",
        "random('^(a|bc)[^x]{4}-\\\\d+$').matches('^(a|bc)[^x]{4}-[0-9]+$') && random.random('[A-Z]{3}').size() == 3",
        "gzip.decompress(base64.decode('H4sIADP4umkAA8uuLEstyssHAOgPnDMHAAAA')) == 'kyverno'",
        "gzip.decompress(gzip.compress('kyverno')) == 'kyverno' && gzip.compress('a') == gzip.compress('a')",
        "time.now() > timestamp('2024-01-01T00:00:00Z')",
        "time.toCron(timestamp('2024-02-29T12:30:15Z')) == '30 12 29 2 4'",
        "time.truncate(timestamp('2024-02-29T12:30:15Z'), duration('1h')) == timestamp('2024-02-29T12:00:00Z')",
        "listObjToMap([{'n': 'a'}, {'n': 'b'}], [{'v': 1}, {'v': 2}], 'n', 'v') == {'a': 1, 'b': 2}",
        "transform.listObjToMap([{'n': 'a'}], [{'v': 1}], 'n', 'v').a == 1",
        "math.round(2.456, 2) == 2.46 && math.round(2.5) == 3.0 && math.ceil(1.2) == 2.0 && math.floor(1.8) == 1.0",
        "math.greatest(1, 2.5, 2u) == 2.5 && math.least([3, 2, 4]) == 2 && math.trunc(-1.5) == -1.0",
        "math.abs(-1) == 1 && math.abs(-1.5) == 1.5 && math.sign(-3) == -1 && math.sign(-0.5) == -1.0",
        "math.bitAnd(6, 3) == 2 && math.bitOr(6, 3) == 7 && math.bitXor(6, 3) == 5 && math.bitNot(0) == -1",
        "!math.isNaN(1.0) && !math.isInf(1.0) && math.isFinite(1.0)",
        "base64.encode(b'hello') == 'aGVsbG8=' && base64.decode('aGVsbG8') == b'hello'",
        "regex.replace('foo bar', '(fo)o', '\\\\1-$') == 'fo-$ bar' && regex.replace('aaa', 'a', 'b', 2) == 'bba'",
        "regex.extract('item-A', 'item-(\\\\w+)') == optional.of('A') && regex.extract('x', 'y') == optional.none()",
        "regex.extractAll('id:1, id:2', 'id:(\\\\d)') == ['1', '2'] && regex.extractAll('ab', '[a-z]') == ['a', 'b']",
        "cel.bind(x, object.metadata.name, x + x) == 'webweb' && cel.bind(x, 1, cel.bind(y, x + 1, x + y)) == 3",
        "object.spec.replicas.orValue(1) == 3 && object.?nope.orValue(2) == 2",
        "resource.Get('v1', 'configmaps', 'shop', 'limits').data.most == '2' && resource.get('v1', 'configmaps', 'a', 'b') == null",
        "resource.Get('v1', 'namespaces', '', request.namespace).metadata.labels.a == 'b'",
        "resource.List('apps/v1', 'deployments', 'shop').items[0].metadata.name == 'apps/v1/Deployment Some(\"shop\") '",
        "resource.list('v1', 'pods', '', {'a': 'b'}).items[0].metadata.name == 'v1/Pod None a in (b)'",
        "exceptions.allowedImages == [] && exceptions.allowedValues == []",
    ];
    let mut failures = Vec::new();
    for expression in digest_expressions.iter().map(String::as_str).chain(expressions) {
        if let Some(message) = denial_message(expression).await {
            failures.push(format!("{expression}: {message}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn x509_decode_returns_the_same_fields_as_go() {
    const CERTIFICATE: &str = include_str!("x509/certificate.pem");
    const REQUEST: &str = include_str!("x509/request.pem");
    const ELLIPTIC: &str = include_str!("x509/elliptic.pem");
    let expression_on_decoded = |pem: &str, expression: &str| {
        let pem = pem.replace('\n', "\\n");
        format!("cel.bind(c, x509.decode('{pem}'), {expression})")
    };
    // The modulus of the key in decimal, as computed from the output of `openssl rsa -modulus`.
    let modulus = "115132503946400349703634281247340370237416683726376329195519497309529035457853848388144454481846075\
                   441957201720229558425699733609713255722981443523094081216258029103028136560494580677014777802112689\
                   187675961349275494011201178603278999526579653054593916428678391777506775977875440514119183760595187\
                   534630717521";
    let key = format!("c.PublicKeyAlgorithm == 1 && c.PublicKey == {{'N': dyn('{modulus}'), 'E': dyn(65537)}}");
    let mut failures = Vec::new();
    for (pem, expression) in [
        (CERTIFICATE, key.as_str()),
        (
            CERTIFICATE,
            "c.SerialNumber == 1234605616436508552.0 && type(c.SerialNumber) == double",
        ),
        (
            CERTIFICATE,
            "c.Issuer.CommonName == 'ca.example.com' && c.Issuer.Organization == ['Example', 'Other']",
        ),
        (
            CERTIFICATE,
            "c.Issuer.SerialNumber == '7' && c.Issuer.Country == ['DE'] && c.Issuer.Province == null",
        ),
        (
            CERTIFICATE,
            "c.Issuer.Names[5] == {'Type': dyn([2, 5, 4, 5]), 'Value': dyn('7')} && c.Issuer.ExtraNames == null",
        ),
        (
            CERTIFICATE,
            "timestamp(c.NotAfter) - timestamp(c.NotBefore) == duration('87600h')",
        ),
        (
            CERTIFICATE,
            "c.KeyUsage == 97 && c.ExtKeyUsage == [2, 1] && c.IsCA && c.BasicConstraintsValid",
        ),
        (
            CERTIFICATE,
            "c.MaxPathLen == 0 && c.MaxPathLenZero && c.AuthorityKeyId == 'y/GTEEZIMGHsyCHC7FPceYtmiB0='",
        ),
        (
            CERTIFICATE,
            "c.DNSNames == ['a.example.com', 'b.example.com'] && c.EmailAddresses == ['a@example.com']",
        ),
        (CERTIFICATE, "c.IPAddresses == ['192.0.2.1', '2001:db8::1']"),
        (
            CERTIFICATE,
            "c.CRLDistributionPoints == ['http://example.com/crl'] && c.PolicyIdentifiers == [[1, 2, 3, 4, 5]]",
        ),
        (
            CERTIFICATE,
            "c.PermittedDNSDomains == ['example.com'] && c.PermittedDNSDomainsCritical",
        ),
        (
            CERTIFICATE,
            "c.ExcludedDNSDomains == null && c.ExcludedIPRanges == [{'IP': '10.0.0.0', 'Mask': '/wAAAA=='}]",
        ),
        (
            CERTIFICATE,
            "c.OCSPServer == ['http://ocsp.example.com'] && c.IssuingCertificateURL[0].endsWith('/ca.pem')",
        ),
        (
            CERTIFICATE,
            "c.Extensions[0] == {'Id': dyn([2, 5, 29, 19]), 'Critical': dyn(true), 'Value': dyn('MAYBAf8CAQA=')}",
        ),
        (
            CERTIFICATE,
            "c.Raw.startsWith('MII') && c.RawTBSCertificate != c.Raw && c.RawIssuer == c.RawSubject",
        ),
        (REQUEST, key.as_str()),
        (
            REQUEST,
            "c.Subject.CommonName == 'ca.example.com' && c.DNSNames == ['a.example.com'] && c.Version == 0",
        ),
        (
            REQUEST,
            "c.IPAddresses == ['192.0.2.1'] && c.Extensions[0].Id == [2, 5, 29, 17] && c.EmailAddresses == null",
        ),
    ] {
        if let Some(message) = denial_message(&expression_on_decoded(pem, expression)).await {
            failures.push(format!("{expression}: {message}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let key = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----";
    let misspelt_certificate = CERTIFICATE.replacen("MII", "MIJ", 1);
    for (pem, expected) in [
        ("a", "failed to decode PEM block"),
        (key, "PEM block neither contains a CERTIFICATE or CERTIFICATE REQUEST"),
        (ELLIPTIC, "certificate should use rsa algorithm"),
        (&misspelt_certificate, "x509: "),
    ] {
        let message = denial_message(&expression_on_decoded(pem, "c.IsCA == true"))
            .await
            .unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_failed_expression_is_reported_with_the_reason() {
    for (expression, expected) in [
        (
            "image(object.spec.image).tag() == ''",
            "could not parse reference \"Example.com/Web:1.2\": the repository",
        ),
        ("json.unmarshal('{').a == 1", "EOF while parsing"),
        ("gzip.decompress(b'a') == ''", "unexpected end of file"),
        ("random('(') == ''", "is not a regular expression"),
        (
            "random('(a{1000}){1000}') == ''",
            "the random text has more than 4096 bytes",
        ),
        (
            "listObjToMap([{'n': 'a'}], [], 'n', 'v') == {}",
            "listObjToMap must take lists of equal length",
        ),
        ("regex.replace('a', 'a', '\\\\x') == ''", "invalid replacement string"),
        (
            "regex.extract('ab', '(a)(b)') == optional.none()",
            "more than one capturing group",
        ),
        (
            "resource.Get('v1', 'secrets', 'a', 'hidden') == null",
            "failed to get resource: refused: forbidden",
        ),
        (
            "lists.range(30).all(i, resource.Get('v1', 'pods', 'a', string(i)) == null)",
            "cost limit exceeded",
        ),
    ] {
        let message = denial_message(expression).await.unwrap_or_default();
        assert!(
            message.starts_with("Policy p error: ") && message.contains(expected),
            "{expression}: {message}"
        );
    }
    let policy = compile(None, &["resource.Get('v1', 'pods', 'a', 'b') == null"]).unwrap();
    let answer = admit(policy, binding(&[Action::Deny]), None).await.unwrap();
    assert!(
        format!("{:?}", answer.verdict).contains("none is configured; write `cluster: {}`"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn yaml_with_exploding_aliases_is_an_error() {
    let alias_lines = (1..10).map(|line| {
        format!(
            "a{line}: &a{line} [{}]\\n",
            vec![format!("*a{}", line - 1); 9].join(",")
        )
    });
    let nested_aliases = format!("a0: &a0 {{x: 1}}\\n{}", alias_lines.collect::<String>());
    let long_scalars = format!("a: &a {}\\nb: [{}]\\n", "x".repeat(10_000), vec!["*a"; 1000].join(","));
    for (text, expected) in [(nested_aliases, "replay"), (long_scalars, "scalar")] {
        let message = denial_message(&format!("yaml.parse('{text}').a == 1"))
            .await
            .unwrap_or_default();
        assert!(message.to_lowercase().contains(expected), "{message}");
    }
    let few_aliases = "a: &a {x: 1, y: [1, 2]}\\nb: [*a, *a, *a]\\n";
    assert_eq!(
        denial_message(&format!("yaml.parse('{few_aliases}').b[2].y[1] == 2")).await,
        None
    );
}

#[test]
fn functions_that_policies_cannot_call_are_refused_with_the_reason() {
    for (namespace, expression, expected) in [
        (
            None,
            "http.Client('x') == 1",
            "'http.Client' cannot be called here: a CA in a policy is not trusted; name its file in `pluginHttp.ca`",
        ),
        (
            Some("shop"),
            "http.Get('https://a.example').ok",
            "'http.Get' cannot be called in a policy of a namespace",
        ),
        (
            None,
            "globalContext.Get('a', 'b') == 1",
            "there is no global context; look the objects up with `resource.Get`",
        ),
        (
            None,
            "image.GetMetadata('a').config == 1",
            "a policy in CEL has no grant for registries",
        ),
        (
            None,
            "resource.Post('v1', 'pods', {}) == 1",
            "a policy creates no objects",
        ),
        (
            None,
            "resource.Get('v1', object.kind, 'a', 'b') == 1",
            "write the version and the resource as literals",
        ),
        (
            None,
            "resource.Get('a/v1', 'widgets', 'a', 'b') == 1",
            "widgets of a/v1 is not a resource of Kubernetes",
        ),
        (
            Some("shop"),
            "resource.Get('v1', 'pods', 'a', 'b') == 1",
            "found no matching overload for 'resource.Get'",
        ),
    ] {
        let error = compile(namespace, &[expression]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for expression in [
        "image('a').tag() == ''",
        "md5('a') == ''",
        "cel.bind(x, 1, x) == 1",
        "exceptions == null",
    ] {
        let error = PolicyCompiler::new(false)
            .compile(Role::Validation, expression)
            .unwrap_err();
        assert!(error.to_string().contains("undeclared reference"), "{error}");
    }
}

#[tokio::test]
async fn a_policy_with_a_namespace_looks_up_objects_only_in_that_namespace() {
    let expressions = [
        "resource.Get('v1', 'configmaps', 'limits').data.most == '2'",
        "resource.List('v1', 'pods').items[0].metadata.name == 'v1/Pod Some(\"shop\") '",
        "resource.List('v1', 'pods', {'a': 'b'}).items.size() == 1",
    ];
    let policy = compile(Some("shop"), &expressions).unwrap();
    let kinds: Vec<String> = policy.lookups().map(ToString::to_string).collect();
    assert_eq!(kinds, ["v1/ConfigMap", "v1/Pod"]);
    let answer = admit(policy, binding(&[Action::Deny]), Some(Arc::default()))
        .await
        .unwrap();
    assert_eq!(message(&answer), None);
}

#[tokio::test]
async fn an_object_is_looked_up_once_for_a_policy() {
    let lookup = "resource.Get('v1', 'configmaps', 'shop', 'limits') != null";
    let config_maps = Arc::new(SingleConfigMap::default());
    let policy = compile(None, &[lookup, lookup]).unwrap();
    admit(policy, binding(&[Action::Deny]), Some(config_maps.clone()))
        .await
        .unwrap();
    assert_eq!(config_maps.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_recorded_request_keeps_the_objects_that_its_policies_looked_up() {
    let expressions = [
        "resource.Get('v1', 'configmaps', 'shop', 'limits') != null",
        "resource.List('v1', 'pods', 'shop').items.size() == 1",
        "resource.Get('v1', 'configmaps', 'shop', 'absent') == null",
        "namespaceObject.metadata.labels.a == 'b'",
    ];
    let policy = Arc::new(compile(None, &expressions).unwrap());
    let cluster: Arc<dyn ClusterReader> = Arc::<SingleConfigMap>::default();
    let hook = PolicyHook::new(policy, binding(&[Action::Deny]), Arc::new(NoAuthorizer), Some(cluster));
    let recorder = ResponseRecorder::default();
    let mut request = pod();
    request.recorder = Some(recorder.clone());
    let answer = hook
        .admit(&Arc::new(request), Deadline::after(Duration::from_secs(60)))
        .await;
    assert_eq!(message(&answer.unwrap()), None);
    let recorded = recorder.take();
    let kinds: Vec<String> = recorded.objects.iter().map(|(kind, _)| kind.to_string()).collect();
    assert_eq!(kinds, ["v1/Namespace", "v1/ConfigMap", "v1/Pod"]);
    assert!(recorded.looked_up);
}

fn hook_with_http(policy: CompiledPolicy) -> PolicyHook {
    let answers = json!([
        {"url": "https://a.example/teams", "body": {"teams": ["shop"]}},
        {"url": "https://a.example/list", "status": 404, "body": [1, 2]},
        {"url": "https://a.example/text", "body": "no JSON"},
        {"url": "https://a.example/check", "method": "POST", "body": {"ok": true}},
        {"url": "https://a.example/away", "error": "unreachable"},
    ]);
    let answers: Vec<HttpAnswer> = serde_json::from_value(answers).unwrap();
    let mut read_grant = HttpGrant::from("https://a.example".parse::<HttpOrigin>().unwrap());
    read_grant.methods = ["GET".to_owned()].into();
    let mut write_grant = read_grant.clone();
    write_grant.methods = ["POST".to_owned()].into();
    write_grant.paths = vec!["/check".parse().unwrap()];
    let http = PolicyHttp {
        grants: [read_grant, write_grant].into(),
        sender: Arc::new(HttpAnswers::from_iter(answers)),
    };
    let hook = PolicyHook::new(Arc::new(policy), binding(&[Action::Deny]), Arc::new(NoAuthorizer), None);
    hook.with_http(Some(http))
}

#[tokio::test]
async fn a_policy_sends_only_http_requests_that_are_granted() {
    for (expression, expected) in [
        ("http.Get('https://a.example/teams').teams == ['shop']", None),
        (
            "http.get('https://a.example/teams', {'a': 'b'}).statusCode == 200",
            None,
        ),
        (
            "http.Get('https://a.example/list').body == [1, 2] && http.Get('https://a.example/list').statusCode == 404",
            None,
        ),
        ("http.Get('https://a.example/text').body == null", None),
        ("http.Post('https://a.example/check', {'a': 1}).ok == true", None),
        ("http.post('https://a.example/check', 'a', {'b': 'c'}).ok == true", None),
        (
            "http.Get('https://a.example/away').ok == true",
            Some("request failed: unreachable"),
        ),
        (
            "http.Get('https://b.example/').ok == true",
            Some(
                "a policy sends a request to `https://b.example` without permission (GET /); add `https://b.example` to \
                 `pluginHttp.kyverno` of the configuration",
            ),
        ),
        (
            "http.Post('https://a.example/teams', {}).ok == true",
            Some("add the path to `paths` of `https://a.example` in `pluginHttp.kyverno`"),
        ),
        (
            "http.Get('http://a.example/').ok == true",
            Some("is neither an https URL"),
        ),
        (
            "lists.range(30).all(i, http.Get('https://a.example/teams').statusCode == 200)",
            Some("cost limit exceeded"),
        ),
    ] {
        let policy = compile(None, &[expression]).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let answer = hook_with_http(policy)
            .admit(&Arc::new(pod()), Deadline::after(Duration::from_secs(60)))
            .await
            .unwrap();
        let message = message(&answer);
        match expected {
            Some(expected) => assert!(message.unwrap().contains(expected), "{expression}: {message:?}"),
            None => assert_eq!(message, None, "{expression}"),
        }
    }
}

#[tokio::test]
async fn http_responses_to_a_policy_are_recorded() {
    let expression = "http.Post('https://a.example/check', {}).ok == true";
    let recorder = ResponseRecorder::default();
    let mut request = pod();
    request.recorder = Some(recorder.clone());
    let hook = hook_with_http(compile(None, &[expression, expression]).unwrap());
    let request = Arc::new(request);
    let answer = hook.admit(&request, Deadline::after(Duration::from_secs(60)));
    assert_eq!(message(&answer.await.unwrap()), None);
    let recorded_responses = recorder
        .take()
        .http
        .into_iter()
        .map(|answer| (answer.method, answer.body));
    let expected = ("POST".to_owned(), json!({"ok": true}));
    assert_eq!(recorded_responses.collect::<Vec<_>>(), [expected]);
}

#[tokio::test]
async fn denials_by_kyverno_policies_have_the_wording_of_kyverno() {
    let ignore_binding = Binding {
        failure_policy: FailurePolicy::Ignore,
        ..binding(&[Action::Deny])
    };
    let failed_message = "Policy p failed: a";
    let error_message = "Policy p error: expression 'object.nope == 1' resulted in error: no such key: nope";
    for (expressions, binding, verdict, warnings, note) in [
        (
            vec!["true", "false | a", "false | b"],
            binding(&[Action::Deny]),
            Some(failed_message),
            vec![],
            None,
        ),
        (
            vec!["false | a\nb"],
            binding(&[Action::Deny]),
            Some("Policy p failed: a\nb"),
            vec![],
            None,
        ),
        (
            vec!["object.nope == 1", "false | b"],
            binding(&[Action::Deny]),
            Some(error_message),
            vec![],
            None,
        ),
        (
            vec!["false | a"],
            binding(&[Action::Warn]),
            None,
            vec![failed_message],
            None,
        ),
        (
            vec!["false | a"],
            binding(&[Action::Audit]),
            None,
            vec![],
            Some(failed_message),
        ),
        (vec!["object.nope == 1"], ignore_binding, None, vec![], None),
    ] {
        let answer = admit(compile(None, &expressions).unwrap(), binding, None)
            .await
            .unwrap();
        assert_eq!(message(&answer), verdict);
        assert_eq!(answer.warnings, warnings);
        let notes: Vec<_> = answer.audit_annotations.iter().map(|(_, note)| note.as_str()).collect();
        assert_eq!(notes, Vec::from_iter(note));
    }
}

#[test]
fn match_conditions_of_kyverno_may_have_any_name() {
    let name = "Check that ttlSecondsAfterFinished is missing and ownerReferences is empty";
    let is_accepted = |mut compiler: PolicyCompiler| compiler.compile_condition(name, "true").is_ok();
    assert!(is_accepted(PolicyCompiler::new(false).for_kyverno(None)));
    assert!(!is_accepted(PolicyCompiler::new(false)));
}

#[tokio::test]
async fn a_policy_reads_the_images_and_values_that_its_exceptions_allow() {
    let allowance = |condition: &str, until: u64| {
        let mut compiler = PolicyCompiler::new(false).for_kyverno(None);
        Arc::new(Allowance {
            expires_at: Moment(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(until)),
            conditions: vec![compiler.compile_condition("a", condition).unwrap()],
            images: vec!["nginx".to_owned()],
            values: vec!["x".to_owned(), "y".to_owned()],
        })
    };
    let year_9999 = 253_402_300_799;
    for (condition, until, is_allowed) in [
        ("object.metadata.name == 'web'", year_9999, true),
        ("object.metadata.name == 'other'", year_9999, false),
        ("object.nope == 1", year_9999, false),
        ("true", 1, false),
    ] {
        let policy = compile(
            None,
            &["'nginx' in exceptions.allowedImages && exceptions.allowedValues == ['x', 'y']"],
        );
        let binding = Binding {
            allowances: vec![allowance(condition, until)],
            ..binding(&[Action::Deny])
        };
        let answer = admit(policy.unwrap(), binding, None).await.unwrap();
        assert_eq!(message(&answer).is_none(), is_allowed, "{condition}");
    }
}
