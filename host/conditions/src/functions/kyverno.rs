//! The functions that Kyverno adds to CEL, and the reasons why some of them are refused.

use std::{io::Read as _, sync::Arc};

use ::md5::Md5;
use ::sha1::Sha1;
use admittance_admission::Moment;
use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_STANDARD,
};
use flate2::{
    Compression,
    read::{GzEncoder, MultiGzDecoder},
};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::{
    Library, random,
    typed::{A, Bytes, Duration, Dyn, ListOf, MapOf, Str},
    x509,
};
use crate::{
    apply::JsonWriter,
    machine::{Fault, Machine, Outcome},
    value::{CelList, Map, Value},
};

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Parsing JSON, YAML or a certificate takes much longer than reading it. So each byte of it costs as much as reading
/// this many bytes.
const TREE_COST: usize = 16;
/// The maximum length of the texts that `json.marshal` and `gzip.decompress` return, in bytes.
const MAX_TEXT_SIZE: usize = 1 << 20;
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the reason why this program does not support a function of Kyverno; `None` if it supports the function.
pub(crate) fn refusal(space: &str, name: &str) -> Option<&'static str> {
    Some(match (space, name) {
        ("http", "Client" | "client") => {
            "a CA in a policy is not trusted; name its file in `pluginHttp.ca` of the configuration, and call `http.Get`"
        }
        ("globalContext", "Get" | "get") => {
            "there is no global context; look the objects up with `resource.Get` or `resource.List`"
        }
        ("image", "GetMetadata" | "getMetadata") => {
            "a policy in CEL has no grant for registries; read images in a policy of Kubewarden"
        }
        ("resource", "Post" | "post") => "a policy creates no objects; ask what a user may do with `authorizer`",
        ("resource", "ToGVR" | "toGVR") => "write the version and the resource in `resource.Get` or `resource.List`",
        _ => return None,
    })
}

pub(super) fn register(library: &mut Library) {
    register_hashes(library);
    register_texts(library);
    register_times(library);
    for name in ["parseServiceAccount", "user.parseServiceAccount"] {
        library.add_global::<(Str,), MapOf<Str, Str>>(name, |machine, (user,)| {
            machine.charge_bytes(user.len())?;
            let account = user
                .strip_prefix(SERVICE_ACCOUNT)
                .and_then(|account| account.split_once(':'));
            let (namespace, name) = account.unwrap_or_default();
            let field = |key, value: &str| (Value::text(key), Value::string(value));
            Ok(Map::Shared([field("Name", name), field("Namespace", namespace)].into()))
        });
    }
    for name in ["listObjToMap", "transform.listObjToMap"] {
        library.add_global::<(ListOf<Dyn>, ListOf<Dyn>, Str, Str), MapOf<Str, Dyn>>(
            name,
            |machine, (keys, values, key, value)| merge_objects(machine, &keys, &values, (&key, &value)),
        );
    }
    for name in ["random", "random.random"] {
        library.add_global::<(), Str>(name, |machine, ()| random::generate_text(machine, "[0-9a-z]{8}"));
        library.add_global::<(Str,), Str>(name, |machine, (pattern,)| random::generate_text(machine, &pattern));
    }
}

fn register_hashes(library: &mut Library) {
    let hashes: [([&str; 2], fn(&str) -> String); 3] = [
        (["md5", "hash.md5"], |text| hex::encode(Md5::digest(text))),
        (["sha1", "hash.sha1"], |text| hex::encode(Sha1::digest(text))),
        (["sha256", "hash.sha256"], |text| hex::encode(Sha256::digest(text))),
    ];
    for (names, hash) in hashes {
        for name in names {
            library.add_global::<(Str,), Str>(name, move |machine, (text,)| {
                machine.charge_bytes(text.len().saturating_mul(16))?;
                Ok(hash(&text).into())
            });
        }
    }
}

