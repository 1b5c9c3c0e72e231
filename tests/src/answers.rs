use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// An answer that a client has received: when it arrived, and which version of the table gave it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimedAnswer {
    pub answered_at: Instant,
    pub version: u32,
}

impl TimedAnswer {
    /// Returns an answer that arrives now; `None` if the message contains neither `version N` nor `version-N`.
    pub fn from_message(message: &str) -> Option<Self> {
        let (_, number) = message.split_once("version")?;
        let number = number.strip_prefix([' ', '-'])?;
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        Some(Self {
            answered_at: Instant::now(),
            version: digits.parse().ok()?,
        })
    }
}

/// Returns the longest time for which two versions of a table answered at once, and the older of the two versions. This
/// is the time from the first answer of the newer version to the last answer of the older version. `answers` must be in
/// the order of arrival.
pub fn longest_overlap(answers: &[TimedAnswer]) -> (Duration, u32) {
    let mut first: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut longest = (Duration::ZERO, 0);
    for TimedAnswer {
        answered_at: at,
        version,
    } in answers
    {
        first.entry(*version).or_insert(*at);
        let newer = first.range(version + 1..).map(|(_, first)| *first).min();
        if let Some(newer) = newer {
            longest = longest.max((at.duration_since(newer), *version));
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_of_two_tables_ends_with_the_last_answer_of_the_earlier_one() {
        let begin = Instant::now();
        let answer = |(millis, version): (u64, u32)| TimedAnswer {
            answered_at: begin + Duration::from_millis(millis),
            version,
        };
        for (answers, longest, version) in [
            (&[][..], 0, 0),
            (&[(0, 1), (5, 1), (6, 2)], 0, 0),
            (&[(0, 1), (5, 2), (9, 1), (10, 3), (11, 2), (12, 3)], 4, 1),
            (&[(0, 1), (1, 2), (2, 3), (7, 1)], 6, 1),
        ] {
            let answers: Vec<_> = answers.iter().copied().map(answer).collect();
            assert_eq!(
                longest_overlap(&answers),
                (Duration::from_millis(longest), version),
                "{answers:?}"
            );
        }
    }

    #[test]
    fn the_version_of_an_answer_is_read_from_its_message() {
        for (message, version) in [
            ("by version 12: no", Some(12)),
            ("version-7", Some(7)),
            ("version7", None),
            ("no team", None),
            ("version x", None),
        ] {
            assert_eq!(
                TimedAnswer::from_message(message).map(|answer| answer.version),
                version,
                "{message}"
            );
        }
    }
}
