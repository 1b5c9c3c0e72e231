//! The state of a fake Mesos cluster. It changes as with the handlers in `sched/api/api.go` of the original scheduler.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

use super::SchedulerRequest;

/// The state of a fake Mesos cluster, which all its fake schedulers share. Real schedulers keep the state in ZooKeeper.
/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct MesosCluster(Arc<Mutex<ClusterState>>);

#[derive(Debug, Default)]
struct ClusterState {
    objects: BTreeMap<ObjectKey, Value>,
    writes: Vec<StateWrite>,
}

pub type ObjectKey = (SchedulerKind, String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchedulerKind {
    Application,
    Deployment,
    Daemonset,
    ConfigMap,
    Secret,
    Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerVerb {
    Create,
    Change,
    Delete,
    Scale,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateWrite {
    /// The address of the fake scheduler that handled the write.
    pub scheduler_address: SocketAddr,
    pub verb: SchedulerVerb,
    pub key: ObjectKey,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RouteEffect {
    Create(SchedulerKind),
    Change(SchedulerKind),
    Delete(SchedulerKind),
    Scale(SchedulerKind),
    Get(SchedulerKind),
    List(SchedulerKind),
    /// The route returns the JSON from which an object was created. The object has this JSON in its field `raw_json`.
    Define(SchedulerKind),
    Versions,
    /// The route neither reads nor changes the state of the fake cluster.
    Nothing,
}

struct SchedulerError(u32, String);

const DECODE_ERROR: u32 = 1_405_010;
const REQUEST_DATA_ERROR: u32 = 1_405_008;
const COMMON_ERROR: u32 = 1_405_200;
const EXISTS_ERROR: u32 = 1_405_201;
const NOT_FOUND_ERROR: u32 = 1_405_202;

impl SchedulerKind {
    fn word(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Deployment => "deployment",
            Self::Daemonset => "daemonset",
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Service => "service",
        }
    }

    fn id(self, body: &Value) -> (String, String) {
        let (namespace, name) = match self {
            Self::Application => ("/RunAs", "/ID"),
            Self::Daemonset => ("/namespace", "/name"),
            Self::Deployment | Self::ConfigMap | Self::Secret | Self::Service => {
                ("/metadata/namespace", "/metadata/name")
            }
        };
        let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        (text(namespace).to_owned(), text(name).to_owned())
    }
}

impl MesosCluster {
    pub fn object(&self, kind: SchedulerKind, namespace: &str, name: &str) -> Option<Value> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.lock().objects.get(&key).cloned()
    }

    pub fn writes(&self) -> Vec<StateWrite> {
        self.lock().writes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handle(
        &self,
        scheduler_address: SocketAddr,
        effect: RouteEffect,
        parameters: &[(&'static str, String)],
        request: &SchedulerRequest,
    ) -> Value {
        let parameter = |name: &str| {
            let pair = parameters.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let object_key = |kind| (kind, parameter("ns"), parameter("name"));
        let mut state = self.lock();
        let outcome = match effect {
            RouteEffect::Create(kind) => state.create(scheduler_address, kind, request),
            RouteEffect::Change(kind) => state.change(scheduler_address, kind, request, &object_key(kind)),
            RouteEffect::Delete(kind) => state.delete(scheduler_address, object_key(kind)),
            RouteEffect::Scale(kind) => {
                let instances = parameter("instances");
                let instances = if instances.is_empty() {
                    query(request, "instances")
                } else {
                    instances
                };
                state.scale(scheduler_address, object_key(kind), &instances)
            }
            RouteEffect::Get(kind) => state.get(&object_key(kind)).cloned(),
            RouteEffect::List(kind) => Ok(state.list(kind, &parameter("ns"))),
            RouteEffect::Define(kind) => state
                .get(&object_key(kind))
                .map(|object| object.get("raw_json").cloned().unwrap_or_default()),
            RouteEffect::Versions => state
                .get(&object_key(SchedulerKind::Application))
                .map(|_| json!(["1486469930525129787"])),
            RouteEffect::Nothing => Ok(Value::Null),
        };
        match outcome {
            Ok(data) => json!({"result": true, "code": 0, "message": "success", "data": data}),
            Err(SchedulerError(code, message)) => {
                let message = format!("(bcs-scheduler):{message}");
                json!({"result": false, "code": code, "message": message, "data": null})
            }
        }
    }
}

impl ClusterState {
    fn get(&self, key: &ObjectKey) -> Result<&Value, SchedulerError> {
        self.objects
            .get(key)
            .ok_or_else(|| SchedulerError(COMMON_ERROR, "zk: node does not exist".to_owned()))
    }

    fn list(&self, kind: SchedulerKind, namespace: &str) -> Value {
        let all = self.objects.iter();
        all.filter(|((object_kind, object_namespace, _), _)| *object_kind == kind && object_namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    fn write(
        &mut self,
        scheduler_address: SocketAddr,
        verb: SchedulerVerb,
        key: ObjectKey,
    ) -> Result<Value, SchedulerError> {
        self.writes.push(StateWrite {
            scheduler_address,
            verb,
            key,
        });
        Ok(Value::Null)
    }

    fn create(
        &mut self,
        scheduler_address: SocketAddr,
        kind: SchedulerKind,
        request: &SchedulerRequest,
    ) -> Result<Value, SchedulerError> {
        let object = decode(request)?;
        let (namespace, name) = kind.id(&object);
        if kind == SchedulerKind::Application && object.get("Instances").and_then(Value::as_i64) <= Some(0) {
            return Err(SchedulerError(REQUEST_DATA_ERROR, "instances error".to_owned()));
        }
        let key = (kind, namespace, name);
        if self.objects.contains_key(&key) {
            return Err(SchedulerError(EXISTS_ERROR, format!("{} already exist", kind.word())));
        }
        self.objects.insert(key.clone(), object);
        self.write(scheduler_address, SchedulerVerb::Create, key)
    }

    fn change(
        &mut self,
        scheduler_address: SocketAddr,
        kind: SchedulerKind,
        request: &SchedulerRequest,
        path_key: &ObjectKey,
    ) -> Result<Value, SchedulerError> {
        let mut object = decode(request)?;
        let (namespace, name) = kind.id(&object);
        let key = (kind, namespace, name);
        let is_in_path = matches!(kind, SchedulerKind::Application | SchedulerKind::Deployment);
        if is_in_path && key != *path_key {
            return Err(SchedulerError(
                COMMON_ERROR,
                "version RunAs or ID not correct".to_owned(),
            ));
        }
        let Some(current) = self.objects.get(&key) else {
            return match kind {
                SchedulerKind::Application => {
                    Err(SchedulerError(COMMON_ERROR, "cannot get old version data".to_owned()))
                }
                kind => Err(SchedulerError(NOT_FOUND_ERROR, format!("{} not exist", kind.word()))),
            };
        };
        if kind == SchedulerKind::Application {
            if current.get("Kind") != object.get("Kind") {
                let message = "cannot update different kind application";
                return Err(SchedulerError(COMMON_ERROR, message.to_owned()));
            }
            if let (Some(instances), Some(version)) = (current.get("Instances"), object.as_object_mut()) {
                version.insert("Instances".to_owned(), instances.clone());
            }
            if query(request, "args") != "resource" {
                let Ok(instances) = query(request, "instances").parse::<i64>() else {
                    return Err(SchedulerError(COMMON_ERROR, "instances must be specified".to_owned()));
                };
                if Some(instances) > object.get("Instances").and_then(Value::as_i64) {
                    let message = "update instances num is more than version.Instances";
                    return Err(SchedulerError(COMMON_ERROR, message.to_owned()));
                }
            }
        }
        self.objects.insert(key.clone(), object);
        self.write(scheduler_address, SchedulerVerb::Change, key)
    }

    fn delete(&mut self, scheduler_address: SocketAddr, key: ObjectKey) -> Result<Value, SchedulerError> {
        match self.objects.remove(&key) {
            Some(_) => self.write(scheduler_address, SchedulerVerb::Delete, key),
            None => Err(SchedulerError(NOT_FOUND_ERROR, "zk: node does not exist".to_owned())),
        }
    }

    fn scale(
        &mut self,
        scheduler_address: SocketAddr,
        key: ObjectKey,
        instances: &str,
    ) -> Result<Value, SchedulerError> {
        let count: u64 = instances
            .parse()
            .map_err(|_| SchedulerError(COMMON_ERROR, format!("instances is `{instances}`")))?;
        self.get(&key)?;
        let pointer = match key.0 {
            SchedulerKind::Deployment => "/version/Instances",
            _ => "/Instances",
        };
        if let Some(count_field) = self
            .objects
            .get_mut(&key)
            .and_then(|object| object.pointer_mut(pointer))
        {
            *count_field = count.into();
        }
        self.write(scheduler_address, SchedulerVerb::Scale, key)
    }
}

fn decode(request: &SchedulerRequest) -> Result<Value, SchedulerError> {
    serde_json::from_slice(&request.body).map_err(|error| SchedulerError(DECODE_ERROR, error.to_string()))
}

fn query(request: &SchedulerRequest, name: &str) -> String {
    let pairs = request.uri.query().unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .unwrap_or_default()
}
