//! Tests access to the admin port of a Pod, and the program's rights in the cluster.

use super::*;

#[tokio::test]
async fn access_to_the_admin_port_of_a_pod_follows_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let certs = directory.path().join("certs");
    let certs_output = Admittance::run(["certs", "--host", "127.0.0.1", "--out", certs.to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    let token = write(&directory, "ci.token", "0123456789abcdef0123456789abcdef\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let pods = write(&directory, "pods.yaml", chains());
    let of_service = tempfile::tempdir().unwrap();
    let of_service = self::create_certs(of_service.path()).await;
    let tls = "  tls: { certificate: certs/127.0.0.1.pem, key: certs/127.0.0.1.key }\n";
    let print_manifests = async |tls: &str| {
        let text = format!(
            "dialect: {{ kubernetes: {{}} }}\nadmin:\n  address: 127.0.0.1:9090\n{tls}  \
             tokens: [{{ name: ci, role: Admin, file: ci.token }}]\n"
        );
        let config = write(&directory, "admittance.yaml", text);
        let [config, pods] = [config.display(), pods.display()];
        let arguments = format!("--config {config} --definitions {pods} {of_service}");
        PrintedManifests::in_directory(tempfile::tempdir().unwrap(), &arguments).await
    };

    let with_tls = print_manifests(tls).await;
    assert!(
        !with_tls.stderr.contains("the admin API of the Pods is disabled"),
        "{}",
        with_tls.stderr
    );
    let container = &with_tls.pod()["containers"][0];
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS");
    }
    let config = &with_tls.object("ConfigMap", "-config")["data"];
    assert!(
        !config.to_string().contains("0123456789abcdef"),
        "no secret is in a ConfigMap"
    );
    let root = with_tls.directory.path().join("pod");
    with_tls.write_volumes(&root);
    let secret = root.join("etc/admittance/admin/token-1");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o440)).unwrap();
    let program = serve_pod(&root).await;
    let server = program.admin_url("").replace("http:", "https:");
    let authority = certs.join("ca.pem");
    let status = async |token_options: &[&str]| {
        let mut arguments = vec!["status", "--server", &server, "--ca", authority.to_str().unwrap()];
        arguments.extend(token_options);
        Admittance::run(arguments).await.unwrap()
    };
    let status_output = status(&["--token-file", token.to_str().unwrap()]).await;
    assert_eq!(
        status_output.code,
        Some(0),
        "{}{}",
        status_output.stdout,
        status_output.stderr
    );
    let refused_status = status(&[]).await;
    assert!(
        refused_status.stderr.contains("give a token with --token-file"),
        "{}",
        refused_status.stderr
    );

    // An admin port with tokens needs TLS unless it is on loopback. It uses the certificate of the webhook's port.
    let without_tls = print_manifests("").await;
    let text = without_tls.object("ConfigMap", "-config")["data"]["admittance.yaml"]
        .as_str()
        .unwrap();
    let of_webhook = "  tls:\n    certificate: \"../tls/tls.crt\"\n    key: \"../tls/tls.key\"\n";
    let admin = format!("      file: \"../admin/token-1\"\n{of_webhook}");
    assert!(text.contains(&admin), "{text}");

    let nobody = PrintedManifests::from_definitions(&chains(), "").await;
    assert!(
        nobody.stderr.contains("the admin API of the Pods is disabled"),
        "{}",
        nobody.stderr
    );
}

#[tokio::test]
async fn pods_may_read_the_kinds_that_chains_look_up() {
    let plugin = source("sidecar-injector");
    let chain = |stage: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: c }}
