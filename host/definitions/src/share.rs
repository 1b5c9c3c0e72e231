use std::{fmt, num::NonZeroU16, str::FromStr};

/// The share of the requests that something is done for: 0.01% to 100%, in steps of 0.01%. As text `10%`,
/// `0.25%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(NonZeroU16);

/// A text that is not a valid share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid share; write {fix}")]
pub struct InvalidShare {
    /// The text.
    pub text: String,
    /// What to write instead.
    pub fix: String,
}

impl Share {
    /// Every request.
    pub const ALL: Self = Self(NonZeroU16::MIN.saturating_add(Self::WHOLE - 1));

    /// The parts of [`Share::ALL`].
    const WHOLE: u16 = 10_000;

    /// This many of ten thousand requests: 1 to 10,000.
    pub fn of_ten_thousand(parts: u16) -> Option<Self> {
        NonZeroU16::new(parts)
            .filter(|parts| parts.get() <= Self::WHOLE)
            .map(Self)
    }

    /// How many of ten thousand requests it is: 1 to 10,000.
    pub fn parts_of_ten_thousand(self) -> u16 {
        self.0.get()
    }

    /// Whether the request with this number, counted from 0, is one of the share. The first one is; of
    /// any ten thousand in a row exactly the share is, spread as evenly as whole requests can be.
    pub fn is_due(self, counter: u64) -> bool {
        let whole = u64::from(Self::WHOLE);
        let parts = u64::from(self.0.get());
        // The sum of the parts passes a multiple of the whole at these, and at no others.
        (counter % whole) * parts % whole < parts
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, rest) = (self.0.get() / 100, self.0.get() % 100);
        match (rest, rest % 10) {
            (0, _) => write!(f, "{percent}%"),
            (_, 0) => write!(f, "{percent}.{}%", rest / 10),
            _ => write!(f, "{percent}.{rest:02}%"),
        }
    }
}

impl FromStr for Share {
    type Err = InvalidShare;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |fix: String| InvalidShare {
            text: text.to_owned(),
            fix,
        };
        let range = || wrong("0.01% to 100%, with at most two digits after the point".to_owned());
        let Some(number) = text.strip_suffix('%') else {
            return Err(match hundredths(text).and_then(Self::of_ten_thousand) {
                Some(share) => wrong(share.to_string()),
                None => range(),
            });
        };
        hundredths(number)
            .and_then(Self::of_ten_thousand)
            .ok_or_else(range)
    }
}

/// `12.5` as 1250.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten()
    };
    let scale = match fraction.len() {
        1 => 10,
        2 => 1,
        _ => return None,
    };
    digits(whole)?
        .checked_mul(100)?
        .checked_add(digits(fraction)? * scale)
}

impl serde::Serialize for Share {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, parts) in [
            ("100%", 10_000),
            ("10%", 1000),
            ("12.5%", 1250),
            ("0.01%", 1),
            ("0.1%", 10),
            ("99.99%", 9999),
            ("1.05%", 105),
        ] {
            let share: Share = text.parse().unwrap();
            assert_eq!(share.parts_of_ten_thousand(), parts, "{text}");
            assert_eq!(share.to_string(), text);
            let json = serde_json::to_string(&share).unwrap();
            assert_eq!(serde_json::from_str::<Share>(&json).unwrap(), share);
        }
        assert_eq!("07.50%".parse::<Share>().unwrap().to_string(), "7.5%");
        assert_eq!(Share::ALL.to_string(), "100%");
        assert_eq!(Share::of_ten_thousand(0), None);
        assert_eq!(Share::of_ten_thousand(10_001), None);
    }

    #[test]
    fn what_is_no_share_is_told_with_the_fix() {
        let range = "0.01% to 100%, with at most two digits after the point";
        for (text, fix) in [
            ("10", "10%"),
            ("0.5", "0.5%"),
            ("0%", range),
            ("100.01%", range),
            ("1000%", range),
            ("70000%", range),
            ("0.001%", range),
            ("-1%", range),
            ("+1%", range),
            ("1e1%", range),
            (".5%", range),
            ("1.%", range),
            ("%", range),
            ("", range),
            ("10 %", range),
            ("ten", range),
        ] {
            let error = text.parse::<Share>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{text}` is not a valid share; write {fix}")
            );
        }
    }

    #[test]
    fn what_is_due_is_the_share_spread_evenly() {
        for parts in [1, 3, 10, 100, 333, 1000, 2500, 5000, 6667, 9999, 10_000] {
            let share = Share::of_ten_thousand(parts).unwrap();
            assert!(share.is_due(0), "{share}");
            let due: Vec<u64> = (0..20_000).filter(|counter| share.is_due(*counter)).collect();
            assert_eq!(due.len(), 2 * usize::from(parts), "{share}");
            let distances: Vec<u64> = due.iter().zip(&due[1..]).map(|(a, b)| b - a).collect();
            let least = 10_000 / u64::from(parts);
            assert!(
                distances
                    .iter()
                    .all(|distance| (least..=least + 1).contains(distance)),
                "{share}"
            );
            // The counter starts over without a gap in what it says.
            assert_eq!(share.is_due(u64::MAX), share.is_due(u64::MAX % 10_000));
        }
        let tenth: Share = "10%".parse().unwrap();
        let due: Vec<u64> = (0..40).filter(|counter| tenth.is_due(*counter)).collect();
        assert_eq!(due, [0, 10, 20, 30]);
    }
}
