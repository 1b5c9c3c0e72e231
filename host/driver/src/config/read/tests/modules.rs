use super::{MINIMAL, read};

#[test]
fn mistakes_in_the_modules_section_are_reported() {
    for (text, expected) in [
        (
            "cache: { directory: cache }",
            "cache: compiled plugins are kept in the store, with the modules they are of",
        ),
        ("store: cache", "store: a string where an object is expected"),
        ("store: { sizeLimit: 1KiB }", "store.sizeLimit: 1KiB is out of range"),
        ("history: { keep: 0 }", "history.keep: 0 is out of range"),
        ("modules: { ca: missing.pem }", "modules.ca: "),
        (
            "modules: { proxy: \"proxy:3128\" }",
            "modules.proxy: \"proxy:3128\" is not a valid proxy",
        ),
        (
            "modules: { proxy: \"socks5://proxy\" }",
            "modules.proxy: \"socks5://proxy\" is not a valid proxy",
        ),
        (
            "modules: { insecureRegistries: [\"http://registry\"] }",
            "modules.insecureRegistries[0]: \"http://registry\" is not a valid registry",
        ),
        (
            "modules: { insecureRegistries: [\"registry/repository\"] }",
            "modules.insecureRegistries[0]: \"registry/repository\" is not a valid registry",
        ),
        (
            "modules: { sizeLimit: 2GiB }",
            "modules.sizeLimit: 2GiB is out of range",
        ),
        ("modules: { timeout: 0s }", "modules.timeout: 0s is out of range"),
        ("modules: { attempts: 0 }", "modules.attempts: 0 is out of range"),
    ] {
        let mistakes = read(&format!("{MINIMAL}{text}")).unwrap_err();
        assert!(
            matches!(mistakes.as_slice(), [mistake] if mistake.starts_with(expected)),
            "{text}: {mistakes:?}"
        );
    }
}
