//! Defines the types of `POST /v1/evaluate` and `POST /v1/applies`.

use std::collections::BTreeMap;

use admittance::{ChainApplies, DecisionRecord, UnmatchedChain};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A description of a request. Fields that are absent are derived from the given ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DescribedRequest {
    /// The object: a JSON value, or a string of YAML or JSON. If it is an AdmissionReview, which is a complete request,
    /// no other field may be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// The object as it was before the operation: a JSON value, or a string of YAML or JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Value>,
    /// The operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`. Default: `UPDATE` with both objects, `DELETE` with
    /// only an old object, and otherwise `CREATE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The version and kind of the object, such as `apps/v1/Deployment`, if neither `object` nor `oldObject` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The resource, such as `pods` or `pods/status`. Default: guessed from the kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The namespace, if the object does not name one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object. It is used only if no object is given, because an object contains its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name of the user who sends the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The groups of the user who sends the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// The body of `POST /v1/evaluate`. Either `definitions` or `chain` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvaluateRequest {
    /// The text of one or more definitions, as in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definitions: Option<String>,
    /// The name by which messages refer to `definitions`, such as a file name. Default: `definitions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The phase and name of a live chain, such as `Mutating:pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The settings to use instead of those in the definitions: JSON values, or strings of YAML or JSON. The key is the
    /// name of a stage, or of a stage and a member of its plugin group, such as `images/signed`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// Whether to call the webhooks of matching chains, in the same way as for a dry run. If false, the evaluation
    /// fails when a matching chain has a webhook.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub call_webhooks: bool,
    /// The request to evaluate.
    pub request: DescribedRequest,
}

/// The reply to `POST /v1/evaluate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluateReply {
    /// The decision of the chains on the request.
    pub decision: DecisionRecord,
    /// The object after all chains have changed it; absent if the request has no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// The chains whose rules do not match the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<UnmatchedChain>,
}

/// The reply to `POST /v1/applies`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliesReply {
    /// The number of the live revision, to which the chains belong.
    pub revision: u64,
    /// The chains that apply to the request come first, then the others. Each of the two groups is in the order in
    /// which requests pass the chains.
    pub chains: Vec<ChainApplies>,
}
