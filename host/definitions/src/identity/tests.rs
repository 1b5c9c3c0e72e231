use super::*;

#[test]
fn a_definition_id_is_parsed_and_written() {
    for (text, kind, name) in [
        ("AdmissionChain/pods", "AdmissionChain", "pods"),
        ("admissionwebhook/ns/name", "admissionwebhook", "ns/name"),
    ] {
        let id: DefinitionId = text.parse().unwrap();
        assert_eq!((id.kind.as_str(), id.name.as_str()), (kind, name));
        assert_eq!(id.to_string(), text);
    }
    for text in ["", "pods", "/pods", "AdmissionChain/"] {
        let error = text.parse::<DefinitionId>().unwrap_err();
        assert_eq!(error, InvalidId::Definition(text.to_owned()));
    }
}

#[test]
fn a_chain_id_is_parsed_and_written() {
    for (text, phase, name) in [
        ("Mutating:pods", Phase::Mutating, "pods"),
        ("Validating:ns/a:b", Phase::Validating, "ns/a:b"),
    ] {
        let id: ChainId = text.parse().unwrap();
        assert_eq!((id.phase, id.name.as_str()), (phase, name));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("{text:?}"));
        assert_eq!(serde_json::from_str::<ChainId>(&json).unwrap(), id);
    }
    for text in ["", "pods", "Mutating", "Mutating:", "Other:pods"] {
        assert_eq!(text.parse::<ChainId>(), Err(InvalidId::Chain(text.to_owned())));
    }
}

#[test]
fn a_stage_id_is_parsed_and_written() {
    for (text, phase, chain, stage) in [
        ("pods/images", None, "pods", "images"),
        ("Mutating:pods/images", Some(Phase::Mutating), "pods", "images"),
        ("Validating:ns/name/a", Some(Phase::Validating), "ns/name", "a"),
        ("Other:pods/images", None, "Other:pods", "images"),
    ] {
        let id: StageId = text.parse().unwrap();
        let parts = (id.phase, id.chain.as_str(), id.stage.as_str());
        assert_eq!(parts, (phase, chain, stage));
        assert_eq!(id.to_string(), text);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<StageId>(&json).unwrap(), id);
    }
    for text in ["", "pods", "/images", "pods/", "Mutating:pods"] {
        assert_eq!(text.parse::<StageId>(), Err(InvalidId::Stage(text.to_owned())));
    }
    // The names of a chain and of a stage may contain `/`, so the text of an ID may have several meanings. This ID is
    // found to identify the stage `a/b` of the chain `ns/name`, however its text was split.
    let id: StageId = "ns/name/a/b".parse().unwrap();
    assert!(id.identifies(Phase::Mutating, "ns/name", "a/b"));
    assert!(!id.identifies(Phase::Mutating, "ns/name", "a"));
    let id: StageId = "Validating:pods/a".parse().unwrap();
    assert!(!id.identifies(Phase::Mutating, "pods", "a"));
}
