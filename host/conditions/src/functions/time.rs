//! Timestamps and durations.

use std::sync::LazyLock;

use ::time::{OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};
use jiff::{Timestamp, tz::TimeZoneDatabase};

use super::{
    Library,
    typed::{Duration, Str},
    value_or_error,
};
use crate::machine::Fault;

/// The bundled time zones. A machine's own time zones may be missing, or differ between replicas.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

const NANOS_PER_SECOND: i64 = 1_000_000_000;

const NOT_A_TIMESTAMP: &str = "not a timestamp: write it as RFC 3339 has it, as 2006-01-02T15:04:05Z";

pub(super) fn register(library: &mut Library) {
    library.add_global::<(OffsetDateTime,), OffsetDateTime>("timestamp", |_, (time,)| Ok(time));
    library.add_global::<(i64,), OffsetDateTime>("timestamp", |_, (seconds,)| {
        value_or_error(OffsetDateTime::from_unix_timestamp(seconds).ok(), NOT_A_TIMESTAMP)
    });
    library.add_global::<(Str,), OffsetDateTime>("timestamp", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        value_or_error(read_timestamp(&text), NOT_A_TIMESTAMP)
    });
    library.add_global::<(Duration,), Duration>("duration", |_, (duration,)| Ok(duration));
    library.add_global::<(Str,), Duration>("duration", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        read_duration(&text).ok_or_else(|| Fault::error(format!("time: invalid duration {:?}", &*text)))
    });
    library.add_global::<(OffsetDateTime,), Str>("string", |_, (time,)| Ok(timestamp_text(time)?.into()));
    // Literals of `google.protobuf.Timestamp` and `Duration` are compiled to calls of the next functions.
    library.add_global::<(i64, i64), OffsetDateTime>("@timestamp", |_, (seconds, nanos)| {
        let second = OffsetDateTime::from_unix_timestamp(seconds).ok();
        let time = second.and_then(|time| time.checked_add(::time::Duration::nanoseconds(nanos)));
        value_or_error(time, NOT_A_TIMESTAMP)
    });
    library.add_global::<(i64, i64), Duration>("@duration", |_, (seconds, nanos)| {
        let duration = seconds
            .checked_mul(NANOS_PER_SECOND)
            .and_then(|seconds| seconds.checked_add(nanos));
        value_or_error(duration, "duration overflow")
    });
    library.add_global::<(Duration,), Str>("string", |_, (duration,)| Ok(duration_text(duration).into()));
    let parts: [(&str, fn(OffsetDateTime) -> i64); 10] = [
        ("getFullYear", |time| time.year().into()),
        ("getMonth", |time| i64::from(u8::from(time.month())) - 1),
        ("getDate", |time| time.day().into()),
        ("getDayOfMonth", |time| i64::from(time.day()) - 1),
        ("getDayOfWeek", |time| time.weekday().number_days_from_sunday().into()),
        ("getDayOfYear", |time| i64::from(time.ordinal()) - 1),
        ("getHours", |time| time.hour().into()),
        ("getMinutes", |time| time.minute().into()),
        ("getSeconds", |time| time.second().into()),
        ("getMilliseconds", |time| time.millisecond().into()),
    ];
    for (name, part) in parts {
        library.add_member::<(OffsetDateTime,), i64>(name, move |_, (time,)| {
            Ok(part(value_or_error(
                time.checked_to_offset(UtcOffset::UTC),
                "timestamp overflow",
            )?))
        });
        library.add_member::<(OffsetDateTime, Str), i64>(name, move |_, (time, zone)| {
            let offset = offset_in(&zone, time).ok_or_else(|| Fault::error(format!("unknown time zone {}", &*zone)))?;
            Ok(part(value_or_error(
                time.checked_to_offset(offset),
                "timestamp overflow",
            )?))
        });
    }
    for (name, unit) in [
        ("getHours", 3600 * NANOS_PER_SECOND),
        ("getMinutes", 60 * NANOS_PER_SECOND),
        ("getSeconds", NANOS_PER_SECOND),
        ("getMilliseconds", NANOS_PER_SECOND / 1000),
    ] {
        library.add_member::<(Duration,), i64>(name, move |_, (duration,)| Ok(duration / unit));
    }
}

/// Parses a duration in Go's format, such as `1h30m`, `1.5s` or `-2ms`.
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
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if integer.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let amount: i128 = if integer.is_empty() {
            0
        } else {
            integer.parse::<u64>().ok()?.into()
        };
        total = total.checked_add(amount.checked_mul(unit)?)?;
        // The first digit after the decimal point counts in tenths of the unit, the next one in hundredths, and so on.
        // A digit for less than a nanosecond counts in a unit of 0, so it adds nothing.
        let mut digit_unit = unit;
        for digit in fraction.chars() {
            digit_unit /= 10;
            total += digit_unit * i128::from(digit.to_digit(10)?);
        }
    }
    i64::try_from(total * sign).ok()
}

/// Formats a duration in seconds as CEL does, such as `90s` or `1.5s`.
pub(crate) fn duration_text(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let (seconds, part) = (size / 1_000_000_000, size % 1_000_000_000);
    format!(
        "{sign}{seconds}{}s",
        format!(".{part:09}").trim_end_matches('0').trim_end_matches('.')
    )
}

/// Returns a time zone's offset at a time. The zone is a case-sensitive name in the IANA database, or an offset.
fn offset_in(zone: &str, time: OffsetDateTime) -> Option<UtcOffset> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Some(UtcOffset::UTC);
    }
    let Some((hours, minutes)) = zone.split_once(':') else {
        let zone = ZONES
            .get(zone)
            .ok()
            .filter(|time_zone| time_zone.iana_name() == Some(zone))?;
        // In CEL, timestamps may be up to a day later than the last timestamp of the crate `jiff`. Such a time is
        // replaced with the last timestamp of `jiff`.
        let (earliest, latest) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let time = Timestamp::from_second(time.unix_timestamp().clamp(earliest, latest)).ok()?;
        return UtcOffset::from_whole_seconds(zone.to_offset(time).seconds()).ok();
    };
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let minutes = hours.checked_mul(60)?.checked_add(sign * minutes)?;
    UtcOffset::from_whole_seconds(minutes.checked_mul(60)?).ok()
}

/// Parses an RFC 3339 timestamp. The offset in the text is kept for formatting.
pub(crate) fn read_timestamp(text: &str) -> Option<OffsetDateTime> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    time.checked_to_offset(UtcOffset::UTC).map(|_| time)
}

pub(crate) fn timestamp_text(time: OffsetDateTime) -> Result<String, Fault> {
    time.format(&Rfc3339)
        .map_err(|error| Fault::error(format!("timestamp cannot be shown: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go_and_written_in_seconds() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1s", Some(NANOS_PER_SECOND)),
            ("1h30m", Some(5400 * NANOS_PER_SECOND)),
            ("-1.5s", Some(-1_500_000_000)),
            ("+2ms", Some(2_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(NANOS_PER_SECOND)),
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
            (90 * NANOS_PER_SECOND, "90s"),
            (-1_500_000_000, "-1.5s"),
            (1, "0.000000001s"),
        ] {
            assert_eq!(duration_text(nanoseconds), text);
        }
    }
}
