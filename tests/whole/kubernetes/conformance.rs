//! Checks that Admittance, which calls webhooks in place of the API server, behaves as kube-apiserver's own tests of
//! webhooks demand. The module `list` lists the cases of these tests, and says for each whether Admittance behaves like
//! kube-apiserver. The other modules test Admittance's behaviour in these cases.
//!
//! Two groups of cases are tested elsewhere: the language of `matchConditions` in `host/conditions/src/tests.rs`, and
//! the validation of configurations in `host/definitions/src/forms/kubernetes/tests.rs`.
//!
//! `cargo test -p admittance-tests --test whole conformance_list -- --nocapture` prints the list.

mod answers;
mod calls;
mod conditions;
mod dispatch;
mod list;
mod reinvocation;
mod verdicts;

use std::{collections::BTreeMap, fs};

use admittance_tests::repository;

use self::list::{CONFORMANCE_ROWS, RowStatus};

/// Checks that a test has run all cases of a group of the list, except those that are tested elsewhere.
fn assert_rows<'a>(group: &str, rows: impl IntoIterator<Item = &'a str>) {
    let mut tested_rows: Vec<_> = rows.into_iter().collect();
    tested_rows.sort_unstable();
    tested_rows.dedup();
    let is_ours = |standing: &RowStatus| matches!(standing, RowStatus::Met | RowStatus::Differs(_));
    let in_group = CONFORMANCE_ROWS
        .iter()
        .filter(|(row, _, standing)| self::group_of(row) == group && is_ours(standing));
    let mut expected: Vec<_> = in_group.map(|(row, ..)| *row).collect();
    expected.sort_unstable();
    assert_eq!(tested_rows, expected, "the rows of {group} that a test here must hold");
}

fn group_of(row: &str) -> &str {
    row.split_once('.').unwrap().0
}

#[test]
fn every_row_of_the_conformance_list_is_tested() {
    let mut groups: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
    for (index, (row, description, standing)) in CONFORMANCE_ROWS.iter().enumerate() {
        let number: usize = group_of(row)[1..].parse().unwrap();
        let counts = groups.entry(number).or_default();
        let expected = format!("C{number}.{}", counts.iter().sum::<usize>() + 1);
        assert_eq!(*row, expected, "row {index}: they are numbered without a gap");
        let word = match standing {
            RowStatus::Met => "met".to_owned(),
            RowStatus::MetIn(file) => {
                let text = fs::read_to_string(repository().join(file)).unwrap();
                assert!(text.contains(&format!("\"{row}\"")), "{file} has no case {row}");
                format!("met, in {file}")
            }
            RowStatus::MetBy(file, test) => {
                let text = fs::read_to_string(repository().join(file)).unwrap();
                assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
                format!("met, by {test} in {file}")
            }
            RowStatus::Differs(why) => format!("differs: {why}"),
            RowStatus::Outside(why) => format!("outside: {why}"),
        };
        println!("{row:7} {description}: {word}");
        let column = match standing {
            RowStatus::Met | RowStatus::MetIn(_) | RowStatus::MetBy(..) => 0,
            RowStatus::Differs(_) => 1,
            RowStatus::Outside(_) => 2,
        };
        counts[column] += 1;
    }
    let mut total = [0; 3];
    println!("group  met  differs  outside");
    for (number, counts) in &groups {
        let [met, differs, outside] = counts;
        println!("C{number:<5} {met:3}  {differs:7}  {outside:7}");
        for (sum, count) in total.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    println!("all    {:3}  {:7}  {:7}", total[0], total[1], total[2]);
    assert_eq!(total, [172, 13, 9], "met, differing, outside");
}
