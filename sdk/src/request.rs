//! The admission request.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::bindings::admittance::plugin::types::{GroupVersionKind, GroupVersionResource, Operation, UserInfo};

use crate::bindings::admittance::plugin::types;
use crate::error::Document;
use crate::{Error, Response, merge, pointer, reader};

/// One admission request.
///
/// The object is JSON text. Parse only what you need, with a type that names only those fields: the rest is skipped,
/// and strings can borrow from the request. Parsing a whole object into a [`Value`] is most of the cost of a call.
///
/// ```
/// use admittance_sdk::{Error, Request, Response, view};
/// use std::borrow::Cow;
///
/// #[view]
/// struct Pod<'a> {
///     #[serde(borrow)]
///     spec: PodSpec<'a>,
/// }
///
/// #[view]
/// struct PodSpec<'a> {
///     host_network: Option<bool>,
///     #[serde(borrow)]
///     node_name: Option<Cow<'a, str>>,
/// }
///
/// fn admit(request: &Request) -> Result<Response, Error> {
///     // A DELETE has no object.
///     let Some(pod) = request.object::<Pod>()? else { return Ok(Response::allow()) };
///     if pod.spec.host_network == Some(true) {
///         return Ok(Response::deny("spec.hostNetwork: the host's network is not for Pods; remove the field"));
///     }
///     Ok(Response::allow())
/// }
/// # use admittance_sdk::testing;
/// # let request = testing::create(r#"{"apiVersion":"v1","kind":"Pod","spec":{"hostNetwork":false}}"#).build();
/// # assert!(admit(&request).is_ok());
/// ```
#[derive(Debug)]
pub struct Request(types::Request);

impl Request {
    /// Returns the uid, which identifies this request in logs and traces.
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// Returns the operation: create, update, delete or connect.
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Returns the type of the object.
    pub fn kind(&self) -> &GroupVersionKind {
        &self.0.kind
    }

    /// Returns the resource type to which the request was sent.
    pub fn resource(&self) -> &GroupVersionResource {
        &self.0.resource
    }

    /// Returns the subresource, such as `status` or `scale`; `None` for the resource itself.
    pub fn subresource(&self) -> Option<&str> {
        self.0.subresource.as_deref()
    }

