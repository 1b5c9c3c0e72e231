//! Reads resources of the control plane, limited to the kinds that the stage grants, and asks what users may do.
//!
//! The plugin requests a kind with `capabilities = [cluster("v1/Node")]`; the operator grants it with `allow: {
//! cluster: ["v1/Node"] }`. Reading a kind that is not granted ends the call. Questions about the user of the request
//! need a grant of the kind `authorization.k8s.io/v1/SelfSubjectAccessReview`, and questions about another user of the
//! kind `authorization.k8s.io/v1/SubjectAccessReview`.
//!
//! There is no control plane in native builds: every function returns [`Error::Unavailable`], unless a test provides
//! objects with [`testing::with_cluster`](crate::testing::with_cluster) and permissions with
//! [`testing::with_access`](crate::testing::with_access).

use std::{marker::PhantomData, vec};

use serde::de::DeserializeOwned;

use crate::UserInfo;
#[cfg(target_family = "wasm")]
use crate::bindings::admittance::plugin::cluster as source;
use crate::bindings::admittance::plugin::cluster::{self as contract, Action, PageRequest, PathAction, ResourceAction};
#[cfg(not(target_family = "wasm"))]
use crate::testing::cluster as source;

pub use crate::bindings::admittance::plugin::cluster::Access;

/// The reason why a call to the control plane failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host has no control plane, or cannot reach it.
    #[error("the control plane is unavailable: {0}")]
    Unavailable(String),
    /// The control plane did not answer before the deadline of the call.
    #[error("timeout: the control plane did not answer in time")]
    Timeout,
    /// The control plane refused the request with this message.
    #[error("the control plane refused: {0}")]
    Refused(String),
    /// The object cannot be parsed as the plugin's type.
    #[error("an object of the control plane cannot be parsed as the plugin's type: {0}")]
    Read(String),
}

/// Returns one object, or `None` if it does not exist.
///
/// `api_version` is `v1` or `apps/v1`; `namespace` is `None` for cluster-scoped kinds.
///
/// # Errors
///
/// Fails if the host cannot read the object, or if the object cannot be parsed as the type.
pub fn get<T: DeserializeOwned>(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<T>, Error> {
    source::get(api_version, kind, namespace, name)?
        .map(|text| read(&text))
        .transpose()
}

/// Returns the objects of a kind whose labels match the selector (`app=web,tier!=cache`; empty for all). With the
/// namespace `None`, returns the objects of all namespaces.
///
/// # Errors
///
/// Fails if the host cannot read the objects, or if one of them cannot be parsed as the type.
pub fn list<T: DeserializeOwned>(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    label_selector: &str,
) -> Result<Vec<T>, Error> {
    source::list(api_version, kind, namespace, label_selector)?
        .iter()
        .map(|text| read(text))
        .collect()
}

/// A large list, of which only some fields are needed. It is read page by page.
///
/// ```no_run
/// use admittance_sdk::cluster::{Error, List};
/// use admittance_sdk::view;
///
/// #[view]
/// struct Pod {
///     spec: Spec,
/// }
///
/// #[view]
/// struct Spec {
///     node_name: Option<String>,
/// }
///
/// fn pods_of(node: &str) -> Result<usize, Error> {
///     let mut count = 0;
///     for pod in List::of("v1", "Pod").labels("tier=web").fields(["/spec/nodeName"]).objects::<Pod>() {
///         count += usize::from(pod?.spec.node_name.as_deref() == Some(node));
///     }
///     Ok(count)
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is listed until `objects` is called"]
pub struct List(PageRequest);

impl List {
    /// Lists all objects of a kind, in all namespaces, with all fields. `api_version` is `v1` or `apps/v1`.
    pub fn of(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self(PageRequest {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: None,
            label_selector: String::new(),
            fields: Vec::new(),
            limit: 0,
            continue_: None,
        })
    }

    /// Limits the list to the objects of a namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.0.namespace = Some(namespace.into());
        self
    }

    /// Limits the list to objects whose labels match the selector: `app=web,tier!=cache`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.0.label_selector = selector.into();
        self
    }

    /// Reads only these fields, given as JSON Pointers in which `*` stands for every element of a list:
    /// `/spec/containers/*/image`. Name and namespace are always included. Reading only fields below `/metadata` costs
    /// least.
    pub fn fields<P: Into<String>>(mut self, pointers: impl IntoIterator<Item = P>) -> Self {
        self.0.fields.extend(pointers.into_iter().map(Into::into));
        self
    }

    /// Sets the maximum number of objects that are in memory at once. The default is 500, which is also the maximum.
    pub fn page_size(mut self, objects: u32) -> Self {
        self.0.limit = objects;
        self
    }

    /// Returns an iterator over the listed objects. It reads each page when it needs it, and ends after an error.
    pub fn objects<T: DeserializeOwned>(self) -> Objects<T> {
        Objects {
            next: Some(self.0),
            page: Vec::new().into_iter(),
            parsed_as: PhantomData,
        }
    }
}

