//! The example of the docs page: the page shows its code, and it runs on every emulator.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let page = std::fs::read_to_string(root().join("docs/sqs.md")).unwrap();
    let code = std::fs::read_to_string(root().join("crates/rowlock-sqs/examples/sqs.rs")).unwrap();
    let code = code.split_once("\n\n").unwrap().1;
    assert!(
        page.contains(&format!("```rust\n{code}```")),
        "docs/sqs.md shows other code"
    );
}

#[test]
fn the_example_runs_on_every_emulator() {
    for emulator in proof_sqs::emulators() {
        let mut run = match std::env::var_os("ROWLOCK_TEST_EXAMPLES") {
            Some(built) => Command::new(PathBuf::from(built).join("sqs")),
            None => {
                let mut cargo = Command::new(env!("CARGO"));
                cargo.args([
                    "run",
                    "--quiet",
                    "--locked",
                    "--package",
                    "rowlock-sqs",
                    "--example",
                    "sqs",
                ]);
                cargo
            }
        };
        run.current_dir(root()).env("AWS_ENDPOINT_URL", &emulator.url);
        for (name, value) in [
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ] {
            run.env(name, value);
        }
        let ended = run.output().unwrap();
        let out = String::from_utf8_lossy(&ended.stdout);
        let err = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            out, "hello, world\ntriggered 1, deleted 1\n",
            "{}: {err}",
            emulator.label
        );
    }
}
