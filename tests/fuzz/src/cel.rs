use std::{sync::Once, time::Duration};

use admittance::admission::{Deadline, NoAuthorizer, read_review};
use admittance_conditions::{CelConditions, ConditionError, MatchCondition};

use crate::{block_on, parts};

/// Evaluates a match condition in CEL for an AdmissionReview. Checks that the condition compiles or is reported with a
/// position, and that its evaluation ends and is deterministic.
pub fn cel(input: &[u8]) {
    tolerate_the_parser();
    let [expression, review] = parts(input);
    let Ok(expression) = std::str::from_utf8(expression) else {
        return;
    };
    let condition = match MatchCondition::compile("fuzz", expression) {
        Ok(condition) => condition,
        Err(ConditionError::Compile { line, column, message }) => {
            let lines = expression.lines().count().max(1);
            assert!((1..=lines + 1).contains(&line), "{line}:{column} {message}");
            assert!(column >= 1 && !message.is_empty());
            return;
        }
        Err(_) => return,
    };
    assert_eq!(condition.expression(), expression);
    let Ok(review) = read_review(review.to_vec()) else {
        return;
    };
    let conditions = CelConditions::from_iter([condition]);
    // The evaluation must end because of its cost limit, so the deadline is far away.
    let deadline = Deadline::after(Duration::from_secs(3600));
    let evaluate = || block_on(conditions.evaluate(&review.request, &NoAuthorizer, deadline));
    assert_eq!(evaluate(), evaluate());
}

/// The CEL parser can panic, and the program catches its panics. This function keeps the fuzzer from reporting them as
/// findings.
fn tolerate_the_parser() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some("condition-parser") {
                hook(panic);
            }
        }));
    });
}