/// An iterator over the objects of a [`List`].
#[derive(Debug)]
pub struct Objects<T> {
    /// The request for the next page of the list; `None` if there is no further page.
    next: Option<PageRequest>,
    page: vec::IntoIter<String>,
    parsed_as: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Objects<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(text) = self.page.next() {
                let object = read(&text);
                if object.is_err() {
                    self.next = None;
                    self.page = Vec::new().into_iter();
                }
                return Some(object);
            }
            let mut request = self.next.take()?;
            let page = match source::list_page(&request) {
                Ok(page) => page,
                Err(error) => return Some(Err(error.into())),
            };
            self.page = page.items.into_iter();
            if page.continue_.is_some() {
                request.continue_ = page.continue_;
                self.next = Some(request);
            }
        }
    }
}

/// A question to the control plane: may a user do something? It is a `SubjectAccessReview` of Kubernetes.
///
/// ```no_run
/// use admittance_sdk::cluster::{CanI, Error};
///
/// fn may_use_the_class(name: &str) -> Result<bool, Error> {
///     Ok(CanI::new("use", "storage.k8s.io", "storageclasses").name(name).ask()?.allowed)
/// }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is asked until `ask` is called"]
pub struct CanI {
    action: Action,
    user: Option<UserInfo>,
}

impl CanI {
    /// Asks whether the user of the request may use this verb on all objects of a resource. `group` is empty for the
    /// core group; `resource` is `pods`, or `pods/log` with a subresource.
    pub fn new(verb: impl Into<String>, group: impl Into<String>, resource: &str) -> Self {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        Self {
            action: Action::Resource(ResourceAction {
                verb: verb.into(),
                group: group.into(),
                resource: resource.to_owned(),
                subresource,
                namespace: None,
                name: None,
            }),
            user: None,
        }
    }

    /// Asks whether the user of the request may use this verb on a path of the API server, such as `get` on `/healthz`.
    pub fn path(verb: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            action: Action::Path(PathAction {
                verb: verb.into(),
                path: path.into(),
            }),
            user: None,
        }
    }

    /// Limits the question to this namespace. Has no effect on a question about a path.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        if let Action::Resource(action) = &mut self.action {
            action.namespace = Some(namespace.into());
        }
        self
    }

    /// Limits the question to the object of this name. Has no effect on a question about a path.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if let Action::Resource(action) = &mut self.action {
            action.name = Some(name.into());
        }
        self
    }

    /// Asks about this user instead of the user of the request.
    pub fn user(mut self, user: UserInfo) -> Self {
        self.user = Some(user);
        self
    }

    /// Sends the question to the control plane.
    ///
    /// # Errors
    /// Fails if the control plane does not answer. A user who lacks the permission is not an error: see
    /// [`Access::allowed`].
    pub fn ask(&self) -> Result<Access, Error> {
        Ok(source::can_i(&self.action, self.user.as_ref())?)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    crate::reader::from_json(text).map_err(|error| Error::Read(crate::pointer::message(&error)))
}

impl From<contract::Error> for Error {
    fn from(error: contract::Error) -> Self {
        match error {
            contract::Error::Unavailable(why) => Self::Unavailable(why),
            contract::Error::Timeout => Self::Timeout,
            contract::Error::Refused(why) => Self::Refused(why),
        }
    }
}
