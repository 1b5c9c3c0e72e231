use super::*;
use crate::{format, source};

fn prepare_engine(texts: &[&str]) -> Option<(Engine, RememberedFunctions)> {
    let texts: Vec<ModuleText> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| (format!("{index}.rego"), (*text).to_owned()))
        .collect();
    let mut engine = source::new_engine(true);
    for (path, text) in texts.clone() {
        engine.add_policy(path, text).expect("the module is right");
    }
    let modules = engine.get_modules().clone();
    remembering_engine(&modules, &texts, "data.a.v", || Ok(source::new_engine(true)))
}

fn evaluate(engine: &mut Engine, remembered: &RememberedFunctions, input: &str) -> String {
    let input = Value::from_json_str(input).expect("it is JSON");
    remembered.prepare_for_input(&input);
    engine.set_input(input);
    let value = engine.eval_rule("data.a.v".to_owned()).expect("it can be evaluated");
    format::value_text(&value)
}

fn result_count(remembered: &RememberedFunctions) -> usize {
    remembered.state.lock().expect("it is not poisoned").results.len()
}

const POLICY: &str = r#"package a
import data.lib.is_small as small
v[x] { x := input.list[_]; f(x) }
v[x] { x := input.list[_]; not f(x) ; small(x) }
v[x] { x := {"set": f({1, 2})} }
v[x] { x := f(input.list[_]) == false }
f(x) = y { y := g(x) } else = false { x == 3 }
g(1) = true { true }
g(x) = "two" { x == 2; h(x) }
g(x) = "set" { x == {1, 2} }
g(x) = y { y := input.more; x == 4 }
h(x) { x > 1 }
"#;
const LIB: &str = "package lib\nis_small(x) { x < limit } { x < 1 } { x < 0 }\nlimit = 9\n";

#[test]
fn cached_results_equal_the_results_of_the_functions() {
    let (mut engine, remembered) = prepare_engine(&[POLICY, LIB]).expect("it is worthwhile");
    for (input, expected, cached_count) in [
        (
            r#"{"list": [1, 2, 3, 4, 5, 1]}"#,
            r#"{false, true, 1, 2, 3, 4, 5, {"set": "set"}}"#,
            6,
        ),
        (r#"{"list": [4], "more": "m"}"#, r#"{false, 4, {"set": "set"}}"#, 2),
        (r#"{"list": [4], "more": false}"#, r#"{true, 4, {"set": "set"}}"#, 2),
        (r#"{"list": []}"#, r#"{{"set": "set"}}"#, 1),
    ] {
        let mut plain = source::new_engine(true);
        for (index, text) in [POLICY, LIB].into_iter().enumerate() {
            plain
                .add_policy(format!("{index}.rego"), text.to_owned())
                .expect("it is right");
        }
        plain.set_input(Value::from_json_str(input).expect("it is JSON"));
        let direct = plain.eval_rule("data.a.v".to_owned()).expect("it can be evaluated");
        assert_eq!(format::value_text(&direct), expected, "{input}");
        for _ in 0..2 {
            assert_eq!(evaluate(&mut engine, &remembered, input), expected, "{input}");
        }
        assert_eq!(result_count(&remembered), cached_count, "{input}");
    }
}

#[test]
fn impure_or_cheap_functions_are_not_cached() {
    for text in [
        POLICY.replace("small(x) }", "small(x) with input as {} }"),
        POLICY
            .replace("h(x) { x > 1 }", "h(x) { w[x] }\nw[x] { x := 2 }")
            .replace("small(x)", "true"),
        POLICY
            .replace("h(x) { x > 1 }", "h(x) { data.w[x] }")
            .replace("small(x)", "true"),
        "package a\nv[x] { x := f(1) }\nf(x) { x }\n".to_owned(),
    ] {
        assert!(prepare_engine(&[&text, LIB]).is_none(), "{text}");
    }
}

#[test]
fn an_error_in_a_function_names_its_line() {
    let text = "package a\nv { f(1) }\nf(x) = 1 { x }\nf(x) = 2 { x }\nf(x) = 3 { x }\n".to_owned()
        + &"w { f(2) }\n".repeat(3);
    let (mut engine, remembered) = prepare_engine(&[&text]).expect("it is worthwhile");
    remembered.prepare_for_input(&Value::new_object());
    engine.set_input(Value::new_object());
    let error = engine.eval_rule("data.a.v".to_owned()).expect_err("the results differ");
    let error = crate::policy::readable_message(&error.to_string());
    assert!(error.starts_with("line "), "{error}");
}
