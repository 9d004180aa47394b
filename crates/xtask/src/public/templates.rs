//! Issue templates and pre-commit hooks are read by tools that ignore or refuse a whole file for one slip.

use std::collections::BTreeSet;

use super::{accepts, get, read, text, yaml, yaml_files};

const ISSUES: &str = ".github/ISSUE_TEMPLATE";
const TYPES: [&str; 5] = ["markdown", "textarea", "input", "dropdown", "checkboxes"];

/// The templates without the file that configures the page they are offered on.
fn templates() -> Vec<String> {
    let mut paths = yaml_files(ISSUES);
    paths.retain(|path| !path.ends_with("/config.yml"));
    paths
}

#[test]
fn there_is_a_template_for_bugs_features_and_questions() {
    let expected = ["bug.yml", "feature.yml", "question.yml"].map(|name| format!("{ISSUES}/{name}"));
    assert_eq!(templates(), expected);
}

#[test]
fn every_issue_template_has_what_a_form_needs() {
    for path in templates() {
        let form = yaml(&path);
        for key in ["name", "description", "title"] {
            assert!(
                text(&form, key).is_some_and(|value| !value.is_empty()),
                "{path}: no {key}"
            );
        }
        let body = get(&form, "body").and_then(|body| body.as_sequence());
        let body = body.unwrap_or_else(|| panic!("{path}: no body"));
        let mut ids = BTreeSet::new();
        let mut required = 0;
        for field in body {
            let kind = text(field, "type").unwrap_or_default();
            assert!(TYPES.contains(&kind), "{path}: a field of type `{kind}`");
            let attributes = get(field, "attributes").unwrap_or_else(|| panic!("{path}: a {kind} without attributes"));
            if kind == "markdown" {
                assert!(text(attributes, "value").is_some(), "{path}: a text without its value");
                continue;
            }
            let id = text(field, "id").unwrap_or_default();
            assert!(!id.is_empty() && ids.insert(id.to_owned()), "{path}: the id `{id}`");
            assert!(text(attributes, "label").is_some(), "{path}: {id} has no label");
            let must = get(field, "validations").and_then(|checks| get(checks, "required"));
            required += usize::from(must.and_then(|must| must.as_bool()) == Some(true));
        }
        assert!(required > 0, "{path} requires nothing");
    }
}

#[test]
fn a_security_problem_is_sent_where_the_security_page_sends_it() {
    let config = yaml(&format!("{ISSUES}/config.yml"));
    let links = get(&config, "contact_links").and_then(|links| links.as_sequence());
    let links = links.expect("there are contact links");
    let url = text(&links[0], "url").unwrap_or_default();
    assert!(url.ends_with("/security/advisories/new"), "{url}");
    assert!(read("SECURITY.md").contains(&format!("<{url}>")), "{url}");
}

#[test]
fn the_pull_request_template_names_commands_that_exist() {
    let page = read(".github/PULL_REQUEST_TEMPLATE.md");
    let commands: Vec<&str> = page.split('`').filter(|part| part.starts_with("cargo ")).collect();
    assert!(!commands.is_empty());
    for command in commands {
        assert_eq!(accepts(command), Ok(()));
    }
}

#[test]
fn every_pre_commit_hook_is_an_xtask_command_that_exists() {
    let config = yaml(".pre-commit-config.yaml");
    let repos = get(&config, "repos").and_then(|repos| repos.as_sequence());
    let mut seen = 0;
    for repo in repos.expect("there are hooks") {
        // Anything else would download and run somebody's code on each commit.
        assert_eq!(text(repo, "repo"), Some("local"));
        for hook in get(repo, "hooks").and_then(|hooks| hooks.as_sequence()).expect("hooks") {
            seen += 1;
            for key in ["id", "name"] {
                assert!(text(hook, key).is_some(), "a hook has no {key}");
            }
            assert_eq!(text(hook, "language"), Some("system"));
            let entry = text(hook, "entry").unwrap_or_default();
            assert_eq!(accepts(entry), Ok(()));
            // A command of the whole workspace takes no file names.
            let names = get(hook, "pass_filenames").and_then(|pass| pass.as_bool());
            assert_eq!(names, Some(false), "{entry}");
        }
    }
    assert!(seen > 0);
}
