//! Which decisions are listed.

use admittance_admission::Decision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DecisionRecord, DecisionVerdict, kept::Kept};
use crate::Moment;

/// Which decisions are listed: those to which all of these apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionFilter {
    /// The request passed this chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// This stage was called; with `chain`, the stage of that chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The namespace of the request; empty for requests without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A part of the type, the namespace, the name, the uid, the user or the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// One of these verdicts; empty for any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdict: Vec<DecisionVerdict>,
    /// Not before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
}

impl DecisionFilter {
    /// Only requests of this user.
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self
    }

    /// Whether a decision in memory is one of them.
    pub(super) fn includes(&self, kept: &Kept) -> bool {
        let Some(packed) = kept.read() else { return false };
        self.selects(
            kept.unpacked.at,
            packed.verdict,
            packed.namespace,
            packed.user,
            |wanted| {
                kept.rows(&packed).iter().any(|row| {
                    wanted(Row {
                        chain: &row.chain,
                        stage: &row.stage,
                        was_called: row.was_called(),
                    })
                })
            },
        ) && self.text.as_ref().is_none_or(|text| {
            packed.contains(text)
                || match kept.decision() {
                    Decision::Allowed => false,
                    Decision::Refused(refusal) => refusal.to_string().contains(text),
                }
        })
    }

    /// Whether a decision is one of them.
    pub fn includes_record(&self, record: &DecisionRecord) -> bool {
        self.selects(
            record.at,
            record.verdict,
            record.namespace.as_deref(),
            &record.user,
            |wanted| {
                record.stages.iter().any(|row| {
                    wanted(Row {
                        chain: &row.chain,
                        stage: &row.stage,
                        was_called: row.was_called(),
                    })
                })
            },
        ) && self.text.as_ref().is_none_or(|text| record.contains(text))
    }

    /// `any_row` tells whether there is such a row.
    fn selects(
        &self,
        at: Moment,
        verdict: DecisionVerdict,
        namespace: Option<&str>,
        user: &str,
        any_row: impl FnOnce(&dyn Fn(Row<'_>) -> bool) -> bool,
    ) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        self.since.is_none_or(|since| since <= at)
            && (self.verdict.is_empty() || self.verdict.contains(&verdict))
            && is(&self.namespace, namespace.unwrap_or_default())
            && is(&self.user, user)
            && ((self.chain.is_none() && self.stage.is_none())
                || any_row(&|row| {
                    is(&self.chain, row.chain)
                        && is(&self.stage, row.stage)
                        && (self.stage.is_none() || row.was_called)
                }))
    }
}

/// What a filter reads of a stage's row.
struct Row<'a> {
    chain: &'a str,
    stage: &'a str,
    was_called: bool,
}
