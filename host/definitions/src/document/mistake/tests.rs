use super::*;

#[test]
fn only_the_first_100_mistakes_are_listed() {
    for (count, listed, last) in [
        (100, 100, "line 100"),
        (101, 101, "1 more mistakes from here on are not listed"),
        (20_000, 101, "19900 more mistakes from here on are not listed"),
    ] {
        let mut mistakes = Mistakes::new();
        for line in (1..=count).rev() {
            mistakes.push(Mistake {
                location: Location {
                    file: "chains.yaml".to_owned(),
                    line,
                    column: 1,
                },
                path: String::new(),
                message: format!("line {line}"),
                fix: String::new(),
            });
        }
        let mistakes = mistakes.into_result(()).unwrap_err();
        assert_eq!(mistakes.len(), listed);
        let last_mistake = mistakes.iter().next_back().unwrap();
        assert_eq!(last_mistake.message, last);
        assert_eq!(last_mistake.location.line, count.min(101));
    }
}
