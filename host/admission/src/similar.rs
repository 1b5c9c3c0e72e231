//! Suggestions for misspelt names.

use std::fmt::Display;

use crate::enumerated;

/// Returns the names that are similar to the text, the most similar one first. Case is ignored.
pub fn find_similar<T: Display>(text: &str, names: impl IntoIterator<Item = T>) -> Vec<T> {
    let text = text.to_lowercase();
    // Names such as `pods/images` and `pods/limits` have the group `pods`. If the text also begins with `pods/`, only
    // the parts after the slash are compared.
    let (group, _) = text.rsplit_once('/').unwrap_or_default();
    let candidates = names.into_iter().filter_map(|name| {
        let lowercase = name.to_string().to_lowercase();
        let is_of_group = lowercase.rsplit_once('/').is_some_and(|(other, _)| other == group);
        let prefix_length = if is_of_group { group.chars().count() } else { 0 };
        let length = text.chars().count() - prefix_length;
        let other_length = lowercase.chars().count() - prefix_length;
        // One difference is always allowed between names of the same group. Otherwise `x/a` and `x/b` would not be
        // similar: only the letters after the group count, here one, and two fifths of 1 are rounded down to 0.
        let max_distance = (2 * length.max(other_length) / 5).max(usize::from(is_of_group));
        // The edit distance of two texts is at least the difference of their lengths. So if the lengths differ by too
        // much, the distance need not be computed.
        if length.abs_diff(other_length) > max_distance {
            return None;
        }
        let distance = strsim::osa_distance(&text, &lowercase);
        (distance <= max_distance).then_some((distance, lowercase, name))
    });
    let mut nearest: Vec<(usize, String, T)> = candidates.collect();
    nearest.sort_by(|(a, one, _), (b, other, _)| (a, one).cmp(&(b, other)));
    // Names that begin with the same long prefix may all be similar to the text. So only the nearest ones are kept: a
    // name is dropped if its distance is more than twice the distance of the nearest name.
    let best = nearest.first().map_or(0, |(distance, ..)| *distance);
    nearest.retain(|(distance, ..)| *distance <= 2 * best);
    nearest.into_iter().map(|(_, _, name)| name).collect()
}

/// Returns a suggestion with at most three names: `did you mean a or b?`. `None` if no name is similar.
pub fn suggestion<T: Display>(text: &str, names: impl IntoIterator<Item = T>) -> Option<String> {
    let similar_names = find_similar(text, names).into_iter().map(|name| name.to_string());
    let mut unique_names: Vec<String> = similar_names.collect();
    unique_names.dedup();
    unique_names.truncate(3);
    (!unique_names.is_empty()).then(|| format!("did you mean {}?", enumerated(unique_names, "or")))
}

/// Returns the [`suggestion`], or `fallback` if no name is similar.
pub fn suggestion_or<T: Display>(text: &str, names: impl IntoIterator<Item = T>, fallback: &str) -> String {
    suggestion(text, names).unwrap_or_else(|| fallback.to_owned())
}

/// Returns `; ` and the [`suggestion`], to append to a message; empty if no name is similar.
pub fn did_you_mean<T: Display>(text: &str, names: impl IntoIterator<Item = T>) -> String {
    suggestion(text, names).map_or_else(String::new, |text| format!("; {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_names_are_suggested() {
        let names = ["images", "image-tags", "Limits", "limit", "labels", "Kind/limit"];
        for (text, expected) in [
            ("imagse", "; did you mean images?"),
            ("LIMITS", "; did you mean Limits?"),
            ("limita", "; did you mean limit or Limits?"),
            ("quota", ""),
            ("", ""),
            ("Kind/limits", "; did you mean Kind/limit?"),
            ("Kind/quotas", ""),
        ] {
            assert_eq!(did_you_mean(text, names), expected, "{text}");
        }
        assert_eq!(
            suggestion("ab-5", ["ab-1", "ab-2", "ab-2", "ab-3", "ab-4"]),
            Some("did you mean ab-1, ab-2 or ab-3?".to_owned())
        );
    }
}
