//! The index of chains. Its results are compared with the results of a search through all chains.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use admittance_admission::{
    Chain, ChainIndex, GroupVersionKind, GroupVersionResource, MatchPolicy, Matcher, Operation, Outline, Request,
    RequestedKind, ResourcePattern, Rule,
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};

fn matcher(values: &'static [&'static str]) -> impl Strategy<Value = Matcher<String>> {
    option::of(subsequence(values, 1..=values.len())).prop_map(|values| match values {
        Some(values) => Matcher::Only(values.into_iter().map(str::to_owned).collect()),
        None => Matcher::Any,
    })
}

prop_compose! {
    fn rule()(
        operations in option::of(subsequence(&Operation::ALL[..], 0..=4)),
        api_groups in matcher(&["", "apps", "extensions"]),
        resources in subsequence(&["pods", "pods/*", "deployments", "*", "*/status", "*/*"][..], 0..=3),
        kinds in matcher(&["Pod", "deployment"]),
        exact in any::<bool>(),
    ) -> Rule {
        Rule {
            operations: operations.map_or(Matcher::Any, Matcher::Only),
            api_groups,
            resources: resources.iter().map(|entry| ResourcePattern::parse(entry).unwrap()).collect(),
            kinds,
            match_policy: if exact { MatchPolicy::Exact } else { MatchPolicy::Equivalent },
            ..Rule::for_operations([])
        }
    }
}

prop_compose! {
    fn named()(
        group in select(&["", "apps", "extensions"][..]),
        resource in select(&["pods", "deployments", "nodes"][..]),
        kind in select(&["pod", "Deployment", "Node"][..]),
    ) -> (GroupVersionKind, GroupVersionResource) {
        (
            GroupVersionKind { kind: kind.to_owned(), ..Default::default() },
            GroupVersionResource { group: group.to_owned(), resource: resource.to_owned(), ..Default::default() },
        )
    }
}

prop_compose! {
    fn request()(
        operation in select(&Operation::ALL[..]),
        (kind, resource) in named(),
        requested in option::of(named()),
        subresource in option::of(Just("status".to_owned())),
    ) -> Request {
        let mut request = Request::new(operation, kind, resource);
        request.subresource = subresource.clone();
        request.requested_kind = requested.map(|(kind, resource)| Box::new(RequestedKind { kind, resource, subresource }));
        request
    }
}

proptest! {
    #[test]
    fn the_index_finds_every_chain_that_matches_a_request(rules in vec(vec(rule(), 0..3), 0..6), request in request()) {
        let chains: Vec<Chain> = rules.into_iter().map(|rules| Chain::new("chain", rules, vec![])).collect();
        let index = ChainIndex::new(&chains);
        let matching = |positions: Vec<usize>, matches: &dyn Fn(&Chain) -> bool| -> Vec<usize> {
            positions.into_iter().filter(|position| matches(&chains[*position])).collect()
        };
        let all: Vec<usize> = (0..chains.len()).collect();
        let matches = |chain: &Chain| chain.matches(&request);
        prop_assert_eq!(
            matching(index.candidates_of_request(&request), &matches),
            matching(all.clone(), &matches)
        );
        for kind in [None, Some(request.kind.kind.as_str())] {
            let outline = Outline { operation: request.operation, resource: Some(&request.resource), kind };
            let matches = |chain: &Chain| chain.may_match(&outline);
            if let Some(candidates) = index.candidates_of_outline(&outline) {
                prop_assert_eq!(matching(candidates, &matches), matching(all.clone(), &matches));
            }
        }
    }
}

#[test]
fn the_index_omits_chains_that_cannot_match() {
    let of = |resource: &str| Rule {
        resources: vec![ResourcePattern::parse(resource).unwrap()],
        ..Rule::for_operations([Operation::Create])
    };
    let kind = Rule {
        kinds: Matcher::Only(vec!["Job".to_owned()]),
        ..of("*/*")
    };
    let chains: Vec<Chain> = [of("pods"), of("nodes"), of("*/*"), kind]
        .into_iter()
        .map(|rule| Chain::new("chain", vec![rule], vec![]))
        .collect();
    let index = ChainIndex::new(&chains);
    for (operation, resource, kind, expected) in [
        (Operation::Create, "pods", "Pod", &[0, 2][..]),
        (Operation::Create, "nodes", "Node", &[1, 2]),
        (Operation::Create, "jobs", "JOB", &[2, 3]),
        (Operation::Update, "pods", "Pod", &[]),
    ] {
        let kind = GroupVersionKind {
            kind: kind.to_owned(),
            ..Default::default()
        };
        let resource = GroupVersionResource {
            resource: resource.to_owned(),
            ..Default::default()
        };
        assert_eq!(
            index.candidates_of_request(&Request::new(operation, kind, resource)),
            expected
        );
    }
}