    /// Returns the object's name; `None` if the control plane has not generated it yet.
    pub fn name(&self) -> Option<&str> {
        Some(self.0.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the object's namespace; `None` for a cluster-scoped resource.
    pub fn namespace(&self) -> Option<&str> {
        self.0.namespace.as_deref()
    }

    /// Returns the user who sent the request. All fields are empty if the control plane does not provide them.
    pub fn user(&self) -> &UserInfo {
        &self.0.user
    }

    /// Returns whether this is a dry run. Its result is not stored, so a plugin must not cause side effects.
    pub fn dry_run(&self) -> bool {
        self.0.dry_run
    }

    /// Returns the object as changed by the previous stages. It is parsed as your type, which names the fields that you
    /// need. Absent for a DELETE.
    ///
    /// # Errors
    /// Fails if the object cannot be parsed as the type; the message says where.
    pub fn object<'a, T: View<'a>>(&'a self) -> Result<Option<T>, Error> {
        self.read(Document::Object)
    }

    /// Returns the object as it is stored now, if the control plane sent it with an UPDATE or a DELETE.
    ///
    /// # Errors
    /// Fails if the object cannot be parsed as the type; the message says where.
    pub fn old_object<'a, T: View<'a>>(&'a self) -> Result<Option<T>, Error> {
        self.read(Document::OldObject)
    }

    /// Returns the options of the operation (`CreateOptions` and so on), if the control plane has them.
    ///
    /// # Errors
    /// Fails if the options cannot be parsed as the type; the message says where.
    pub fn options<'a, T: View<'a>>(&'a self) -> Result<Option<T>, Error> {
        self.read(Document::Options)
    }

    /// Returns the whole object as a tree. This takes several times as long as [`Request::object`] with a type.
    ///
    /// # Errors
    /// Fails if the object is not JSON, or is nested deeper than 128 levels.
    pub fn object_value(&self) -> Result<Option<Value>, Error> {
        self.object()
    }

    /// Returns the JSON text of the object.
    pub fn object_json(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// Returns the JSON text of the old object.
    pub fn old_object_json(&self) -> Option<&str> {
        self.0.old_object.as_deref()
    }

    /// Parses the object as a type, lets you change it, and returns a response with the patch of your changes.
    ///
    /// The type may name only some of the fields: the patch contains the difference between the value before and after
    /// your change, so that other fields stay the same. List elements are matched by `name` if all have one, otherwise
    /// by equality, otherwise by index. Without a change, and for a request without an object, the verdict is `allow`.
    ///
    /// This parses the object twice, once as a tree. Where microseconds matter, parse a partial type with
    /// [`Request::object`] and build a [`Patch`](crate::Patch).
    ///
    /// ```
    /// use admittance_sdk::{Error, Request, Response};
    /// use admittance_sdk::serde::{Deserialize, Serialize};
    /// use std::collections::BTreeMap;
    ///
    /// #[derive(Deserialize, Serialize)]
    /// # #[serde(crate = "admittance_sdk::serde")]
    /// struct Labelled {
    ///     metadata: Metadata,
    /// }
    ///
    /// #[derive(Deserialize, Serialize)]
    /// # #[serde(crate = "admittance_sdk::serde")]
    /// struct Metadata {
    ///     #[serde(default)]
    ///     labels: BTreeMap<String, String>,
    /// }
    ///
    /// fn admit(request: &Request) -> Result<Response, Error> {
    ///     request.mutate(|object: &mut Labelled| {
    ///         object.metadata.labels.insert("team".into(), "storage".into());
    ///         Ok(())
    ///     })
    /// }
    /// # use admittance_sdk::testing;
    /// # use admittance_sdk::serde_json::json;
    /// # let outcome = testing::create(json!({"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}))
    /// #     .run(admit).unwrap();
    /// # assert_eq!(outcome.object(), Some(&json!({
    /// #     "kind": "Pod", "metadata": {"name": "a", "labels": {"team": "storage"}}, "spec": {}})));
    /// ```
    ///
    /// # Errors
    /// Fails if the object cannot be parsed as the type, the closure returns an error, or the type drops or adds
    /// elements of a list.
    pub fn mutate<T>(&self, change: impl FnOnce(&mut T) -> Result<(), Error>) -> Result<Response, Error>
    where
        T: DeserializeOwned + Serialize,
    {
        let Some(mut object) = self.object::<T>()? else {
            return Ok(Response::allow());
        };
        let before = to_tree(&object)?;
        change(&mut object)?;
        let after = to_tree(&object)?;
        if before == after {
            return Ok(Response::allow());
        }
        let Some(original) = self.object_value()? else {
            return Ok(Response::allow());
        };
        let merged = merge::rebase(&original, &before, after)?;
        Ok(Response::patch((&json_patch::diff(&original, &merged)).try_into()?))
    }

    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self, document: Document) -> Result<Option<T>, Error> {
        let text = match document {
            Document::Object => self.object_json(),
            Document::OldObject => self.old_object_json(),
            Document::Options => self.0.options.as_deref(),
        };
        let Some(text) = text else { return Ok(None) };
        reader::from_json(text)
            .map(Some)
            .map_err(|error| locate_error::<T>(document, text, &error))
    }

    pub(crate) fn from_contract(request: types::Request) -> Self {
        Self(request)
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn contract_mut(&mut self) -> &mut types::Request {
        &mut self.0
    }
}

fn to_tree(object: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|source| Error::Write {
        pointer: jsonptr::PointerBuf::new(),
        source,
    })
}

/// A type into which a document of the request can be parsed, such as a type with [`#[view]`](macro@crate::view).
#[diagnostic::on_unimplemented(
    message = "the request cannot be read as `{Self}`",
    label = "put `#[view]` on `{Self}`, and on the types of its fields",
    note = "a view that borrows from the request has `#[serde(borrow)]` on its fields with a lifetime"
)]
pub trait View<'de>: Deserialize<'de> {}

#[diagnostic::do_not_recommend]
impl<'de, T: Deserialize<'de>> View<'de> for T {}

/// Finds the path at which a document is invalid. The text is parsed a second time for this, so that tracking the path
/// costs nothing for valid documents.
#[cold]
fn locate_error<'a, T: Deserialize<'a>>(document: Document, text: &'a str, error: &serde_json::Error) -> Error {
    let pointer = match serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_str(text)) {
        Ok(_) => jsonptr::PointerBuf::new(),
        Err(error) => pointer::from_path(error.path()),
    };
    Error::Read {
        document,
        pointer,
        message: pointer::message(error),
    }
}
