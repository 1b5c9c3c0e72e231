use std::time::Duration;

use admittance_admission::{
    Chain, Deadline, Evaluation, EvaluationSources, Hook, NoAuthorizer, Object, Operation, Outcome, Request, Rule,
    Stage, StaticNamespaces,
};

use crate::block_on;

/// The maximum size of an object after a hook has changed it. It is a little more than the size limit for the answer of
/// a hook, which contains the object or a patch.
const MAX_OBJECT_SIZE: usize = 64 << 20;

pub(crate) fn chain(hook: impl Hook) -> Chain {
    let mut stage = Stage::new("fuzz", hook);
    // On a busy machine, a call may be slow although nothing is wrong, and a short timeout would report it as a
    // finding. So the timeout is long. libFuzzer has its own time limit for each input.
    stage.spec.timeout = Duration::from_secs(60);
    Chain::new("fuzz", vec![Rule::for_operations(Operation::ALL)], vec![stage])
}

/// Lets the chain judge the request, and checks the resulting object: it can be parsed, it still has the identity of
/// the original object (such as the name), and it equals the original object with the patch applied.
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
    assert!(after.text().len() <= MAX_OBJECT_SIZE);
    let parsed = Object::parse(after.text()).expect("the object that comes out can be read");
    assert_eq!(&parsed, after);
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
        identity(&parsed),
        "who the object is has changed: {}",
        after.text()
    );
    let patched = outcome.patch.apply(before).expect("the patch of an outcome applies");
    assert_eq!(&patched, after);
    outcome
}
