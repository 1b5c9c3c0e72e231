use super::*;

#[test]
fn the_cluster_kinds_that_a_rego_policy_reads_are_found() {
    for (text, expected) in [
        (
            r#"data.inventory.namespace[ns][v]["Ingress"][name]"#,
            Some(vec!["Ingress"]),
        ),
        (
            r#"data.inventory.namespace[input.a[0]]["policy/v1"].PodDisruptionBudget[_]"#,
            Some(vec!["PodDisruptionBudget"]),
        ),
        (
            r#"data.inventory.cluster["v1"].Node[n]; data.inventory.cluster[v]["Namespace"]"#,
            Some(vec!["Node", "Namespace"]),
        ),
        ("data.inventory.namespace[ns][v][kind][name]", None),
        ("import data.inventory\ninventory.cluster.v1.Node", None),
        ("object.get(data.inventory, [], {})", None),
        ("package a", Some(vec![])),
    ] {
        assert_eq!(mentioned_kinds(text), expected, "{text}");
    }
}