spec:
  rules: [ {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }} ]
  stages:
    - {{ name: s, plugin: {{ source: \"{plugin}\", settings: {{ labels: {{ a: b }} }}{stage}
"
        )
    };
    // Each row is (additional fields of a stage, resources that the printed role may read because of these fields).
    // Each resource is (API group, name).
    let table: [(&str, &[(&str, &str)]); 4] = [
        (" } }", &[]),
        (" }, namespaceSelector: { operator: NotIn, values: [a] } }", &[]),
        (
            " }, namespaceSelector: { matchLabels: { hooks: \"on\" } } }",
            &[("", "namespaces")],
        ),
        (
            ", allow: { cluster: [v1/Node, discovery.k8s.io/v1/EndpointSlice, v1/Node] } } }",
            &[("", "nodes"), ("discovery.k8s.io", "endpointslices")],
        ),
    ];
    for (stage, expected) in table {
        let manifests = PrintedManifests::from_definitions(&chain(stage), "").await;
        assert_eq!(manifests.pod()["automountServiceAccountToken"], true, "{stage}");
        assert_eq!(manifests.config()["cluster"], json!({}), "{stage}");
        let role = manifests.object("ClusterRole", "");
        let rules: Vec<_> = expected.iter().map(|(group, resource)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]})
        }).collect();
        let role_rules = role["rules"].as_array().unwrap().iter();
        // The role also has rules for webhook configurations. These rules are the same for every stage, so they are
        // ignored here.
        let is_of_chains = |rule: &&Value| rule["apiGroups"][0] != "admissionregistration.k8s.io";
        assert_eq!(
            role_rules.filter(is_of_chains).cloned().collect::<Vec<_>>(),
            rules,
            "{stage}"
        );
        let binding = manifests.object("ClusterRoleBinding", "");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let account = manifests.object("ServiceAccount", "");
        assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["namespace"], account["metadata"]["namespace"]);
    }
}

/// If chains are resources, the program may read them, write their statuses, and watch the Pods of other replicas.
#[tokio::test]
async fn rights_and_webhooks_are_printed_for_chains_stored_as_resources() {
    let text = |additions: &str| {
        format!("dialect: {{ kubernetes: {{}} }}\ncluster: {{}}\ndefinitions: [ {{ kubernetes: {{}} }} ]\n{additions}")
    };
    let print_manifests = async |additions: &str, flags: &str| {
        let directory = tempfile::tempdir().unwrap();
        let token = write(&directory, "ci.token", "0123456789abcdef0123456789abcdef\n");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let resources = write(&directory, "resources.yaml", chains());
        let config = write(&directory, "admittance.yaml", text(additions));
        let flags = flags.replace("RESOURCES", resources.to_str().unwrap());
        let arguments = format!("--config {} {flags}", config.display());
        PrintedManifests::in_directory(directory, &arguments).await
    };
    let alone = print_manifests("", "").await;
    let is_registered = |kind: &&str| kind.ends_with("WebhookConfiguration");
    assert!(!alone.kinds().iter().any(is_registered), "the leader does that");
    assert_eq!(alone.object("ConfigMap", "-chains")["data"], json!({}));
    assert_eq!(alone.kinds()[0], "CustomResourceDefinition");

    let with_resources = print_manifests("", "--resources RESOURCES").await;
    assert_eq!(
        with_resources.object("ConfigMap", "-chains")["data"],
        json!({}),
        "the cluster has them"
    );
    let config = with_resources.object("ConfigMap", "-config")["data"]["admittance.yaml"]
        .as_str()
        .unwrap();
    assert!(
        config.contains("definitions:\n  - \"../chains\"\n  - kubernetes: {}\n"),
        "{config}"
    );
    let may = |printed: &PrintedManifests, kind: &str, resource: &str| {
        let rules = printed.object(kind, "")["rules"].as_array().unwrap().clone();
        let rule = rules
            .iter()
            .find(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)));
        rule.unwrap()["verbs"].clone()
    };
    let read_verbs = json!(["get", "list", "watch"]);
    for resource in ["admissionchains", "namespacedadmissionchains", "admissionexceptions"] {
        assert_eq!(may(&with_resources, "ClusterRole", resource), read_verbs);
        let status = may(&with_resources, "ClusterRole", &format!("{resource}/status"));
        assert_eq!(status, json!(["get", "update", "patch"]));
    }
    assert_eq!(
        may(&with_resources, "ClusterRole", "events"),
        json!(["create", "patch"])
    );
    assert!(
        may(&with_resources, "Role", "leases")
            .as_array()
            .unwrap()
            .contains(&json!("create"))
    );
    let binding = with_resources.object("RoleBinding", "");
    assert_eq!(
        binding["roleRef"]["name"],
        with_resources.object("Role", "")["metadata"]["name"]
    );
    assert_eq!(
        binding["subjects"][0]["name"],
        with_resources.object("ServiceAccount", "")["metadata"]["name"]
    );
    assert_eq!(with_resources.pod()["automountServiceAccountToken"], true);

    // This configuration lets chains of namespaces read ConfigMaps. Such a chain may be created at any time, so the
    // program gets the right to read ConfigMaps from the start.
    let directory = tempfile::tempdir().unwrap();
    let namespaced =
        "{ namespaced: { modules: [\"oci://registry.example.com/**\"], allow: { cluster: [v1/ConfigMap] } } }";
    let config = text("").replace("{ kubernetes: {} } ]", &format!("{{ kubernetes: {namespaced} }} ]"));
    let config = write(&directory, "admittance.yaml", config);
    let with_config_maps = PrintedManifests::in_directory(directory, &format!("--config {}", config.display())).await;
    assert_eq!(may(&with_config_maps, "ClusterRole", "configmaps"), read_verbs);
    let config = with_config_maps.object("ConfigMap", "-config")["data"]["admittance.yaml"]
        .as_str()
        .unwrap();
    assert!(config.contains("oci://registry.example.com/**"), "{config}");

    // The program may read Gatekeeper's policies only if the configuration names Gatekeeper, and never write them.
    assert!(
        !with_config_maps
            .object("ClusterRole", "")
            .to_string()
            .contains("gatekeeper")
    );
    let directory = tempfile::tempdir().unwrap();
    let policies = "{ kubernetes: { policies: [Kubernetes, Gatekeeper, Kubewarden, Kyverno] } } ]";
    let config = write(
        &directory,
        "admittance.yaml",
        text("").replace("{ kubernetes: {} } ]", policies),
    );
    let with_policies = PrintedManifests::in_directory(directory, &format!("--config {}", config.display())).await;
    for resource in [
        "validatingadmissionpolicybindings",
        "*",
        "assignimage",
        "admissionpolicygroups",
        "namespacedvalidatingpolicies",
    ] {
        assert_eq!(
            may(&with_policies, "ClusterRole", resource),
            json!(["list", "watch"]),
            "{resource}"
        );
    }

    // The cluster may have several installations of Admittance with different names. The replicas of each installation
    // elect their own leader, so each Pod gets the name of its installation.
    let other = print_manifests("", "--name other").await;
    let env = other.pod()["containers"][0]["env"].as_array().unwrap().clone();
    let service = json!({"name": "ADMITTANCE_SERVICE", "value": "other.admittance-system"});
    assert!(env.contains(&service), "{env:?}");

    // A token of the role Admin lets users change definitions, so the program needs the right to write chains.
    let tokens = "admin: { address: 127.0.0.1:9090, tokens: [ { name: ci, role: Admin, file: ci.token } ] }\n";
    let verbs = may(&print_manifests(tokens, "").await, "ClusterRole", "admissionchains");
    assert!(verbs.as_array().unwrap().contains(&json!("delete")), "{verbs}");
}

