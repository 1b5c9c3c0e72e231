//! The capability `cluster`: plugins read resources of the control plane, and check what the user of a request may do.

use std::{num::NonZeroU32, sync::Arc};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline,
    FieldMask, RecordedCluster, UserInfo, move_if_long,
};

use super::{PREPARING_MESSAGE, denied_error};
use crate::{
    contract::bindings::admittance::plugin::{cluster, types},
    store::CallState,
};

const NO_CLUSTER: &str = "no control plane is configured on this host";

const MAX_PAGE: NonZeroU32 = NonZeroU32::new(500).unwrap();

/// The cost of a label selector. A selector is compared with the labels of all objects, so each of its bytes counts as
/// much as searching this many bytes of text.
const LABEL_SELECTOR_COST: usize = 64;

/// The number of searched bytes after which a search lets other work run on its thread.
const BYTES_AT_ONCE: usize = 256 << 10;

impl CallState {
    /// Returns the cluster's reader if the plugin may read this kind of object. An inner error is the result of the
    /// plugin's own call, and the plugin can go on. An outer error, such as a missing grant, ends the plugin's call.
    fn granted_reader(
        &self,
        api_version: String,
        kind: String,
    ) -> wasmtime::Result<Result<(Arc<dyn ClusterReader>, ClusterKind), cluster::Error>> {
        let kind = ClusterKind::new(api_version, kind);
        // A plugin may try out a request in `configure`, where it cannot read anything yet. It gets an error as the
        // result, and can go on.
        if self.preparing {
            return Ok(Err(cluster::Error::Unavailable(PREPARING_MESSAGE.to_owned())));
        }
        if kind.is_access_review() {
            return Ok(Err(cluster::Error::Refused(format!(
                "there are no objects of `{kind}`; call `can-i`"
            ))));
        }
        if !self.grants.cluster.contains(&kind) {
            return Err(denied_error(format!(
                "the plugin reads `{kind}` from the control plane without permission; add `{kind}` to \
                 `allow.cluster` of the stage"
            )));
        }
        Ok(self.cluster_reader().map(|reader| (reader, kind)))
    }

    fn granted_namespace(
        &self,
        kind: &ClusterKind,
        namespace: Option<String>,
        is_list: bool,
    ) -> wasmtime::Result<Option<String>> {
        let Some(own_namespace) = self.grants.namespace.as_deref() else {
            return Ok(namespace);
        };
        match namespace {
            None if is_list => Ok(Some(own_namespace.to_owned())),
            Some(namespace) if namespace == own_namespace => Ok(Some(namespace)),
            other_namespace => {
                let namespace_text =
                    other_namespace.map_or_else(|| "no namespace".to_owned(), |other| format!("namespace {other}"));
                Err(denied_error(format!(
                    "the plugin reads `{kind}` in {namespace_text}; its chain may read only what is in the namespace {own_namespace}"
                )))
            }
        }
    }

    fn cluster_reader(&self) -> Result<Arc<dyn ClusterReader>, cluster::Error> {
        let reader = self.sandbox.config.cluster.clone();
        reader.ok_or_else(|| cluster::Error::Unavailable(NO_CLUSTER.to_owned()))
    }

    fn granted_user(&self, user: Option<types::UserInfoResult>) -> wasmtime::Result<UserInfo> {
        let permission_error = |kind: ClusterKind, who: &str| {
            denied_error(format!(
                "the plugin asks what {who} may do without permission; add `{kind}` to `allow.cluster` of the stage"
            ))
        };
        match user {
            Some(user) if self.grants.may_check_any_access() => Ok(UserInfo {
                username: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra.into_iter().collect(),
            }),
            Some(_) => Err(permission_error(ClusterKind::any_access_review(), "other users")),
            None if self.grants.may_check_own_access() => Ok(self.user.clone()),
            None => Err(permission_error(
                ClusterKind::own_access_review(),
                "the user of the request",
            )),
        }
    }
}

async fn await_answer<T>(
    deadline: Deadline,
    answer: impl Future<Output = Result<T, ClusterError>>,
) -> Result<T, cluster::Error> {
    match tokio::time::timeout_at(deadline.instant(), answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(cluster::Error::Timeout),
    }
}

async fn list_objects(
    reader: RecordedCluster<'_>,
    kind: &ClusterKind,
    query: &ClusterQuery,
    deadline: Deadline,
) -> Result<ClusterPage, cluster::Error> {
    move_if_long(query.label_selector.len() * LABEL_SELECTOR_COST).await;
    await_answer(deadline, reader.list(kind, query, deadline)).await
}

/// Lets other calls run during a long search, and stops it at the deadline.
pub(crate) struct SearchPace {
    deadline: Deadline,
    bytes_since_pause: usize,
}

impl SearchPace {
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self {
            deadline,
            bytes_since_pause: 0,
        }
    }

    pub(crate) async fn pause_before(&mut self, object: &str) -> Result<(), cluster::Error> {
        self.bytes_since_pause += object.len();
        if self.bytes_since_pause > BYTES_AT_ONCE {
            self.bytes_since_pause = 0;
            tokio::task::yield_now().await;
            if self.deadline.has_passed() {
                return Err(cluster::Error::Timeout);
            }
        }
        Ok(())
    }
}

