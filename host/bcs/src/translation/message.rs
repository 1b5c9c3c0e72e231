//! Translates messages to applications into the scheduler's `BcsMessage`.

use serde_json::{Value, json};

use super::{
    TranslationFault,
    view::{CheckedView, copy_other_members, members},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageType {
    Local = 1,
    Signal = 2,
    EnvironmentKey = 3,
    Remote = 4,
}

/// The keys of a client's message, the type `SendMsgOpeParam` of BCS.
const READ_KEYS: [&str; 7] = [
    "name",
    "namespace",
    "setid",
    "moduleid",
    "msgtype",
    "msgdata",
    "taskgroupid",
];
/// The keys that a `BcsMessage` of the scheduler need not have.
const OPTIONAL_KEYS: [&str; 14] = [
    "Local",
    "Sig",
    "Env",
    "EnvRemote",
    "Remote",
    "Secret",
    "TaskStatusQuery",
    "UpdateTaskResources",
    "CommitTask",
    "ReloadTask",
    "RestartTask",
    "RequestCommandTask",
    "ResponseCommandTask",
    "TaskStatus",
];
/// The keys of the scheduler's `Msg_Remote` that bcs-mesos-driver never sets.
const OPTIONAL_REMOTE_KEYS: [&str; 3] = ["Type", "RemoteUser", "RemotePasswd"];

/// Translates a message to an application. Fields of the client's message that BCS's type does not have are copied.
pub(super) fn message_for_scheduler(message: CheckedView<'_>) -> Result<Value, TranslationFault> {
    let kind = match message.at("msgtype").text() {
        "local" => MessageType::Local,
        "remote" => MessageType::Remote,
        "signal" => MessageType::Signal,
        "env-key" => MessageType::EnvironmentKey,
        _ => return Err(TranslationFault::MessageType),
    };
    let data = message.at("msgdata");
    let (key, content, read, optional): (_, _, &[&str], &[&str]) = match kind {
        MessageType::Local => (
            "Local",
            json!({
                "To": data.at("to").text(),
                "Right": data.at("right").text(),
                "User": data.at("user").text(),
                "Base64": data.at("ctx").text(),
            }),
            &["to", "right", "user", "ctx"],
            &[],
        ),
        MessageType::Remote => (
            "Remote",
            json!({
                "To": data.at("to").text(),
                "Right": data.at("right").text(),
                "User": data.at("user").text(),
                "From": data.at("remote").text(),
            }),
            &["to", "right", "user", "remote"],
            &OPTIONAL_REMOTE_KEYS,
        ),
        MessageType::Signal => (
            "Sig",
            json!({
                "Signal": parse_signal(data.at("signal"))?,
                "ProcessName": data.at("processname").text(),
            }),
            &["signal", "processname"],
            &[],
        ),
        MessageType::EnvironmentKey => (
            "Env",
            json!({
                "Name": data.at("env-key").text(),
                "Value": data.at("env-value").text(),
            }),
            &["env-key", "env-value"],
            &[],
        ),
    };
    let mut content = members(content);
    copy_other_members(data, read, &mut content, optional);
    let mut into = members(json!({
        "Id": 0,
        "Type": kind as i32,
        "TaskGroupId": "",
        "TaskID": null,
        key: content,
        "Status": "",
        "Message": "",
        "CompleteTime": 0,
        "CreateTime": 0,
    }));
    copy_other_members(message, &READ_KEYS, &mut into, &OPTIONAL_KEYS);
    Ok(into.into())
}

/// Returns the number of a signal. It must fit into 32 bits, because the scheduler stores it in 32 bits.
fn parse_signal(value: CheckedView<'_>) -> Result<u32, TranslationFault> {
    value
        .value()
        .as_u64()
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| TranslationFault::Json("msgdata.signal is not the number of a signal".to_owned()))
}