fn register_texts(library: &mut Library) {
    library.add_global::<(Str,), Dyn>("json.unmarshal", |machine, (text,)| {
        parse_value(machine, &text, |text| {
            serde_json::from_str(text).map_err(|error| error.to_string())
        })
    });
    library.add_global::<(Str,), Dyn>("yaml.parse", |machine, (text,)| {
        parse_value(machine, &text, |text| {
            // In YAML, an alias repeats a part of the document, so a short text with many aliases can have a huge
            // result. All repeated parts together may have at most this size. The cost that has been charged for the
            // text includes repeated parts of this size.
            let repeated = text.len().saturating_mul(TREE_COST);
            let options = serde_saphyr::options! {
                budget: serde_saphyr::budget! { max_total_scalar_bytes: repeated },
                alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: repeated },
            };
            serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
        })
    });
    library.add_global::<(Str,), Dyn>("x509.decode", |machine, (text,)| {
        parse_value(machine, &text, x509::decode)
    });
    library.add_global::<(A,), Str>("json.marshal", |machine, (value,)| {
        // The length of the JSON text is known only after it is written. So a part of the cost is charged in advance.
        machine.charge_bytes(MAX_TEXT_SIZE / 16)?;
        let json_text = JsonWriter::new(MAX_TEXT_SIZE, machine.deadline).write_json(&value);
        let text = json_text.map_err(|failure| Fault::error(failure.message))?;
        machine.charge_bytes(text.len())?;
        Ok(text.into())
    });
    library.add_global::<(Bytes,), Str>("base64.encode", |machine, (bytes,)| {
        machine.charge_bytes(bytes.len())?;
        Ok(BASE64_STANDARD.encode(&bytes).into())
    });
    library.add_global::<(Str,), Bytes>("base64.decode", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        let bytes = LENIENT_BASE64.decode(text.as_bytes());
        bytes.map(Arc::from).map_err(|error| Fault::error(error.to_string()))
    });
    library.add_global::<(Str,), Bytes>("gzip.compress", |machine, (text,)| {
        machine.charge_bytes(text.len().saturating_mul(TREE_COST))?;
        let mut bytes = Vec::new();
        let outcome = GzEncoder::new(text.as_bytes(), Compression::default()).read_to_end(&mut bytes);
        outcome.map_err(|error| Fault::error(error.to_string()))?;
        Ok(bytes.into())
    });
    library.add_global::<(Bytes,), Str>("gzip.decompress", |machine, (bytes,)| {
        machine.charge_bytes(MAX_TEXT_SIZE / 16)?;
        let mut text = String::new();
        let mut reader = MultiGzDecoder::new(&*bytes).take(MAX_TEXT_SIZE as u64 + 1);
        let decompression = reader.read_to_string(&mut text);
        decompression.map_err(|error| Fault::error(error.to_string()))?;
        if text.len() > MAX_TEXT_SIZE {
            return Err(Fault::error(format!("the text has more than {MAX_TEXT_SIZE} bytes")));
        }
        machine.charge_bytes(text.len())?;
        Ok(text.into())
    });
}

fn parse_value<'a>(machine: &mut Machine<'a>, text: &str, parse: fn(&str) -> Result<Json, String>) -> Outcome<'a> {
    machine.charge_bytes(text.len().saturating_mul(TREE_COST))?;
    let tree = parse(text).map_err(Fault::error)?;
    Ok(Value::owned_from_tree(&with_doubles(tree)))
}

/// Returns the tree as Go decodes it: every number is a floating-point number.
pub(super) fn with_doubles(tree: Json) -> Json {
    match tree {
        Json::Number(number) => number.as_f64().into(),
        Json::Array(items) => items.into_iter().map(with_doubles).collect(),
        Json::Object(members) => members
            .into_iter()
            .map(|(key, value)| (key, with_doubles(value)))
            .collect(),
        other => other,
    }
}

fn register_times(library: &mut Library) {
    library.add_global::<(), OffsetDateTime>("time.now", |_, ()| Ok(Moment::now().0.into()));
    library.add_global::<(OffsetDateTime, Duration), OffsetDateTime>("time.truncate", |_, (time, unit)| {
        // Go truncates a time to a multiple of the given duration, counted from the start of the year 1. This constant
        // is the start of the year 1, in nanoseconds since 1970.
        const YEAR_ONE: i128 = -62_135_596_800 * 1_000_000_000;
        let nanos = time.unix_timestamp_nanos();
        let truncated_nanos = match unit {
            ..=0 => nanos,
            unit => nanos - (nanos - YEAR_ONE).rem_euclid(i128::from(unit)),
        };
        OffsetDateTime::from_unix_timestamp_nanos(truncated_nanos).map_err(|error| Fault::error(error.to_string()))
    });
    library.add_global::<(OffsetDateTime,), Str>("time.toCron", |_, (time,)| {
        let (minute, hour, day, month) = (time.minute(), time.hour(), time.day(), u8::from(time.month()));
        let weekday = time.weekday().number_days_from_sunday();
        Ok(format!("{minute} {hour} {day} {month} {weekday}").into())
    });
}

/// Combines two lists of objects into a map. Each object in `keys` has a field with a key of the map, and the object at
/// the same position in `values` has a field with the value for this key. The last parameter names the two fields.
fn merge_objects<'a>(
    machine: &mut Machine<'a>,
    keys: &CelList<'a>,
    values: &CelList<'a>,
    (key, value): (&str, &str),
) -> Result<Map<'a>, Fault> {
    if keys.len() != values.len() {
        let lengths = format!("list1: {}, list2: {}", keys.len(), values.len());
        return Err(Fault::error(format!(
            "listObjToMap must take lists of equal length. {lengths}"
        )));
    }
    let mut entries: Vec<(Value<'a>, Value<'a>)> = Vec::new();
    for (key_object, value_object) in keys.iter().zip(values.iter()) {
        machine.charge_items(entries.len() + 1)?;
        let (Value::Map(key_members), Value::Map(value_members)) = (key_object, value_object) else {
            return Err(Fault::error("the items of both lists must be objects"));
        };
        let new_value = value_members.field(value).unwrap_or(Value::Null);
        match key_members.field(key) {
            Some(key @ Value::String(_)) => {
                match entries.iter_mut().find(|(entry_key, _)| entry_key.same_scalar(&key)) {
                    Some((_, old_value)) => *old_value = new_value,
                    None => entries.push((key, new_value)),
                }
            }
            _ => {
                return Err(Fault::error(
                    "the passed key name cannot be handled as a string in the key object list",
                ));
            }
        }
    }
    Ok(Map::Shared(entries.into()))
}