/// The leader writes its webhook configurations and the Secret with its certificate. It finds them by their names, so
/// its role allows changes only of objects with these names.
#[tokio::test]
async fn the_leader_may_write_its_own_webhook_configurations() {
    let directory = || {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "chains.yaml", chains());
        directory
    };
    let config_text = "
dialect: { kubernetes: { webhookConfigurations: { excludeNamespaces: [monitoring], timeoutSeconds: 5 } } }
cluster: {}
definitions: [chains.yaml]
";
    let is_registered = |printed: &PrintedManifests| {
        let kinds = printed.kinds();
        kinds.iter().any(|kind| kind.ends_with("WebhookConfiguration"))
    };
    let rules = |printed: &PrintedManifests, kind: &str, resource: &str| {
        let rules = printed.object(kind, "")["rules"]
            .as_array()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|rule| rule["resources"].as_array().unwrap().contains(&json!(resource)));
        let rights = rules.map(|rule| (rule["resourceNames"].clone(), rule["verbs"].clone()));
        rights.collect::<Vec<_>>()
    };
    let named_rights = |name: &str| {
        [
            (json!([name]), json!(["get", "list", "watch", "update"])),
            (Value::Null, json!(["create"])),
        ]
    };
    let issuing_directory = directory();
    let config = write(&issuing_directory, "admittance.yaml", config_text)
        .display()
        .to_string();
    let flags = "--name hooks --namespace hooks-system";
    let manifests = PrintedManifests::in_directory(issuing_directory, &format!("--config {config} {flags}")).await;
    assert!(!is_registered(&manifests));
    for kind in ["mutating", "validating"] {
        let resource = format!("{kind}webhookconfigurations");
        assert_eq!(rules(&manifests, "ClusterRole", &resource), named_rights("hooks"));
    }
    assert_eq!(rules(&manifests, "Role", "secrets"), named_rights("hooks-tls"));
    assert_eq!(rules(&manifests, "Role", "leases").len(), 1);
    // The Pods issue their own certificate, so no Secret with a certificate is printed.
    assert!(!manifests.kinds().contains(&"Secret"));
    let pod = manifests.pod();
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["name"] != "tls"), "{pod}");
    let service = json!([{"name": "ADMITTANCE_SERVICE", "value": "hooks.hooks-system"}]);
    assert_eq!(pod["containers"][0]["env"], service);
    let text = &manifests.object("ConfigMap", "-config")["data"]["admittance.yaml"];
    let path = write(&manifests.directory, "of-pod.yaml", text.as_str().unwrap());
    let pods = admittance_driver::Config::read(&path).unwrap();
    let webhooks = pods.front.webhooks().unwrap();
    assert_eq!(webhooks.registration.excluded_namespaces, ["monitoring"]);
    assert_eq!(webhooks.registration.timeout, Some(5));
    for flag in ["--per-chain", "--timeout 3", "--certs certs", "--exclude-namespace a"] {
        let refusal = run_manifests(&format!("--config {config} {flag}")).await;
        let name = flag.split(' ').next().unwrap();
        assert!(
            refusal.code == Some(2) && refusal.stderr.contains(name),
            "{}",
            refusal.stderr
        );
    }

    // If the user provides a certificate in files, it is printed as a Secret that the Pods mount.
    let mounting_directory = directory();
    let out = mounting_directory.path().display().to_string();
    let service = "admittance.admittance-system";
    let certs_output = Admittance::run(["certs", "--service", service, "--out", &out])
        .await
        .unwrap();
    assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
    let mounted_config = format!(
        "
listen: {{ tls: {{ certificate: {service}.pem, key: {service}.key }} }}
dialect: {{ kubernetes: {{ webhookConfigurations: {{ caBundle: ca.pem }} }} }}
cluster: {{}}
definitions: [chains.yaml]
"
    );
    let config = write(&mounting_directory, "admittance.yaml", mounted_config);
    let arguments = format!("--config {} --certs {out}", config.display());
    let printed = PrintedManifests::in_directory(mounting_directory, &arguments).await;
    assert!(!is_registered(&printed));
    assert_eq!(rules(&printed, "Role", "secrets"), []);
    assert!(printed.object("Secret", "-tls")["data"]["ca.crt"].is_string());
    let config = &printed.object("ConfigMap", "-config")["data"]["admittance.yaml"];
    assert!(
        config.as_str().unwrap().contains("caBundle: \"../tls/ca.crt\""),
        "{config}"
    );
}

