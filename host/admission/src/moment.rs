use std::{borrow::Cow, time::SystemTime};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A time of the system clock. Its text has milliseconds in UTC, as in RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{}", humantime::format_rfc3339_millis(*_0))]
pub struct Moment(pub SystemTime);

impl Moment {
    /// Returns the current time.
    #[allow(clippy::disallowed_methods, reason = "everything else reads the clock here")]
    pub fn now() -> Self {
        Self(SystemTime::now())
    }

    /// Returns the moment in microseconds since 1970; 0 for a moment before 1970.
    pub fn as_micros(self) -> u64 {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        humantime::parse_rfc3339(&Cow::<str>::deserialize(deserializer)?)
            .map(Self)
            .map_err(D::Error::custom)
    }
}

impl JsonSchema for Moment {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_round_trips_through_text() {
        let moment = Moment(SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123));
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(text, "\"2026-09-21T14:13:20.123Z\"");
        assert_eq!(serde_json::from_str::<Moment>(&text).unwrap(), moment);
        assert!(serde_json::from_str::<Moment>("\"yesterday\"").is_err());
    }
}
