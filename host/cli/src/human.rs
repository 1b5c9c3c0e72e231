//! Writes times, durations, counts and names for people.

use std::{fmt::Display, time::Duration};

use admittance::Moment;

/// Writes a duration in the unit that suits its size: `26.4µs`, `1.20ms`.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1_000.0 => format!("{micros:.1}µs"),
        1_000.0..1_000_000.0 => format!("{:.2}ms", micros / 1e3),
        _ => format!("{:.2}s", micros / 1e6),
    }
}

/// Writes the time between two moments in its two largest units (`42s` or `3h20m`); `0s` if `to` is before `from`.
pub(crate) fn age(from: Moment, to: Moment) -> String {
    let seconds = to.0.duration_since(from.0).unwrap_or_default().as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

pub(crate) fn object_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

pub(crate) fn timestamp(moment: Moment) -> String {
    humantime::format_rfc3339_seconds(moment.0).to_string()
}

/// Returns the first twelve digits of a digest, which are enough to tell digests apart.
pub(crate) fn short_digest(digest: &str) -> &str {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    digits.get(..12).unwrap_or(digits)
}

/// Writes a number with its noun: `1 request`, `2 requests`.
pub(crate) fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_in_their_two_largest_units() {
        let start = Moment(std::time::UNIX_EPOCH);
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m0s"),
            (3599, "59m59s"),
            (3600, "1h0m"),
            (86_399, "23h59m"),
            (90_000, "1d1h"),
        ] {
            let later = Moment(start.0 + Duration::from_secs(seconds));
            assert_eq!(age(start, later), expected);
            assert_eq!(age(later, start), "0s", "a clock that was set back");
        }
    }

    #[test]
    fn durations_are_written_in_a_suitable_unit() {
        for (nanoseconds, expected) in [(26_400, "26.4µs"), (1_200_000, "1.20ms"), (2_500_000_000, "2.50s")] {
            assert_eq!(duration(Duration::from_nanos(nanoseconds)), expected);
        }
    }

    #[test]
    fn digests_are_shortened_to_twelve_digits() {
        for (digest, short) in [("sha256:0123456789abcdef", "0123456789ab"), ("0123", "0123"), ("", "")] {
            assert_eq!(short_digest(digest), short);
        }
    }
}
