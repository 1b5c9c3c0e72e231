//! Passes the request of an earlier decision through the live chains again.

use std::time::Duration;

use admittance_admission::{Request, Selection, read_review};

use tokio::time::Instant;

use super::{DecisionDetail, LoggedDecision};
use crate::{Host, live::stage::stage_calling_server};

/// A stage of a matching chain calls a webhook, but the replay may not call webhooks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} calls a webhook, which would be sent the request again; allow that explicitly, or replay a recording with \
     `admittance replay`"
)]
pub struct ReplayError(String);

impl Host {
    /// Passes a request through the selected chains of the live table again, within the request timeout. The outcome is
    /// not in metrics, statistics, logs, decisions or recordings. Plugins make lookups and HTTP requests as usual.
    ///
    /// # Errors
    ///
    /// Fails if a stage of a matching chain calls a webhook, unless `may_call_webhooks` is set.
    pub async fn replay(
        &self,
        request: Request,
        selection: &Selection,
        may_call_webhooks: bool,
    ) -> Result<LoggedDecision, ReplayError> {
        let table = self.table();
        let matching = table.find_matching_chains(&request, selection);
        if let Some(stage) = stage_calling_server(&matching).filter(|_| !may_call_webhooks) {
            return Err(ReplayError(stage));
        }
        let started = Instant::now();
        let (request, outcome) = table.evaluate(request, &matching, Duration::MAX).await;
        let observed = table.observe_decision(request, selection, &outcome, started);
        Ok(self.decisions().unlogged_decision(observed.into_decided_request()))
    }
}

impl DecisionDetail {
    /// Returns the original request and the chains to which it was sent; `None` if the request's objects are absent.
    pub fn request(&self) -> Option<(Request, Selection)> {
        let review = serde_json::to_vec(self.review.as_ref()?).ok()?;
        let request = read_review(review).ok()?.request;
        let selection = match &self.decision.selection {
            Some(text) => text.parse().ok()?,
            None => Selection::All,
        };
        Some((request, selection))
    }
}

impl LoggedDecision {
    /// Returns the original request and the chains to which it was sent; `None` if the log lacks the request's objects.
    pub fn request(&self) -> Option<(Request, Selection)> {
        let decided = &self.decided_request;
        Some((decided.request_with_objects()?, decided.selection.clone()))
    }
}
