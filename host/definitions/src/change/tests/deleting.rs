use super::{chain, line, set, text, told};
use crate::DefinitionId;

fn id(text: &str) -> DefinitionId {
    text.parse().unwrap()
}

#[test]
fn what_is_around_a_document_stays() {
    let [a, b] = ["a", "b"].map(chain);
    // The file, and what is left of it without `b`.
    let table = [
        ("{a}---\n{b}", "{a}"),
        ("{b}---\n{a}", "{a}"),
        ("---\n{b}---\n{a}", "---\n{a}"),
        ("---\n{a}---\n{b}", "---\n{a}"),
        (
            "# All.\n\n# B.\n{b}# About a.\n---\n{a}",
            "# All.\n\n# About a.\n{a}",
        ),
        (
            "{a}# About b.\n---\n# B.\n{b}\n# End.\n",
            "{a}# About b.\n\n# End.\n",
        ),
        ("{a}---\n{b}---\n{c}", "{a}---\n{c}"),
        ("{a}--- # B.\n{b}...\n", "{a}...\n"),
        ("--- {l}\n---\n{a}", "---\n{a}"),
        ("{b}--- {m}\n", "{m}\n"),
        ("{b}--- # A.\n{a}", "{a}"),
        ("---\n# Nothing.\n---\n{b}---\n{a}", "---\n# Nothing.\n---\n{a}"),
    ];
    for (old, new) in table {
        let filled = |text: &str| {
            text.replace("{a}", &a)
                .replace("{b}", &b)
                .replace("{c}", &chain("c"))
                .replace("{l}", &line("b"))
                .replace("{m}", &line("a"))
        };
        for mark in ["", "\u{feff}"] {
            for end in ["\n", "\r\n"] {
                let filled = |text: &str| format!("{mark}{}", filled(text).replace('\n', end));
                let change = set(&[("f.yaml", &filled(old))]).delete(&id("AdmissionChain/b"));
                let change = change.unwrap_or_else(|error| panic!("{error}\n{old}"));
                assert_eq!(text(&change.set, "f.yaml"), Some(filled(new)), "{old}");
                assert_eq!(told(&change), "AdmissionChain/b Deleted; ~f.yaml");
            }
        }
    }
}

#[test]
fn a_file_goes_with_its_last_definition() {
    let [a, b] = ["a", "b"].map(chain);
    let both = set(&[("a.yaml", &a), ("b.yaml", &format!("# B.\n---\n{b}# End.\n"))]);
    let change = both.delete(&id("AdmissionChain/b")).unwrap();
    assert_eq!(told(&change), "AdmissionChain/b Deleted; -b.yaml");
    let change = change.set.delete(&id("admissionchain/a")).unwrap();
    assert_eq!(told(&change), "AdmissionChain/a Deleted; -a.yaml");
    assert_eq!(change.set.files(), []);
}

#[test]
fn why_a_definition_is_not_deleted() {
    let list = format!("apiVersion: v1\nkind: List\nitems: [ {} ]\n", line("listed"));
    let validating = line("twice").replace("spec: {", "spec: { phase: Validating,");
    let whole = [chain("pods"), list, line("twice"), validating].join("\n---\n");
    let table = [
        (
            "AdmissionChain/pod",
            "there is no AdmissionChain/pod; did you mean AdmissionChain/pods?",
        ),
        (
            "AdmissionChains/pods",
            "there is no AdmissionChains/pods; did you mean AdmissionChain/pods?",
        ),
        ("Pod/x", "there is no Pod/x"),
        (
            "AdmissionChain/listed",
            "AdmissionChain/listed is an item of the list in f.yaml:17:10; edit that file",
        ),
        (
            "AdmissionChain/twice",
            "there are several of the name AdmissionChain/twice: f.yaml:20:1 or f.yaml:22:1; edit the file",
        ),
    ];
    for (name, expected) in table {
        let error = set(&[("f.yaml", &whole)])
            .delete(&id(name))
            .unwrap_err()
            .to_string();
        let first = error.split(" or AdmissionChain").next().unwrap();
        assert_eq!(first.trim_end_matches('?'), expected.trim_end_matches('?'));
    }
    // What is wrong elsewhere keeps the whole from being right; what is wrong in it goes with it.
    let wrong = chain("wrong").replace("CREATE", "CREAT");
    let set = set(&[("a.yaml", &chain("a")), ("w.yaml", &wrong)]);
    let error = set.delete(&id("AdmissionChain/a")).unwrap_err().to_string();
    assert!(error.starts_with("w.yaml:7:20: "), "{error}");
    assert_eq!(
        told(&set.delete(&id("AdmissionChain/wrong")).unwrap()),
        "AdmissionChain/wrong Deleted; -w.yaml"
    );
}
