//! Lists what kube-apiserver's tests of admission webhooks check, in our own words, and says for each case whether
//! Admittance behaves like kube-apiserver.
//!
//! The cases come from the tests of kubernetes/apiserver (`admission/plugin/webhook`, `util/webhook`) and of kubernetes
//! (`test/integration/apiserver/admissionwebhook`). The last cases of group C2 (webhooks that change the object) come
//! from measurements of kube-apiserver 1.36.

/// Whether Admittance behaves like kube-apiserver in a case of the list, and where that is tested.
#[derive(Clone, Copy, Debug)]
pub(super) enum RowStatus {
    /// Admittance behaves like kube-apiserver. A test in the directory of this file checks that.
    Met,
    /// Admittance behaves like kube-apiserver. The value is the file with the test. The test has the name of the case.
    MetIn(&'static str),
    /// Admittance behaves like kube-apiserver. The values are the file with the test, and the name of the test.
    MetBy(&'static str, &'static str),
    /// Admittance behaves differently than kube-apiserver. The value is the reason. A test in the directory of this
    /// file checks how Admittance behaves.
    Differs(&'static str),
    /// Admittance does not have the feature that this case tests. The value is the reason.
    Outside(&'static str),
}

use RowStatus::{Differs, Met, MetBy, MetIn, Outside};

/// (name of the case, behaviour of kube-apiserver, how Admittance compares)
pub(super) type ConformanceRow = (&'static str, &'static str, RowStatus);

const MATCHING_TESTS: &str = "host/admission/tests/matching.rs";

const BUDGET_TESTS: &str = "host/conditions/src/tests/hostile.rs";

const METRICS_REASON: &str = "the API server's metrics; stages have their own, by chain and stage";
const NO_IN_TREE: &str = "there are no in-tree plugins here: the API server runs them around us";
const NO_CONVERSION: &str = "the object stays in the version in which it arrived; only the API server can convert it, \
                             and does so for the rules by which it calls us";
const REPORTED_ON_READ: &str = "reported when the document is read, and the previous definitions stay live";

pub(super) const CONFORMANCE_ROWS: &[ConformanceRow] = &[
    // Group C1 of the cases: webhooks that do not change the object, in both phases (mutating and validating) and with
    // both versions of AdmissionReview.
    ("C1.1", "no rule matches: allowed, not called", Met),
    ("C1.2", "allowed: its audit annotation is kept", Met),
    ("C1.3", "denied without a message: 403, without explanation", Met),
    ("C1.4", "denied with a message: 403, the message", Met),
    ("C1.5", "would deny, namespaceSelector In does not match: allowed", Met),
    (
        "C1.6",
        "would deny, namespaceSelector NotIn does not match: allowed",
        Met,
    ),
    (
        "C1.7",
        "three that fail under Ignore: allowed, each is noted as failed open",
        Met,
    ),
    ("C1.8", "three that fail, no policy: 500", Met),
    ("C1.9", "three that fail under Fail: 500", Met),
    (
        "C1.10",
        "a client configuration that cannot work: 500",
        Differs(REPORTED_ON_READ),
    ),
    ("C1.11", "the answer is not HTTP: 500", Met),
    ("C1.12", "allowed, by URL", Met),
    ("C1.13", "denied, by URL", Met),
    (
        "C1.14",
        "no response in the answer, Ignore: allowed, noted as failed open",
        Met,
    ),
    ("C1.15", "no response in the answer, Fail: 500", Met),
    ("C1.16", "no rule matches, dry run, side effects Some: allowed", Met),
    ("C1.17", "dry run, side effects Unknown: 400", Met),
    ("C1.18", "dry run, side effects None: allowed", Met),
    ("C1.19", "dry run, side effects Some: 400", Met),
    ("C1.20", "dry run, side effects NoneOnDryRun: allowed", Met),
    (
        "C1.21",
        "an audit annotation with an invalid key: allowed, dropped",
        Met,
    ),
    (
        "C1.22",
        "the second webhook's objectSelector does not match a Pod: not called",
        Met,
    ),
    ("C1.23", "the same with a custom resource", Met),
    ("C1.24", "a panic in a hook: the request is refused", Met),
    (
        "C1.25",
        "a panic in a hook under Ignore: allowed, noted as failed open",
        Met,
    ),
    // Group C2 of the cases: webhooks that change the object.
    ("C2.1", "a label is removed", Met),
    ("C2.2", "a label is added", Met),
    ("C2.3", "a label of a custom resource is removed", Met),
    ("C2.4", "a label of a custom resource is added", Met),
    ("C2.5", "a patch with a broken member: 500", Met),
    ("C2.6", "a patch that is cut off: 500", Met),
    (
        "C2.7",
        "a patch that is cut off, Ignore: allowed, noted as failed open",
        Met,
    ),
    (
        "C2.8",
        "a client configuration that cannot work: 500",
        Differs(REPORTED_ON_READ),
    ),
    ("C2.9", "the answer is not HTTP: 500", Met),
    ("C2.10", "a label is removed, dry run, side effects Unknown: 400", Met),
    (
        "C2.11",
        "the first removes the label that selects a Pod for the second: not called",
        Met,
    ),
    ("C2.12", "the same with a custom resource", Met),
    (
        "C2.13",
        "IfNeeded, and a later one changes the object: called again",
        Met,
    ),
    (
        "C2.14",
        "Never, and a later one changes the object: not called again",
        Met,
    ),
    (
        "C2.15",
        "no policy, and a later one changes the object: not called again",
        Met,
    ),
    ("C2.16", "a patch that changes nothing: not changed", Met),
    (
        "C2.17",
        "a patch that does not apply, Ignore: 500 all the same",
        Differs("a patch that does not apply is a failure like others, and Ignore covers it"),
    ),
    (
        "C2.18",
        "a patch on DELETE, Ignore: 500 all the same",
        Differs("it is a failure like others, and Ignore covers it"),
    ),
    (
        "C2.19",
        "a patch changes the name: the object is created under the new one",
        Differs("no verdict changes the identity of the object: refused with identity-changed"),
    ),
    // Group C3 of the cases: what is kept between two calls of a webhook, such as a connection.
    ("C3.1", "the first call of a service: nothing is kept yet", Met),
    (
        "C3.2",
        "another path of the same service: nothing is kept yet",
        Differs("connections are kept by server and CAs, whatever the path"),
    ),
    ("C3.3", "the same service under another webhook's name: kept", Met),
    ("C3.4", "the first call of a URL: nothing is kept yet", Met),
    ("C3.5", "the same URL again: kept", Met),
    // Group C4 of the cases: how long the admission of a request takes.
    (
        "C4.1",
        "the time of a mutating admission is the sum of its matching webhooks",
        Outside(METRICS_REASON),
    ),
    (
        "C4.2",
        "that of a validating admission is at least that of its slowest webhook",
        Outside(METRICS_REASON),
    ),
    ("C4.3", "if a dry run is refused, nothing was called", Met),
    // Group C5 of the cases: valid and invalid answers of webhooks.
    ("C5.1", "v1, validating: allowed", Met),
    ("C5.2", "v1beta1, validating: allowed", Met),
    ("C5.3", "v1, mutating: allowed", Met),
    ("C5.4", "v1beta1, mutating: allowed", Met),
    ("C5.5", "v1: audit annotations are kept", Met),
    ("C5.6", "v1beta1: audit annotations are kept", Met),
    ("C5.7", "v1: a patch is applied", Met),
    ("C5.8", "v1beta1: a patch is applied", Met),
    ("C5.9", "v1: a status is kept", Met),
    ("C5.10", "v1beta1: a status is kept", Met),
    ("C5.11", "v1: no response is an error", Met),
    ("C5.12", "v1beta1: no response is an error", Met),
    ("C5.13", "v1: another group is an error", Met),
    ("C5.14", "v1: another version is an error", Met),
    ("C5.15", "v1: another kind is an error", Met),
    ("C5.16", "v1: another uid is an error", Met),
    ("C5.17", "v1: a patch without a type is an error", Met),
    ("C5.18", "v1: a type without a patch is an error", Met),
    ("C5.19", "v1: an empty type is an error", Met),
    (
        "C5.20",
        "v1: an unknown type is accepted here, and an error when it is applied",
        Met,
    ),
    ("C5.21", "v1, validating: a patch is an error", Met),
    ("C5.22", "v1, validating: a patch type is an error", Met),
    (
        "C5.23",
        "v1beta1: another group, version and kind do not matter",
        Differs("an error: kube-apiserver itself does not decode an answer of an unknown type"),
    ),
    ("C5.24", "v1beta1: another uid does not matter", Met),
    ("C5.25", "v1beta1, validating: a patch is ignored", Met),
    ("C5.26", "v1beta1: an empty type does not matter", Met),
    ("C5.27", "v1beta1: an unknown type does not matter", Met),
    (
        "C5.28",
        "no version of AdmissionReview: an error",
        Differs(REPORTED_ON_READ),
    ),
    (
        "C5.29",
        "only unknown versions of AdmissionReview: an error",
        Differs(REPORTED_ON_READ),
    ),
    (
        "C5.30",
        "v1: every field is sent, including the requested kind and resource",
        Met,
    ),
    (
        "C5.31",
        "v1beta1: every field is sent, including the requested kind and resource",
        Met,
    ),
    // Group C6 of the cases: the messages that users get with denials.
    ("C6.1", "no status: 400, without explanation", Met),
    ("C6.2", "a message", Met),
    ("C6.3", "a reason, which is the message too", Met),
    ("C6.4", "a message and a reason: the message", Met),
    ("C6.5", "an empty status: 400, without explanation", Met),
    ("C6.6", "401 stays", Met),
    ("C6.7", "500 stays", Met),
    ("C6.8", "200 becomes 400", Met),
    ("C6.9", "300 becomes 400", Met),
    ("C6.10", "399 becomes 400", Met),
    ("C6.11", "no `status`: Failure", Met),
    ("C6.12", "`status: Success`: Failure", Met),
    ("C6.13", "`status: Failure` stays", Met),
    // Group C7 of the cases: which requests the rules of a webhook match.
    ("C7.1", "any group", MetIn(MATCHING_TESTS)),
    ("C7.2", "one group", MetIn(MATCHING_TESTS)),
    ("C7.3", "any version", MetIn(MATCHING_TESTS)),
    ("C7.4", "one version", MetIn(MATCHING_TESTS)),
    ("C7.5", "any operation", MetIn(MATCHING_TESTS)),
    ("C7.6", "CREATE", MetIn(MATCHING_TESTS)),
    ("C7.7", "UPDATE", MetIn(MATCHING_TESTS)),
    ("C7.8", "DELETE", MetIn(MATCHING_TESTS)),
    ("C7.9", "CONNECT", MetIn(MATCHING_TESTS)),
    ("C7.10", "two operations", MetIn(MATCHING_TESTS)),
    ("C7.11", "`*`: resources without subresources", MetIn(MATCHING_TESTS)),
    (
        "C7.12",
        "`r/*`: a resource with its subresources",
        MetIn(MATCHING_TESTS),
    ),
    ("C7.13", "`r/*` and another resource", MetIn(MATCHING_TESTS)),
    ("C7.14", "subresources of any resource", MetIn(MATCHING_TESTS)),
    (
        "C7.15",
        "scope Cluster: Namespaces too, with or without a namespace",
        MetIn(MATCHING_TESTS),
    ),
    ("C7.16", "scope Namespaced: the rest", MetIn(MATCHING_TESTS)),
    ("C7.17", "scope *: all", MetIn(MATCHING_TESTS)),
    // Group C8 of the cases: the labels with which a namespaceSelector is compared.
    ("C8.1", "a Namespace is created: its own", MetIn(MATCHING_TESTS)),
    (
        "C8.2",
        "a Namespace is changed: its own new ones",
        MetIn(MATCHING_TESTS),
    ),
    ("C8.3", "a Namespace is deleted: the stored ones", MetIn(MATCHING_TESTS)),
    (
        "C8.4",
        "a subresource of a Namespace: the stored ones",
        MetIn(MATCHING_TESTS),
    ),
    ("C8.5", "a Pod: those of its namespace", MetIn(MATCHING_TESTS)),
    ("C8.6", "a Node: matches always", MetIn(MATCHING_TESTS)),
    // Group C9 of the cases: which requests an objectSelector matches.
    ("C9.1", "the empty selector matches", MetIn(MATCHING_TESTS)),
    ("C9.2", "it matches without an object", MetIn(MATCHING_TESTS)),
    ("C9.3", "it matches an object without metadata", MetIn(MATCHING_TESTS)),
    ("C9.4", "NotIn matches the new object", MetIn(MATCHING_TESTS)),
    (
        "C9.5",
        "NotIn matches the old object of a deletion",
        MetIn(MATCHING_TESTS),
    ),
    (
        "C9.6",
        "the new object has the label that is left out: no",
        MetIn(MATCHING_TESTS),
    ),
    ("C9.7", "the old object of a deletion has it: no", MetIn(MATCHING_TESTS)),
    ("C9.8", "an object without metadata: no", MetIn(MATCHING_TESTS)),
    // Group C10 of the cases: whether the `matchConditions` of a webhook match a request, so that the webhook is
    // called.
    ("C10.1", "none: called", Met),
    ("C10.2", "one that is true: called", Met),
    ("C10.3", "several that are true: called", Met),
    ("C10.4", "the first is false: not called", Met),
    ("C10.5", "one in the middle is false: not called", Met),
    ("C10.6", "the last is false: not called", Met),
    ("C10.7", "one fails, no policy: 403, not called", Met),
    ("C10.8", "one fails, Fail: 403, not called", Met),
    ("C10.9", "one fails, Ignore: allowed, not called", Met),
    ("C10.10", "true, failing, false, no policy: allowed, not called", Met),
    ("C10.11", "true, failing, false, Fail: allowed, not called", Met),
    ("C10.12", "true, failing, false, Ignore: allowed, not called", Met),
    ("C10.13", "true and failing, no policy: 403, not called", Met),
    ("C10.14", "true and failing, Fail: 403, not called", Met),
    ("C10.15", "true and failing, Ignore: allowed, not called", Met),
    ("C10.16", "a namespace is left out: not called there", Met),
    ("C10.17", "oldObject is null on CREATE", Met),
    (
        "C10.18",
        "one costs too much: refused",
        MetBy(BUDGET_TESTS, "expensive_expressions_fail_at_the_cost_limit"),
    ),
    (
        "C10.19",
        "all together cost too much: refused",
        MetBy(BUDGET_TESTS, "all_conditions_of_a_stage_share_a_cost_limit"),
    ),
    ("C10.20", "a valid one is accepted", Met),
    (
        "C10.21",
        "leases, groups of kubelets, a call of the authorizer: accepted",
        Met,
    ),
    ("C10.22", "an unknown name: the document is refused", Met),
    ("C10.23", "no expression: refused", Met),
    ("C10.24", "an empty expression: refused", Met),
    ("C10.25", "no name: refused", Met),
    ("C10.26", "an empty name: refused", Met),
    ("C10.27", "a duplicate name: refused", Met),
    ("C10.28", "a name that is not qualified: refused", Met),
    ("C10.29", "64 of them: accepted", Met),
    ("C10.30", "65 of them: refused", Met),
    // Group C11 of the cases: which rule matches a request, and in which version the webhook gets the object.
    ("C11.1", "no rules: not called", Met),
    (
        "C11.2",
        "an unknown kind: 500",
        Outside("there is no list of kinds here; any is accepted"),
    ),
    ("C11.3", "any group and version: sent as it was requested", Met),
    (
        "C11.4",
        "an exact rule is preferred over equivalent ones before it",
        Met,
    ),
    ("C11.5", "another version, matchPolicy of v1beta1: not called", Met),
    ("C11.6", "another version, Exact: not called", Met),
    (
        "C11.7",
        "another version, Equivalent, extensions before apps: called",
        Differs(NO_CONVERSION),
    ),
    (
        "C11.8",
        "another version, Equivalent, apps before extensions: called",
        Differs(NO_CONVERSION),
    ),
    (
        "C11.9",
        "a scale of another version, matchPolicy of v1beta1: not called",
        Met,
    ),
    ("C11.10", "a scale of another version, Exact: not called", Met),
    (
        "C11.11",
        "a scale of another version, extensions before apps: called",
        Differs(NO_CONVERSION),
    ),
    (
        "C11.12",
        "a scale of another version, apps before extensions: called",
        Differs(NO_CONVERSION),
    ),
    ("C11.13", "a condition is true: called", Met),
    ("C11.14", "a condition is false: not called", Met),
    ("C11.15", "a condition fails: 403", Met),
    // Group C12 of the cases: which webhooks are called a second time, because the object has changed after their first
    // call.
    (
        "C12.1",
        "an in-tree plugin changes the object: called once",
        Outside(NO_IN_TREE),
    ),
    ("C12.2", "the webhook alone changes the object: called once", Met),
    (
        "C12.3",
        "an in-tree plugin changes what the webhook changed: called twice",
        Outside(NO_IN_TREE),
    ),
    ("C12.4", "A and B change the object: A is called twice, B once", Met),
    (
        "C12.5",
        "A and B fight over a label: both are called twice, the value of B remains",
        Met,
    ),
    (
        "C12.6",
        "A was not selected in the first round: not called in the second",
        Met,
    ),
    (
        "C12.7",
        "a webhook sets what an in-tree plugin refuses",
        Outside(NO_IN_TREE),
    ),
    ("C12.8", "Never: called once", Met),
    ("C12.9", "no policy: called once", Met),
    // Group C13 of the cases: timeouts of webhooks.
    (
        "C13.1",
        "the request has 10 s and the webhook 20: its timeout is 10",
        Met,
    ),
    ("C13.2", "the request has 10 s and the webhook 5: its timeout is 5", Met),
    (
        "C13.3",
        "mutating webhooks have the time that the previous ones left",
        Met,
    ),
    ("C13.4", "validating webhooks have the same remainder", Met),
    (
        "C13.5",
        "the request has timed out: the rest is not called, and it fails",
        Met,
    ),
    // Group C14 of the cases: concurrent calls, and behaviour that fits no other group.
    ("C14.1", "ten calls at once over HTTP/1.1: ten connections", Met),
    ("C14.2", "ten more: no new connection", Met),
    ("C14.3", "ten calls at once over HTTP/2: one connection", Met),
    (
        "C14.4",
        "the endpoint of a service changes: the new one is called",
        Outside("services are found by DNS or by `webhooks.resolve`; endpoints are not watched"),
    ),
    (
        "C14.5",
        "two versions of a custom resource: each by its rule's version",
        Outside(NO_CONVERSION),
    ),
    (
        "C14.6",
        "a broken webhook for everything: its configuration can still be deleted",
        Met,
    ),
    (
        "C14.7",
        "a broken webhook for everything: the API server starts again",
        Outside("how the API server starts is its own matter"),
    ),
    ("C14.8", "resources that are questions: not called", Met),
];
