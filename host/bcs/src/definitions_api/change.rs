//! Changes requested by clients.

use std::time::Duration;

use admittance::{Application, ChangeError, Host, Moment};
use admittance_definitions::{BcsObject, Expected, StoreError};
use tracing::Instrument;

use super::{
    refusal::{BODY, Refusal},
    request::Name,
    stored::{self, Stored},
};

/// The pause before a change is retried after a conflict.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
];

/// A change of a definition.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Create a definition, which must not exist.
    Create(BcsObject),
    /// Replace the existing definition.
    Update(BcsObject),
    /// Delete the definition.
    Delete(Name),
}

/// Applies the changes of one client. Lives as long as the request.
#[derive(Clone, Debug)]
pub(super) struct Changer {
    pub(super) host: Host,
    /// The author of the change, for the history.
    pub(super) by: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Host(#[from] ChangeError),
}

impl Change {
    fn name(&self) -> Name {
        match self {
            Self::Create(object) | Self::Update(object) => Name {
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
            },
            Self::Delete(name) => name.clone(),
        }
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
        }
    }
}

impl Changer {
    /// Apply the change. Once begun, it runs to its end even if the client disconnects.
    pub(super) async fn make(self, change: Change) -> Result<(), Refusal> {
        let work = async move { self.work(&change).await };
        match tokio::spawn(work.in_current_span()).await {
            Ok(result) => result,
            Err(error) => Err(Refusal::Failed(format!("the change was interrupted: {error}"))),
        }
    }

    async fn work(&self, change: &Change) -> Result<(), Refusal> {
        let name = change.name();
        let mut pauses = PAUSES.iter();
        let result = loop {
            match self.attempt(change, &name).await {
                Ok(()) => break Ok(()),
                Err(NotMade::Refused(refusal)) => break Err(refusal),
                Err(NotMade::Host(error)) => match pauses.next() {
                    Some(pause) if was_overtaken(&error) => tokio::time::sleep(*pause).await,
                    _ => break Err(Refusal::of_change(&name, error)),
                },
            }
        };
        self.note(change, &name, result.as_ref().err());
        result
    }

    async fn attempt(&self, change: &Change, name: &Name) -> Result<(), NotMade> {
        let there = stored::find(&self.host, name).await?;
        let not_there = || Refusal::NotThere(name.clone());
        match change {
            Change::Create(object) => {
                if let Some(there) = there {
                    let refusal = Refusal::AlreadyThere {
                        name: name.clone(),
                        location: there.location(),
                    };
                    return Err(refusal.into());
                }
                let object = object.clone().created_at(&Moment::now().to_string());
                self.apply(&object.to_text(), Expected::New).await
            }
            Change::Update(object) => {
                let there = there.ok_or_else(not_there)?;
                let text = there.updated_to(object.clone(), &Moment::now().to_string());
                self.apply(&text, Expected::There).await
            }
            Change::Delete(_) => {
                let Stored { definition, .. } = there.ok_or_else(not_there)?;
                self.host
                    .delete(&definition.id, &self.how(Expected::There))
                    .await?;
                Ok(())
            }
        }
    }

    async fn apply(&self, text: &str, expected: Expected) -> Result<(), NotMade> {
        self.host.apply(text, BODY, &self.how(expected)).await?;
        Ok(())
    }

    fn how(&self, expected: Expected) -> Application {
        let mut how = Application::default();
        how.by = self.by.clone();
        how.expected = expected;
        how
    }

    fn note(&self, change: &Change, subject: &Name, refusal: Option<&Refusal>) {
        let by = self.by.as_deref().unwrap_or_default();
        let action = change.as_str();
        match refusal {
            None => tracing::info!(
                target: "admittance::audit",
                by, action, %subject,
                "{by}: {action} admissionwebhook {subject}"
            ),
            Some(error) => tracing::info!(
                target: "admittance::audit",
                by, action, %subject, %error,
                "{by}: {action} admissionwebhook {subject} was refused: {error}"
            ),
        }
    }
}

/// Whether a concurrent change is the cause, so that a retry may succeed.
fn was_overtaken(error: &ChangeError) -> bool {
    matches!(
        error,
        ChangeError::Store(StoreError::ChangedMeanwhile { .. } | StoreError::Conflict { .. })
    )
}
