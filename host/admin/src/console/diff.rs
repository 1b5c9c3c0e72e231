//! Shows two texts side by side.

use diffy::{DiffOptions, Hunk, Line, Patch};
use maud::{Markup, html};

const CONTEXT_LINES: usize = 3;

/// The largest total size, in bytes, of two texts that are compared.
const MAX_COMPARED_BYTES: usize = 1 << 20;
/// The largest product of the numbers of lines of two texts. If the product is larger, the texts are not compared.
const MAX_LINE_PAIRS: usize = 16_000_000;

/// The result is empty if the texts are equal, and `None` if they are too long to compare.
pub(super) fn side_by_side(titles: [&str; 2], before: &str, after: &str) -> Option<Markup> {
    if before.len() + after.len() > MAX_COMPARED_BYTES
        || before.lines().count() * after.lines().count() > MAX_LINE_PAIRS
    {
        return None;
    }
    let patch = DiffOptions::new()
        .set_context_len(CONTEXT_LINES)
        .create_patch(before, after);
    Some(diff_table(titles, &patch))
}

/// Shows a unified diff, each file with its old and new lines side by side. Text that is not a diff is shown unchanged.
pub(super) fn unified_diff(text: &str) -> Markup {
    html! {
        @for file in split_files(text) {
            @match Patch::from_str(file) {
                Ok(patch) => { (diff_table([patch.original(), patch.modified()].map(Option::unwrap_or_default), &patch)) }
                Err(_) => { pre { (file) } }
            }
        }
    }
}

fn split_files(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = text.match_indices("--- ").map(|(start, _)| start).collect();
    starts.retain(|start| {
        let (before, after) = text.split_at(*start);
        let mut lines = after.lines().skip(1);
        let is_name = |line: Option<&str>, sign| line.is_some_and(|line| line.starts_with(sign));
        (before.is_empty() || before.ends_with('\n')) && is_name(lines.next(), "+++ ") && is_name(lines.next(), "@@ ")
    });
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let files = starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end));
    files.collect()
}

fn diff_table(titles: [&str; 2], patch: &Patch<'_, str>) -> Markup {
    let groups: Vec<Vec<DiffRow<'_>>> = patch.hunks().iter().map(diff_rows).collect();
    html! {
        @if !groups.is_empty() {
            table.diff {
                colgroup { col.line; col; col.line; col; }
                thead { tr { th colspan="2" scope="col" { (titles[0]) } th colspan="2" scope="col" { (titles[1]) } } }
                @for (number, group) in groups.iter().enumerate() {
                    tbody {
                        @if number > 0 { tr.gap { td colspan="4" { "⋯" } } }
                        @for row in group { tr { (cell(row.before, "removed", row.is_same)) (cell(row.after, "added", row.is_same)) } }
                    }
                }
            }
        }
    }
}

struct DiffRow<'t> {
    before: Option<(usize, &'t str)>,
    after: Option<(usize, &'t str)>,
    is_same: bool,
}

/// Returns the rows of a hunk. An added line is next to the removed line that it replaces.
fn diff_rows<'t>(hunk: &Hunk<'t, str>) -> Vec<DiffRow<'t>> {
    let (mut old, mut new) = (hunk.old_range().start(), hunk.new_range().start());
    let mut rows: Vec<DiffRow<'t>> = Vec::new();
    // The first row that has a removed line but no added line yet.
    let mut free = 0;
    for line in hunk.lines() {
        let (Line::Context(text) | Line::Delete(text) | Line::Insert(text)) = line;
        let text = text.trim_end_matches('\n');
        let (before, after) = (Some((old, text)), Some((new, text)));
        match line {
            Line::Context(_) => {
                rows.push(DiffRow {
                    before,
                    after,
                    is_same: true,
                });
                free = rows.len();
            }
            Line::Delete(_) => rows.push(DiffRow {
                before,
                after: None,
                is_same: false,
            }),
            Line::Insert(_) => {
                match rows.get_mut(free) {
                    Some(row) => row.after = after,
                    None => rows.push(DiffRow {
                        before: None,
                        after,
                        is_same: false,
                    }),
                }
                free += 1;
            }
        }
        old += usize::from(!matches!(line, Line::Insert(_)));
        new += usize::from(!matches!(line, Line::Delete(_)));
    }
    rows
}

fn cell(line: Option<(usize, &str)>, change: &str, is_same: bool) -> Markup {
    html! {
        @match line {
            Some((number, text)) => {
                td.line { (number) }
                @if is_same { td { (text) } } @else { td.(change) { (text) } }
            }
            None => { td.line.none {} td.none {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_side_by_side() {
        let (before, after) = ("a\nb\nc\n", "a\nB\nc\nd\n");
        let html = side_by_side(["Before", "After"], before, after).unwrap().into_string();
        for part in [
            "<tr><td class=\"line\">1</td><td>a</td><td class=\"line\">1</td><td>a</td></tr>",
            "<tr><td class=\"line\">2</td><td class=\"removed\">b</td><td class=\"line\">2</td><td class=\"added\">B</td></tr>",
            "<tr><td class=\"line none\"></td><td class=\"none\"></td><td class=\"line\">4</td><td class=\"added\">d</td></tr>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(
            side_by_side(["Before", "After"], before, before).unwrap().into_string(),
            ""
        );
    }

    #[test]
    fn a_unified_diff_is_shown_file_by_file() {
        // The line `--- b` is not the header of a file: it says that the line `-- b` was removed.
        let text = "--- a.yaml\n+++ a.yaml\n@@ -1,2 +1,2 @@\n a\n--- b\n+++ c\n--- /dev/null\n+++ new.yaml\n@@ -0,0 +1 @@\n+d\n";
        let html = unified_diff(text).into_string();
        assert_eq!(html.matches("<table").count(), 2, "{html}");
        for part in ["removed\">-- b", "added\">++ c", "new.yaml</th>", "added\">d"] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(unified_diff("").into_string(), "");
    }

    #[test]
    fn lines_far_from_differences_are_left_out() {
        let lines: Vec<String> = (1..=40).map(|number| number.to_string()).collect();
        let before = lines.join("\n");
        let after = before.replace("\n5\n", "\nfive\n").replace("\n35\n", "\n<35>\n");
        let html = side_by_side(["Before", "After"], &before, &after)
            .unwrap()
            .into_string();
        assert_eq!(html.matches("class=\"gap\"").count(), 1);
        assert!(html.contains("&lt;35&gt;") && !html.contains("<td>20</td>"), "{html}");
    }

    #[test]
    fn texts_that_take_long_to_compare_are_not_compared() {
        let text = |line: &str, count| format!("{line}\n").repeat(count);
        for (before, after, is_compared) in [
            (text("a", 4000), text("b", 4000), true),
            (text("a", 4001), text("b", 4000), false),
            ("a".repeat(MAX_COMPARED_BYTES), "b".to_owned(), false),
        ] {
            let compared = side_by_side(["Before", "After"], &before, &after);
            assert_eq!(compared.is_some(), is_compared, "{} {}", before.len(), after.len());
        }
    }
}
