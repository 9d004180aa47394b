//! `rowlock bridge` without the feature `sqs`: the command is there, and says how to get it.

use crate::common::rowlock;

#[test]
fn a_binary_without_the_feature_names_it_and_the_command_that_brings_it() {
    for args in [
        &["bridge"][..],
        &["bridge", "sqs"],
        &["bridge", "sqs", "--queue-url", "http://127.0.0.1:1/1/orders", "--json"],
    ] {
        let said = rowlock(args);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{args:?}");
        assert_eq!(
            said.err,
            "error: this binary was built without the feature `sqs`, so it has no `bridge sqs`\n\
             try:   cargo install --path crates/rowlock-cli --features sqs   installs one that has it; \
             from the source: cargo run --features sqs -- bridge sqs …\n"
        );
    }
    let help = rowlock(&["--help"]).out;
    assert!(help.contains("\n  bridge "), "{help}");
    assert!(rowlock(&["bridge", "--help"]).out.contains("feature `sqs`"));
}
