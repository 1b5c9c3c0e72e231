//! `int`, `uint`, `double`, `string`, `bytes`, `bool`, `type`, `dyn` and `size`.

use std::sync::Arc;

use super::{Library, moments};
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{Type, list as list_of, map},
    value::Value,
};

const A: Type = Type::Any(0);
const B: Type = Type::Any(1);

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, String, Timestamp, Uint};
    library.global(
        "int",
        int,
        &[
            (&[Int], Int),
            (&[Uint], Int),
            (&[Double], Int),
            (&[String], Int),
            (&[Timestamp], Int),
        ],
    );
    library.global(
        "uint",
        uint,
        &[
            (&[Int], Uint),
            (&[Uint], Uint),
            (&[Double], Uint),
            (&[String], Uint),
        ],
    );
    library.global(
        "double",
        double,
        &[
            (&[Int], Double),
            (&[Uint], Double),
            (&[Double], Double),
            (&[String], Double),
        ],
    );
    library.global(
        "string",
        string,
        &[
            (&[Bool], String),
            (&[Int], String),
            (&[Uint], String),
            (&[Double], String),
            (&[String], String),
            (&[Bytes], String),
            (&[Timestamp], String),
            (&[Duration], String),
            (&[crate::types::ADDRESS], String),
            (&[crate::types::NETWORK], String),
        ],
    );
    library.global("bytes", bytes, &[(&[String], Bytes), (&[Bytes], Bytes)]);
    library.global("bool", boolean, &[(&[Bool], Bool), (&[String], Bool)]);
    library.global("type", type_of, &[(&[A], Type::Kind)]);
    library.global("dyn", dynamic, &[(&[A], Dyn)]);
    let sizes: [(&[Type], Type); 4] = [
        (&[String], Int),
        (&[Bytes], Int),
        (&[list_of(A)], Int),
        (&[map(A, B)], Int),
    ];
    library.global("size", size, &sizes);
    library.member("size", size, &sizes);
}

fn out_of_range() -> Fault {
    Fault::error("integer overflow")
}

fn int<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let value = match arguments {
        [Value::Int(value)] => *value,
        [Value::Uint(value)] => i64::try_from(*value).map_err(|_| out_of_range())?,
        [Value::Double(value)] => {
            // The bounds themselves are not exact in a double.
            if value.abs() < i64::MAX as f64 {
                *value as i64
            } else {
                return Err(out_of_range());
            }
        }
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            text.parse().map_err(|_| {
                Fault::error(format!("strconv.ParseInt: parsing {:?}: invalid syntax", &**text))
            })?
        }
        [Value::Timestamp(moment)] => moment.unix_timestamp(),
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Int(value))
}

fn uint<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let value = match arguments {
        [Value::Uint(value)] => *value,
        [Value::Int(value)] => u64::try_from(*value).map_err(|_| out_of_range())?,
        [Value::Double(value)] => {
            if *value >= 0.0 && *value < u64::MAX as f64 {
                *value as u64
            } else {
                return Err(out_of_range());
            }
        }
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            text.parse().map_err(|_| {
                Fault::error(format!(
                    "strconv.ParseUint: parsing {:?}: invalid syntax",
                    &**text
                ))
            })?
        }
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Uint(value))
}

fn double<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let value = match arguments {
        [Value::Double(value)] => *value,
        [Value::Int(value)] => *value as f64,
        [Value::Uint(value)] => *value as f64,
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            text.parse().map_err(|_| {
                Fault::error(format!(
                    "strconv.ParseFloat: parsing {:?}: invalid syntax",
                    &**text
                ))
            })?
        }
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Double(value))
}

fn string<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let text = match arguments {
        [text @ Value::String(_)] => return Ok(text.clone()),
        [Value::Bool(value)] => value.to_string(),
        [Value::Int(value)] => value.to_string(),
        [Value::Uint(value)] => value.to_string(),
        [Value::Double(value)] => value.to_string(),
        [Value::Bytes(bytes)] => {
            machine.pay_bytes(bytes.len())?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Fault::error("invalid UTF-8 in bytes, cannot convert to string"))?;
            text.to_owned()
        }
        [Value::Timestamp(moment)] => moments::timestamp_text(moment)?,
        [Value::Duration(nanoseconds)] => moments::duration_text(*nanoseconds),
        [Value::Address(address)] => address.to_string(),
        [Value::Network(network)] => network.to_string(),
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::string(text))
}

fn bytes<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [bytes @ Value::Bytes(_)] => Ok(bytes.clone()),
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Ok(Value::Bytes(Arc::from(text.as_bytes())))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn boolean<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let value = match arguments {
        [Value::Bool(value)] => *value,
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(Fault::error("type conversion error from 'string' to 'bool'")),
        },
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Bool(value))
}

fn type_of<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] => Ok(Value::Type(value.kind())),
        _ => Err(Fault::no_overload()),
    }
}

fn dynamic<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value] => Ok(value.clone()),
        _ => Err(Fault::no_overload()),
    }
}

fn size<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let size = match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            text.chars().count()
        }
        [Value::Bytes(bytes)] => bytes.len(),
        [Value::List(list)] => list.len(),
        [Value::Map(map)] => map.len(),
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}