async fn select_fields(
    page: &ClusterPage,
    fields: &FieldMask,
    deadline: Deadline,
) -> Result<Vec<String>, cluster::Error> {
    // Large objects take long, because they are copied twice: into this program, and into the plugin.
    move_if_long(page.objects.iter().map(|object| object.len()).sum()).await;
    if fields.selects_all() {
        return Ok(page.objects.iter().map(|object| object.to_string()).collect());
    }
    let mut selected_objects = Vec::with_capacity(page.objects.len());
    let mut pace = SearchPace::new(deadline);
    for object in &page.objects {
        pace.pause_before(object).await?;
        let part = fields.apply(object).map_err(|error| {
            cluster::Error::Unavailable(format!("an object of the control plane is not JSON: {error}"))
        })?;
        selected_objects.push(part);
    }
    Ok(selected_objects)
}

impl From<ClusterError> for cluster::Error {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Unavailable(why) => Self::Unavailable(why),
            ClusterError::Timeout => Self::Timeout,
            ClusterError::Refused(why) => Self::Refused(why),
        }
    }
}

impl cluster::Host for CallState {
    async fn get(
        &mut self,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        name: String,
    ) -> wasmtime::Result<Result<Option<String>, cluster::Error>> {
        let (reader, kind) = match self.granted_reader(api_version, kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let namespace = self.granted_namespace(&kind, namespace, false)?;
        let reader = RecordedCluster::new(&*reader, self.recorder.as_ref());
        let answer = reader.get(&kind, namespace.as_deref(), &name, self.deadline);
        let answer = await_answer(self.deadline, answer).await;
        move_if_long(answer.iter().flatten().map(String::len).sum()).await;
        Ok(answer)
    }

    async fn list(
        &mut self,
        api_version: String,
        kind: String,
        namespace: Option<String>,
        label_selector: String,
    ) -> wasmtime::Result<Result<Vec<String>, cluster::Error>> {
        let (reader, kind) = match self.granted_reader(api_version, kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let mut query = ClusterQuery::default();
        query.namespace = self.granted_namespace(&kind, namespace, true)?;
        query.label_selector = label_selector;
        let reader = RecordedCluster::new(&*reader, self.recorder.as_ref());
        Ok(match list_objects(reader, &kind, &query, self.deadline).await {
            Ok(page) => select_fields(&page, &query.fields, self.deadline).await,
            Err(error) => Err(error),
        })
    }

    async fn list_page(
        &mut self,
        request: cluster::PageRequest,
    ) -> wasmtime::Result<Result<cluster::Page, cluster::Error>> {
        let (reader, kind) = match self.granted_reader(request.api_version, request.kind)? {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(error)),
        };
        let fields = match FieldMask::new(request.fields.iter().map(String::as_str)) {
            Ok(fields) => fields,
            Err(why) => return Ok(Err(cluster::Error::Refused(why))),
        };
        let mut query = ClusterQuery::default();
        query.namespace = self.granted_namespace(&kind, request.namespace, true)?;
        query.label_selector = request.label_selector;
        query.fields = fields;
        query.limit = Some(NonZeroU32::new(request.limit).map_or(MAX_PAGE, |limit| limit.min(MAX_PAGE)));
        query.from = request.continue_;
        let reader = RecordedCluster::new(&*reader, self.recorder.as_ref());
        let page = match list_objects(reader, &kind, &query, self.deadline).await {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let items = select_fields(&page, &query.fields, self.deadline).await;
        Ok(items.map(|items| cluster::Page {
            items,
            continue_: page.rest,
        }))
    }

    async fn can_i(
        &mut self,
        action: cluster::Action,
        user: Option<types::UserInfoResult>,
    ) -> wasmtime::Result<Result<cluster::Access, cluster::Error>> {
        if self.preparing {
            return Ok(Err(cluster::Error::Unavailable(PREPARING_MESSAGE.to_owned())));
        }
        let user = self.granted_user(user)?;
        let reader = match self.cluster_reader() {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        let action = access_attributes(action);
        let answer = await_answer(self.deadline, reader.check_access(&user, &action, self.deadline)).await;
        if let (Some(recorder), Ok(access)) = (&self.recorder, &answer) {
            recorder.record_access(&user, &action, access.allowed);
        }
        Ok(answer.map(|AccessCheckResult { allowed, reason }| cluster::Access { allowed, reason }))
    }
}

fn access_attributes(action: cluster::Action) -> AccessAttributes {
    match action {
        cluster::Action::Resource(action) => AccessAttributes::Resource {
            verb: action.verb,
            group: action.group,
            version: "*".to_owned(),
            resource: action.resource,
            subresource: action.subresource.unwrap_or_default(),
            namespace: action.namespace.unwrap_or_default(),
            name: action.name.unwrap_or_default(),
            field_selector: String::new(),
            label_selector: String::new(),
        },
        cluster::Action::Path(cluster::PathAction { verb, path }) => AccessAttributes::Path { verb, path },
    }
}
