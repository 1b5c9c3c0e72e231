//! Timestamps and durations.

use time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use super::Library;
use crate::{
    machine::{Fault, Machine, Outcome},
    types::Type,
    value::Value,
};

const SECOND: i64 = 1_000_000_000;

pub(super) fn list(library: &mut Library) {
    use Type::{Duration, Int, String, Timestamp};
    library.global(
        "timestamp",
        timestamp,
        &[
            (&[Timestamp], Timestamp),
            (&[String], Timestamp),
            (&[Int], Timestamp),
        ],
    );
    library.global(
        "duration",
        duration,
        &[(&[Duration], Duration), (&[String], Duration)],
    );
    let of_date: [(&[Type], Type); 2] = [(&[Timestamp], Int), (&[Timestamp, String], Int)];
    let of_both: [(&[Type], Type); 3] = [
        (&[Timestamp], Int),
        (&[Timestamp, String], Int),
        (&[Duration], Int),
    ];
    library.member("getFullYear", full_year, &of_date);
    library.member("getMonth", month, &of_date);
    library.member("getDate", date, &of_date);
    library.member("getDayOfMonth", day_of_month, &of_date);
    library.member("getDayOfWeek", day_of_week, &of_date);
    library.member("getDayOfYear", day_of_year, &of_date);
    library.member("getHours", hours, &of_both);
    library.member("getMinutes", minutes, &of_both);
    library.member("getSeconds", seconds, &of_both);
    library.member("getMilliseconds", milliseconds, &of_both);
}

fn timestamp<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let moment = match arguments {
        [Value::Timestamp(moment)] => Some(*moment),
        [Value::Int(seconds)] => OffsetDateTime::from_unix_timestamp(*seconds).ok(),
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            OffsetDateTime::parse(text, &Rfc3339)
                .ok()
                .map(|moment| moment.to_offset(UtcOffset::UTC))
        }
        _ => return Err(Fault::no_overload()),
    };
    moment
        .map(Value::Timestamp)
        .ok_or_else(|| Fault::error("not a timestamp: write it as RFC 3339 has it, as 2006-01-02T15:04:05Z"))
}

fn duration<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [duration @ Value::Duration(_)] => Ok(duration.clone()),
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            read_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| Fault::error(format!("time: invalid duration {:?}", &**text)))
        }
        _ => Err(Fault::no_overload()),
    }
}

/// A duration as Go writes it: `1h30m`, `1.5s`, `-2ms`.
fn read_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let end = after
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        rest = after;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse::<u64>().ok()?.into()
        };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        // Digits below a nanosecond are dropped.
        let mut digit_unit = unit;
        for digit in part.chars() {
            digit_unit /= 10;
            total += digit_unit * i128::from(digit.to_digit(10)?);
        }
    }
    i64::try_from(total * sign).ok()
}

/// In seconds, as CEL shows it: `90s`, `1.5s`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let (seconds, part) = (size / 1_000_000_000, size % 1_000_000_000);
    let part = format!(".{part:09}");
    format!(
        "{sign}{seconds}{}s",
        part.trim_end_matches('0').trim_end_matches('.')
    )
}

pub(crate) fn timestamp_text(moment: &OffsetDateTime) -> Result<String, Fault> {
    moment
        .format(&Rfc3339)
        .map_err(|error| Fault::error(format!("timestamp cannot be shown: {error}")))
}

/// The moment in the zone that is named, or in UTC.
fn local(arguments: &[Value<'_>]) -> Result<OffsetDateTime, Fault> {
    match arguments {
        [Value::Timestamp(moment)] => Ok(*moment),
        [Value::Timestamp(moment), Value::String(zone)] => {
            let offset = read_zone(zone).ok_or_else(|| {
                Fault::error(format!(
                    "unknown time zone {:?}: use UTC or an offset such as +01:00",
                    &**zone
                ))
            })?;
            moment
                .checked_to_offset(offset)
                .ok_or_else(|| Fault::error("timestamp overflow"))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn read_zone(zone: &str) -> Option<UtcOffset> {
    if matches!(zone, "" | "UTC" | "Z") {
        return Some(UtcOffset::UTC);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i8, i8) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

fn full_year<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(local(arguments)?.year().into()))
}

fn month<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(u8::from(local(arguments)?.month())) - 1))
}

fn date<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(local(arguments)?.day().into()))
}

fn day_of_month<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(local(arguments)?.day()) - 1))
}

fn day_of_week<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(
        local(arguments)?.weekday().number_days_from_sunday().into(),
    ))
}

fn day_of_year<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Int(i64::from(local(arguments)?.ordinal()) - 1))
}

fn hours<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (3600 * SECOND))),
        _ => Ok(Value::Int(local(arguments)?.hour().into())),
    }
}

fn minutes<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (60 * SECOND))),
        _ => Ok(Value::Int(local(arguments)?.minute().into())),
    }
}

fn seconds<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / SECOND)),
        _ => Ok(Value::Int(local(arguments)?.second().into())),
    }
}

fn milliseconds<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Int(duration / (SECOND / 1000))),
        _ => Ok(Value::Int(local(arguments)?.millisecond().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_writes_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1s", Some(SECOND)),
            ("1h30m", Some(5400 * SECOND)),
            ("-1.5s", Some(-1_500_000_000)),
            ("+2ms", Some(2_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(SECOND)),
            ("3µs", Some(3_000)),
            ("1d", None),
            ("", None),
            ("-", None),
            ("1", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("9999999999999h", None),
            ("99999999999999999999999s", None),
        ] {
            assert_eq!(read_duration(text), expected, "{text}");
        }
        for (nanoseconds, text) in [
            (0, "0s"),
            (90 * SECOND, "90s"),
            (-1_500_000_000, "-1.5s"),
            (1, "0.000000001s"),
        ] {
            assert_eq!(duration_text(nanoseconds), text);
        }
    }
}
