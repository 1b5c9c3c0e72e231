use super::*;

fn hash(name: &str) -> Digest {
    Digest::of_bytes(name)
}

/// Parses a replica such as `a A B leader`: the name, the live table, the prepared table, and then any of the words
/// `dead`, `leader`, `problem` and `earlier-B`.
fn replica(text: &str) -> KnownReplica {
    let words: Vec<&str> = text.split(' ').collect();
    let has_mark = |mark: &str| words.contains(&mark);
    KnownReplica {
        name: words[0].to_owned(),
        is_alive: !has_mark("dead"),
        is_leader: has_mark("leader"),
        report: TableReport {
            live: hash(words[1]),
            prepared: hash(words[2]),
            earlier: has_mark("earlier-B").then(|| hash("B")),
            since: Moment(std::time::SystemTime::UNIX_EPOCH),
            problem: has_mark("problem").then(|| "no route".to_owned()),
            rollouts: Vec::new(),
        },
    }
}

fn decide(target: &str, replicas: &[&str]) -> String {
    let target = (!target.is_empty()).then(|| hash(target));
    let replicas: Vec<_> = replicas.iter().map(|text| replica(text)).collect();
    match find_agreement(target, &replicas) {
        ReplicaAgreement::Agreed => "agreed".to_owned(),
        ReplicaAgreement::Switch(to) => {
            let names = ["A", "B", "C"];
            let name = names.iter().find(|name| hash(name) == to).unwrap();
            format!("switch {name}")
        }
        ReplicaAgreement::Waiting(missing) => {
            let sentences = missing.iter().map(MissingReplica::sentence);
            sentences.collect::<Vec<_>>().join("; ")
        }
    }
}

#[test]
fn replicas_switch_when_all_voters_have_prepared_the_same_table() {
    let (b, c) = (hash("B").to_short_hex(), hash("C").to_short_hex());
    for (what, target, replicas, expected) in [
        (
            "nothing changes",
            "A",
            vec!["x A A leader", "y A A"],
            "agreed".to_owned(),
        ),
        (
            "all have prepared",
            "A",
            vec!["x A B leader", "y A B", "z A B"],
            "switch B".to_owned(),
        ),
        (
            "one is slow",
            "A",
            vec!["x A B leader", "y A A", "z A B"],
            format!("y has not prepared {b} yet"),
        ),
        (
            "one cannot",
            "A",
            vec!["x A B leader", "y A B", "z A A problem"],
            format!("z has not prepared {b}: no route"),
        ),
        (
            "the leader itself cannot",
            "A",
            vec!["x A A leader problem", "y A B"],
            format!("x has not prepared {b}: no route"),
        ),
        (
            "one is gone",
            "A",
            vec!["x A B leader", "y A A dead"],
            "switch B".to_owned(),
        ),
        (
            "a new one has something else",
            "A",
            vec!["x A B leader", "y C C"],
            "switch B".to_owned(),
        ),
        (
            "a new one leads",
            "A",
            vec!["x C C leader", "y A B", "z A B"],
            "switch B".to_owned(),
        ),
        (
            "nobody has switched yet",
            "B",
            vec!["x A B leader", "y A B"],
            "agreed".to_owned(),
        ),
        (
            "one has moved on before it switched",
            "B",
            vec!["x A C leader earlier-B", "y B B"],
            format!("y has not prepared {c} yet"),
        ),
        ("one is late", "B", vec!["x B B leader", "y A B"], "agreed".to_owned()),
        (
            "a late one does not block the next",
            "B",
            vec!["x B C leader", "y A A"],
            "switch C".to_owned(),
        ),
        (
            "a newer change overtakes",
            "A",
            vec!["x A C leader", "y A B", "z A C"],
            format!("y has not prepared {c} yet"),
        ),
        (
            "each has another one: the leader's",
            "A",
            vec!["x A C", "y A B leader"],
            format!("x has not prepared {b} yet"),
        ),
        (
            "a change is taken back",
            "A",
            vec!["x A A leader", "y A A problem"],
            "agreed".to_owned(),
        ),
        (
            "the first start",
            "",
            vec!["x A A leader", "y B B"],
            "switch A".to_owned(),
        ),
        (
            "nobody has the target any more",
            "C",
            vec!["x A A", "y B B leader"],
            "switch B".to_owned(),
        ),
        (
            "nor is there a leader",
            "C",
            vec!["x A A", "y B B"],
            "agreed".to_owned(),
        ),
        ("nobody is known", "A", vec![], "agreed".to_owned()),
    ] {
        assert_eq!(decide(target, &replicas), expected, "{what}");
    }
}

#[test]
fn only_a_replica_that_serves_the_agreed_table_is_ready() {
    assert!(is_ready(None, hash("A")) && is_ready(Some(hash("A")), hash("A")));
    assert!(!is_ready(Some(hash("B")), hash("A")));
}
