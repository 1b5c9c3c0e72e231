use std::{fmt, num::NonZeroU16, str::FromStr};

/// A share of requests, 0.01% to 100% in steps of 0.01%. As text: `10%` or `0.25%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(NonZeroU16);

/// The reason why a text is not a valid share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid share; write {fix}")]
pub struct InvalidShare {
    /// The text that is not a share.
    pub text: String,
    /// The text to write instead of the invalid one.
    pub fix: String,
}

impl Share {
    /// The share that contains every request.
    pub const WHOLE: Self = Self(NonZeroU16::MIN.saturating_add(Self::PART_COUNT - 1));

    /// The number of steps of 0.01% in [`Share::WHOLE`].
    const PART_COUNT: u16 = 10_000;

    /// Creates a share of `parts` in 10,000 requests; `None` unless `parts` is 1 to 10,000.
    pub fn of_ten_thousand(parts: u16) -> Option<Self> {
        NonZeroU16::new(parts)
            .filter(|parts| parts.get() <= Self::PART_COUNT)
            .map(Self)
    }

    /// Returns how many of 10,000 requests are in the share, from 1 to 10,000.
    pub fn parts_of_ten_thousand(self) -> u16 {
        self.0.get()
    }

    /// Returns whether the request with the number `counter` is in the share. The first request has the number 0, and
    /// is in every share. Of any 10,000 consecutive requests, a share of 10% contains exactly 1,000, evenly spread.
    pub fn is_due(self, counter: u64) -> bool {
        let part_count = u64::from(Self::PART_COUNT);
        let parts = u64::from(self.0.get());
        // The multiplication spreads the included requests evenly. For example, a share of 30% includes the requests 0,
        // 4, 7, 10, 14 and so on.
        (counter % part_count) * parts % part_count < parts
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
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
        let invalid_share = |fix: String| InvalidShare {
            text: text.to_owned(),
            fix,
        };
        let invalid_number = || invalid_share("0.01% to 100%, with at most two digits after the point".to_owned());
        let Some(number) = text.strip_suffix('%') else {
            return Err(match hundredths(text).and_then(Self::of_ten_thousand) {
                Some(share) => invalid_share(share.to_string()),
                None => invalid_number(),
            });
        };
        hundredths(number)
            .and_then(Self::of_ten_thousand)
            .ok_or_else(invalid_number)
    }
}

/// Parses a decimal number with at most two digits after the point, and returns its hundredths: 1250 for `12.5`.
fn hundredths(text: &str) -> Option<u16> {
    let (integer, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u16>().ok()).flatten()
    };
    let scale = match fraction.len() {
        1 => 10,
        2 => 1,
        _ => return None,
    };
    digits(integer)?
        .checked_mul(100)?
        .checked_add(digits(fraction)? * scale)
}

#[cfg(test)]
mod tests;
