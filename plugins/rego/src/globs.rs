//! OPA's `regex.globs_match`: whether any text matches both globs.
//!
//! Globs consist of characters, `.` for any character, `[a-z]` for one of several, and `\` before a special character.
//! `*` after one of these repeats it any number of times, and `+` at least once. Empty text does not count as a match.

use std::{collections::BTreeSet, iter::Peekable, str::Chars};

/// The limit for comparing two globs, which is the product of their numbers of parts. If two globs exceed the limit,
/// the result of the call is undefined.
const MAX_PAIRS: usize = 1 << 20;

struct GlobPart {
    ranges: Vec<(char, char)>,
    is_repeated: bool,
}

impl GlobPart {
    fn overlaps(&self, other: &Self) -> bool {
        self.ranges.iter().any(|(from, to)| {
            let mut other_ranges = other.ranges.iter();
            other_ranges.any(|(other_from, other_to)| from <= other_to && other_from <= to)
        })
    }
}

/// Returns whether any text matches both globs; `None` if one of them is invalid, or if they are too long to compare.
pub(crate) fn have_common_text(one: &str, other: &str) -> Option<bool> {
    let (one, other) = (parse_parts(one)?, parse_parts(other)?);
    if one.len().saturating_mul(other.len()) > MAX_PAIRS {
        return None;
    }
    // The states that were reached. A state consists of the position in each of the two globs, and whether the text has
    // any characters yet.
    let mut reached = BTreeSet::from([(0, 0, false)]);
    let mut open = vec![(0, 0, false)];
    while let Some((at, other_at, has_text)) = open.pop() {
        let (part, other_part) = (one.get(at), other.get(other_at));
        let next = |part: &GlobPart, at: usize| if part.is_repeated { at } else { at + 1 };
        let advanced_state = match (part, other_part) {
            (Some(part), Some(other)) if part.overlaps(other) => Some((next(part, at), next(other, other_at), true)),
            _ => None,
        };
        let skipped_state = part
            .filter(|part| part.is_repeated)
            .map(|_| (at + 1, other_at, has_text));
        let other_skipped_state = other_part
            .filter(|part| part.is_repeated)
            .map(|_| (at, other_at + 1, has_text));
        for state in [advanced_state, skipped_state, other_skipped_state]
            .into_iter()
            .flatten()
        {
            if reached.insert(state) {
                open.push(state);
            }
        }
    }
    Some(reached.contains(&(one.len(), other.len(), true)))
}

/// Returns the parts of a glob. For a `+`, there are two parts: one that matches once, and one that is repeated.
fn parse_parts(glob: &str) -> Option<Vec<GlobPart>> {
    let mut parts = Vec::new();
    let mut rest = glob.chars().peekable();
    while let Some(character) = rest.next() {
        let ranges = match character {
            '.' => vec![('\0', char::MAX)],
            '[' => parse_set(&mut rest)?,
            '\\' => {
                let escaped = rest.next()?;
                vec![(escaped, escaped)]
            }
            ']' | '*' | '+' => return None,
            character => vec![(character, character)],
        };
        let repetition = rest.next_if(|next| matches!(next, '*' | '+'));
        if repetition == Some('+') {
            parts.push(GlobPart {
                ranges: ranges.clone(),
                is_repeated: false,
            });
        }
        parts.push(GlobPart {
            ranges,
            is_repeated: repetition.is_some(),
        });
    }
    Some(parts)
}

fn parse_set(rest: &mut Peekable<Chars<'_>>) -> Option<Vec<(char, char)>> {
    let mut ranges: Vec<(char, char)> = Vec::new();
    // Whether the last item may begin a range, such as the `a` in `[a-z]`.
    let mut can_begin = false;
    loop {
        match rest.next()? {
            ']' => return Some(ranges),
            '-' => {
                let (from, _) = ranges.pop().filter(|_| can_begin)?;
                let to = match rest.next()? {
                    '\\' => rest.next()?,
                    ']' | '-' => return None,
                    to => to,
                };
                ranges.push((from, (from <= to).then_some(to)?));
                can_begin = false;
            }
            character => {
                let character = if character == '\\' { rest.next()? } else { character };
                ranges.push((character, character));
                can_begin = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases are from OPA's documentation, and from the library `gintersect`, which OPA uses.
    #[test]
    fn globs_intersect_if_the_same_text_matches_both() {
        for (one, others, expected) in [
            ("abcd", &["abcd", "....", "[a-d]*"][..], Some(true)),
            ("pqrs", &[".qrs", "p.rs", "pq.s", "pqr."], Some(true)),
            (".*", &["asdklfj", "a", r"\*"], Some(true)),
            ("d*", &["[abcd][abcd]", "d[a-z]+", ".....", "[d]*"], Some(true)),
            ("[a-p]+", &["[p-z]+", "apapapaapapapap", ".*", "abcdefgh*"], Some(true)),
            (
                "abcd[a-c]z+",
                &["abcd[b-d][yz]*", "abcdazzzz", "abcdbzzz", "abcdcz"],
                Some(true),
            ),
            (r".*\\", &[".*"], Some(true)),
            (".a.a", &["b.b.", "c.c.", "d.d."], Some(true)),
            ("a.a.[0-9]+z", &["b.b.b", "a.a.[0-9]*z", "a.a.5z", r"[a-z]*\..*"], None),
            ("abcd", &["lsdfhda", "abcdla", "asdlfk", "ksdfj"], Some(false)),
            ("[a-d]+", &["xyz", "p+", "[e-f]+"], Some(false)),
            ("[0-9]*", &["[a-z]", r"\*"], Some(false)),
            ("mamama.*", &["dadada.*", "nanana.*"], Some(false)),
            (".*mamama", &[".*dadada", ".*nanana"], Some(false)),
            (".xyz.", &["paaap", ".*pqr.*"], Some(false)),
            ("a*", &["b*", ""], Some(false)),
        ] {
            for other in others {
                let result = have_common_text(one, other);
                assert_eq!(have_common_text(other, one), result, "{one} {other}");
                if expected.is_some() {
                    assert_eq!(result, expected, "{one} {other}");
                }
            }
        }
        for wrong in ["*", "+a", "a**", "]", "[a", "[-a]", "[b-a]", "[a-]", "[a-b-c]", r"a\"] {
            assert_eq!(have_common_text(wrong, "a"), None, "{wrong}");
            assert_eq!(have_common_text("a", wrong), None, "{wrong}");
        }
        let long = "a*".repeat(2000);
        assert_eq!(have_common_text(&long, &long), None);
    }
}
