//! The expressions that combine the verdicts of a group's members.

use admittance_admission::Formula;

use crate::GroupExpression;

fn formula_text(formula: &Formula) -> String {
    let both = |sides: &[Formula; 2], sign| format!("({}{sign}{})", formula_text(&sides[0]), formula_text(&sides[1]));
    match formula {
        Formula::Constant(value) => value.to_string(),
        Formula::Member(index) => index.to_string(),
        Formula::Not(operand) => format!("!{}", formula_text(operand)),
        Formula::And(sides) => both(sides, "&"),
        Formula::Or(sides) => both(sides, "|"),
        Formula::Equal(sides) => both(sides, "="),
    }
}

#[test]
fn a_group_expression_supports_the_operators_and_or_and_not() {
    for (text, expected) in [
        ("a()", "0"),
        (" a() || b() && !c()\n", "(0|(1&!2))"),
        ("(a() || b()) && c()", "((0|1)&2)"),
        ("a() == b()", "(0=1)"),
        ("a() != (b() || true)", "!(0=(1|true))"),
        ("!(a() && a())", "!(0&0)"),
    ] {
        let compiled = GroupExpression::compile(text, &["a", "b", "c"]).unwrap();
        assert_eq!(formula_text(compiled.formula()), expected, "{text}");
        assert_eq!(compiled.text(), text);
    }
    let compiled = GroupExpression::compile("a() || !c()", &["a", "b", "c"]).unwrap();
    let uses = [0, 1, 2].map(|member| compiled.formula().uses(member));
    assert_eq!(uses, [true, false, true]);
}

#[test]
fn invalid_expressions_of_groups_are_refused() {
    let boolean = "an expression of a group is boolean";
    for (text, says) in [
        ("", "is empty"),
        ("a() &&", "ends too early"),
        (
            "a() || d()",
            "line 1, column 9: there is no `d` in the group; there is `a()`, `b()`",
        ),
        ("a() ||\n b", "write `b()`"),
        ("a", "write `a()`"),
        ("d", "there is no `d`"),
        ("a(1)", "`a` takes no arguments"),
        ("a() + b()", boolean),
        ("1", boolean),
        ("'text'", boolean),
        ("a() ? b() : a()", boolean),
        ("a().b()", boolean),
        ("[a()]", boolean),
        ("object.spec", boolean),
        ("size(a())", "there is no `size`"),
    ] {
        let error = GroupExpression::compile(text, &["a", "b"]).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let deep = format!("{}a(){}", "!(a() && ".repeat(80), ")".repeat(80));
    let error = GroupExpression::compile(&deep, &["a"]).unwrap_err().to_string();
    assert!(error.contains("levels deep"), "{error}");
    let long = ["a()"; 60].join(" && ");
    GroupExpression::compile(&long, &["a"]).unwrap();
}
