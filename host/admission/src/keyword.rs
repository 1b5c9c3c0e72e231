//! Enums whose values are keywords in documents.

/// An enum whose values are keywords in documents, such as `Fail` and `Ignore`.
pub trait Keyword: Copy + PartialEq + 'static {
    /// The name of the enum in messages, such as `failure policy`.
    const ENUM_NAME: &'static str;

    /// All keywords and their values.
    const KEYWORDS: &'static [(&'static str, Self)];
}

/// The error for a text that is not a keyword of an enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {enum_name}; write {words}")]
pub struct UnknownKeyword {
    enum_name: &'static str,
    text: String,
    words: String,
}

impl UnknownKeyword {
    /// Creates the error for this text, which is not a keyword of the enum `W`.
    pub fn new<W: Keyword>(text: &str) -> Self {
        Self {
            enum_name: W::ENUM_NAME,
            text: text.to_owned(),
            words: enumerated(W::KEYWORDS.iter().map(|(word, _)| *word), "or"),
        }
    }
}

/// Implements formatting, parsing, serde and the JSON schema for an enum of keywords.
#[doc(hidden)]
#[macro_export]
macro_rules! keywords {
    ($type:ident, $what:literal: $($variant:ident = $text:literal),+) => {
        impl $crate::Keyword for $type {
            const ENUM_NAME: &'static str = $what;
            const KEYWORDS: &'static [(&'static str, Self)] = &[$(($text, Self::$variant)),+];
        }

        impl $type {
            /// All values of the enum, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// Returns the keyword of this value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownKeyword;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let word = Self::ALL.into_iter().find(|word| word.as_str() == text);
                word.ok_or_else(|| $crate::UnknownKeyword::new::<Self>(text))
            }
        }

        impl $crate::__serde::Serialize for $type {
            fn serialize<S: $crate::__serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> $crate::__serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::__serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err($crate::__serde::de::Error::custom)
            }
        }

        impl $crate::__schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut $crate::__schemars::SchemaGenerator) -> $crate::__schemars::Schema {
                $crate::__schemars::json_schema!({"type": "string", "enum": [$($text),+]})
            }
        }
    };
}

/// Serializes and deserializes types as text, with their `Display` and `FromStr` implementations.
#[doc(hidden)]
#[macro_export]
macro_rules! as_text {
    ($($type:ty),+) => {$(
        impl $crate::__serde::Serialize for $type {
            fn serialize<S: $crate::__serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> $crate::__serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::__serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err($crate::__serde::de::Error::custom)
            }
        }
    )+};
}

as_text!(crate::ClusterKind, crate::Digest);

/// Joins words for a message, with `conjunction` before the last one: `Fail or Ignore`, `a, b and c`.
pub fn enumerated(words: impl IntoIterator<Item: Into<String>>, conjunction: &str) -> String {
    let mut words: Vec<String> = words.into_iter().map(Into::into).collect();
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} {conjunction} {last}", words.join(", ")),
        last => last.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{FailurePolicy, SideEffects};

    #[test]
    fn a_keyword_round_trips_through_text() {
        for policy in FailurePolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(json, format!("{:?}", policy.as_str()));
            assert_eq!(serde_json::from_str::<FailurePolicy>(&json).unwrap(), policy);
        }
        let error = "none".parse::<SideEffects>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"none\" is not a valid kind of side effects; write None, NoneOnDryRun, Some or Unknown"
        );
    }
}
