//! The workflows run commands that exist, with few rights, and run all of them that matter.

use saphyr::YamlOwned;

use super::{accepts, get, read, text, yaml, yaml_files};

const FOLDER: &str = ".github/workflows";

/// What must run somewhere, as the beginning of a command line.
const WANTED: [&str; 7] = [
    "cargo xtask lint",
    "cargo xtask test",
    "cargo xtask test --long",
    "cargo xtask features",
    "cargo xtask docs",
    "cargo xtask coverage",
    "cargo xtask release --dry-run",
];

fn workflows() -> Vec<(String, YamlOwned)> {
    let paths = yaml_files(FOLDER);
    assert!(!paths.is_empty(), "{FOLDER} has no workflow");
    paths.into_iter().map(|path| (path.clone(), yaml(&path))).collect()
}

/// The jobs of a workflow, each with its name.
fn jobs(workflow: &YamlOwned) -> Vec<(String, &YamlOwned)> {
    let jobs = get(workflow, "jobs").and_then(|jobs| jobs.as_mapping());
    let jobs = jobs.expect("a workflow has jobs").iter();
    jobs.map(|(name, job)| (name.as_str().unwrap_or_default().to_owned(), job))
        .collect()
}

fn steps(job: &YamlOwned) -> Vec<&YamlOwned> {
    let steps = get(job, "steps").and_then(|steps| steps.as_sequence());
    steps.expect("a job has steps").iter().collect()
}

/// Every value under this key in any step of any workflow, with the file it is in.
fn values(key: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, workflow) in workflows() {
        for (_, job) in jobs(&workflow) {
            let values = steps(job).into_iter().filter_map(|step| text(step, key));
            found.extend(values.map(|value| (path.clone(), value.to_owned())));
        }
    }
    found
}

#[test]
fn every_run_line_of_a_workflow_is_an_xtask_command_that_exists() {
    let lines = values("run");
    assert!(lines.len() >= WANTED.len(), "{lines:?}");
    for (path, line) in lines {
        assert_eq!(accepts(&line), Ok(()), "{path}: {line}");
    }
}

#[test]
fn every_command_that_guards_the_project_runs_in_a_workflow() {
    let lines: Vec<String> = values("run").into_iter().map(|(_, line)| line).collect();
    for wanted in WANTED {
        let runs = |line: &String| *line == wanted || line.starts_with(&format!("{wanted} "));
        assert!(lines.iter().any(runs), "nothing runs `{wanted}`");
    }
}

#[test]
fn every_action_is_one_of_the_hosts_own() {
    let actions = values("uses");
    assert!(!actions.is_empty());
    for (path, action) in actions {
        assert!(action.starts_with("actions/"), "{path}: {action}");
        assert!(action.contains('@'), "{path}: {action} names no version");
    }
    for (path, workflow) in workflows() {
        for (name, job) in jobs(&workflow) {
            // A whole job can come from elsewhere too.
            assert!(get(job, "uses").is_none(), "{path}: {name} is another workflow");
        }
    }
}

#[test]
fn every_step_either_runs_a_command_or_uses_an_action() {
    for (path, workflow) in workflows() {
        for (name, job) in jobs(&workflow) {
            for step in steps(job) {
                let both = (text(step, "run").is_some(), text(step, "uses").is_some());
                assert!(both.0 != both.1, "{path}: a step of {name}");
            }
        }
    }
}

#[test]
fn every_workflow_may_read_the_code_and_nothing_else() {
    for (path, workflow) in workflows() {
        let permissions = get(&workflow, "permissions").and_then(|rights| rights.as_mapping());
        let permissions = permissions.unwrap_or_else(|| panic!("{path} sets no permissions"));
        let rights: Vec<_> = permissions.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(rights, [(Some("contents"), Some("read"))], "{path}");
        for (name, job) in jobs(&workflow) {
            assert!(
                get(job, "permissions").is_none(),
                "{path}: {name} sets its own permissions"
            );
        }
        assert!(!read(&path).contains("secrets."), "{path} reads a secret");
    }
}

#[test]
fn every_workflow_has_a_concurrency_group_and_every_job_a_time_limit() {
    for (path, workflow) in workflows() {
        let group = get(&workflow, "concurrency").and_then(|concurrency| text(concurrency, "group"));
        assert!(group.is_some(), "{path} has no concurrency group");
        for (name, job) in jobs(&workflow) {
            let minutes = get(job, "timeout-minutes").and_then(|minutes| minutes.as_integer());
            assert!(matches!(minutes, Some(1..=180)), "{path}: {name}: {minutes:?}");
        }
    }
}

/// The toolchain of a job: its own, or that of the workflow.
fn toolchain<'a>(workflow: &'a YamlOwned, job: &'a YamlOwned) -> Option<&'a str> {
    let of = |node: &'a YamlOwned| get(node, "env").and_then(|env| text(env, "RUSTUP_TOOLCHAIN"));
    of(job).or_else(|| of(workflow))
}

#[test]
fn the_tests_run_on_stable_and_on_the_oldest_rust_that_the_manifest_allows() {
    let manifest = read("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let oldest = line
        .expect("the workspace has a rust-version")
        .trim_matches('"')
        .to_owned();
    let mut tested = Vec::new();
    for (path, workflow) in workflows() {
        for (name, job) in jobs(&workflow) {
            let toolchain = toolchain(&workflow, job);
            let toolchain = toolchain.unwrap_or_else(|| panic!("{path}: {name} names no toolchain"));
            assert!(
                toolchain == "stable" || toolchain == oldest,
                "{path}: {name}: {toolchain}"
            );
            let is_test =
                |step: &&YamlOwned| text(step, "run").is_some_and(|line| line.starts_with("cargo xtask test"));
            if steps(job).iter().any(is_test) {
                tested.push(toolchain.to_owned());
            }
        }
    }
    assert!(tested.contains(&"stable".to_owned()), "{tested:?}");
    assert!(tested.contains(&oldest), "{tested:?}");
}

#[test]
fn coverage_cannot_fail_a_run() {
    let mut seen = 0;
    for (path, workflow) in workflows() {
        for (name, job) in jobs(&workflow) {
            let measures = |step: &&YamlOwned| text(step, "run").is_some_and(|line| line.contains("coverage"));
            if steps(job).iter().any(measures) {
                seen += 1;
                let allowed = get(job, "continue-on-error").and_then(|allowed| allowed.as_bool());
                assert_eq!(allowed, Some(true), "{path}: {name}");
            }
        }
    }
    assert!(seen > 0, "nothing measures coverage");
}
