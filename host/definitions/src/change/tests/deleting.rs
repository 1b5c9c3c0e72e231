use super::{chain, chain_line, set_of_files, summary};
use crate::DefinitionId;

fn id(text: &str) -> DefinitionId {
    text.parse().unwrap()
}

#[test]
fn a_file_is_deleted_with_its_only_definition() {
    let [a, b] = ["a", "b"].map(chain);
    let both = set_of_files(&[("a.yaml", &a), ("b.yaml", &format!("# B.\n---\n{b}# End.\n"))]);
    let change = both.delete(&id("AdmissionChain/b")).unwrap();
    assert_eq!(summary(&change), "AdmissionChain/b Deleted; -b.yaml");
    let change = change.set.delete(&id("admissionchain/a")).unwrap();
    assert_eq!(summary(&change), "AdmissionChain/a Deleted; -a.yaml");
    assert_eq!(change.set.files(), []);
}

#[test]
fn a_refused_deletion_says_why() {
    let list = format!("apiVersion: v1\nkind: List\nitems: [ {} ]\n", chain_line("listed"));
    let validating = chain_line("twice").replace("spec: {", "spec: { phase: Validating,");
    let file_text = [chain("pods"), list, chain_line("twice"), validating].join("\n---\n");
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
            "AdmissionChain/pods",
            "AdmissionChain/pods is one of several documents in its file, at f.yaml:1:1; edit that file",
        ),
        (
            "AdmissionChain/twice",
            "there are several of the name AdmissionChain/twice: f.yaml:20:1 or f.yaml:22:1; edit the file",
        ),
    ];
    for (name, expected) in table {
        let error = set_of_files(&[("f.yaml", &file_text)])
            .delete(&id(name))
            .unwrap_err()
            .to_string();
        assert_eq!(error, expected);
    }
    let wrong = chain("wrong").replace("CREATE", "CREAT");
    let set = set_of_files(&[("a.yaml", &chain("a")), ("w.yaml", &wrong)]);
    let error = set.delete(&id("AdmissionChain/a")).unwrap_err().to_string();
    assert!(error.starts_with("w.yaml:7:20: "), "{error}");
    assert_eq!(
        summary(&set.delete(&id("AdmissionChain/wrong")).unwrap()),
        "AdmissionChain/wrong Deleted; -w.yaml"
    );
}