#[tokio::test]
async fn the_leader_may_list_what_it_audits() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "chains.yaml", chains());
    let print_manifests = async |audit: &str| {
        let config_directory = tempfile::tempdir().unwrap();
        let text = format!(
            "dialect: {{ kubernetes: {{ audit: {audit} }} }}\ncluster: {{}}\ndefinitions: [{}/chains.yaml]\n",
            directory.path().display()
        );
        let config = write(&config_directory, "admittance.yaml", text).display().to_string();
        PrintedManifests::in_directory(config_directory, &format!("--config {config}")).await
    };
    let rules = |printed: &PrintedManifests| {
        let printed_rules = printed.object("ClusterRole", "")["rules"].as_array().unwrap().clone();
        let of_audits = |rule: &Value| rule["apiGroups"][0] != "admissionregistration.k8s.io";
        let rules = printed_rules.into_iter().filter(of_audits).map(|rule| {
            let first_of = |field: &str| rule[field][0].as_str().unwrap().to_owned();
            (first_of("apiGroups"), first_of("resources"))
        });
        rules.collect::<Vec<_>>()
    };
    let pair = |(group, resource): (&str, &str)| (group.to_owned(), resource.to_owned());
    let default_audit = print_manifests("{ every: 2h }").await;
    let expected = [
        ("", "namespaces"),
        ("", "pods"),
        ("apps", "deployments"),
        ("openreports.io", "reports"),
        ("reports.x-k8s.io", "reports"),
        ("wgpolicyk8s.io", "policyreports"),
    ];
    assert_eq!(rules(&default_audit), expected.map(pair));
    assert!(default_audit.object("Role", "")["rules"].to_string().contains("leases"));
    let config = &default_audit.object("ConfigMap", "-config")["data"]["admittance.yaml"];
    let config = config.as_str().unwrap();
    assert!(config.contains("audit:") && config.contains("2h"), "{config}");

    let named_resources = print_manifests("{ resources: [cronjobs.batch, jobs], reports: false }").await;
    let expected = [("", "namespaces"), ("*", "jobs"), ("batch", "cronjobs")];
    assert_eq!(rules(&named_resources), expected.map(pair));
}
