use std::time::Duration;

use admittance_admission::{
    Chain, Deadline, Evaluation, EvaluationSources, Hook, NoAuthorizer, Object, Operation, Outcome, Request,
    Rule, Stage, StaticNamespaces,
};

use crate::block_on;

/// The maximum size of an object that any hook returns: the limit for answers, and some more.
const LARGEST: usize = 64 << 20;

pub(crate) fn chain(hook: impl Hook) -> Chain {
    let mut stage = Stage::new("fuzz", hook);
    // The timeout is long, because on a busy machine, a call that is only slow would otherwise count as a finding.
    // libFuzzer has a time limit of its own for an input.
    stage.spec.timeout = Duration::from_secs(60);
    Chain::new("fuzz", vec![Rule::for_operations(Operation::ALL)], vec![stage])
}

/// Lets the chain judge the request. Checks that the object can be parsed, has its original identity, and is the result
/// of the patch.
pub(crate) fn judge(chain: &Chain, request: &Request) -> Outcome {
    let sources = EvaluationSources {
        namespaces: &StaticNamespaces::default(),
        authorizer: &NoAuthorizer,
    };
    let outcome = block_on(async {
        let mut evaluation = Evaluation::new(request.clone(), Deadline::after(Duration::from_secs(60)));
        evaluation.run(&[chain], sources).await;
        evaluation.outcome()
    });
    let (Some(before), Some(after)) = (&request.object, &outcome.object) else {
        assert_eq!(request.object, outcome.object);
        return outcome;
    };
    assert!(after.text().len() <= LARGEST);
    let read = Object::parse(after.text()).expect("the object that comes out can be read");
    assert_eq!(&read, after);
    let identity = |object: &Object| {
        let head = object.head();
        let text = |text: &Option<String>| text.clone();
        (
            text(&head.api_version),
            text(&head.kind),
            text(&head.name),
            text(&head.namespace),
            object.value().pointer("/metadata/uid").cloned(),
        )
    };
    assert_eq!(
        identity(before),
        identity(&read),
        "who the object is has changed: {}",
        after.text()
    );
    let patched = outcome
        .patch
        .apply(before)
        .expect("the patch of an outcome applies");
    assert_eq!(&patched, after);
    outcome
}
