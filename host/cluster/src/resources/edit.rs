//! Edits of one resource. An edit is made only if the resource is in the state that the caller expects.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Resource, ResourceError, WatchedResources};

/// The maximum number of attempts if other clients change the resource meanwhile.
const MAX_ATTEMPTS: usize = 5;

/// A change of one resource. The store that makes the change knows only some fields of the resource, and leaves all
/// other fields as they are.
#[derive(derive_more::Debug)]
#[debug("ResourceEdit {{ namespace: {namespace:?}, name: {name:?}, .. }}")]
pub struct ResourceEdit<'a> {
    pub path: &'a Path,
    /// The namespace of the resource; empty for a resource of the whole cluster.
    pub namespace: &'a str,
    pub name: &'a str,
    /// Returns whether the edit may be made. The argument is the resource as it is now, or `None` if there is no such
    /// resource. If the result is false, the resource is not changed.
    pub matches_before: &'a (dyn Fn(Option<&Resource>) -> bool + Sync),
    /// Returns whether this resource looks as it should after the edit. The argument is `None` if there is no such
    /// resource.
    pub matches_after: &'a (dyn Fn(Option<&Resource>) -> bool + Sync),
    /// Sets fields of the resource. If `None`, the resource is deleted.
    pub set_fields: Option<&'a (dyn Fn(&mut Map<String, Value>) + Sync)>,
}

impl WatchedResources {
    /// Changes the resource if it is in the expected state, and returns whether it was. If another client changes the
    /// resource in the meantime, reads it again, and tries again if it is still in the expected state.
    pub async fn edit(&self, edit: &ResourceEdit<'_>) -> Result<bool, ResourceError> {
        let ResourceEdit { namespace, name, .. } = *edit;
        for _ in 0..MAX_ATTEMPTS {
            let current = self.get(namespace, name).await?;
            if !(edit.matches_before)(current.as_ref()) {
                break;
            }
            let write_result = match (&current, edit.set_fields) {
                (None, None) => return Ok(true),
                (_, Some(set)) => self.put(namespace, name, current.clone(), set).await.map(drop),
                (Some(current), None) => self.delete(current).await,
            };
            match write_result {
                Ok(()) => return Ok(true),
                Err(ResourceError::Conflict(_) | ResourceError::NotFound(_)) if current.is_some() => {}
                Err(ResourceError::Conflict(_)) => break,
                Err(ResourceError::Unavailable(reason)) => {
                    return match self.get(namespace, name).await {
                        Ok(stored_resource) if (edit.matches_after)(stored_resource.as_ref()) => Ok(true),
                        _ => Err(ResourceError::Unknown {
                            reason,
                            path: edit.path.to_owned(),
                        }),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
