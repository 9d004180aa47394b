//! What a registry, docs.rs and `cargo binstall` read from the manifests.

use serde_json::Value;

use super::read;
use crate::workspace::cargo_output;

fn published() -> Vec<Value> {
    let text = cargo_output(&["metadata", "--no-deps", "--locked", "--format-version", "1"]).unwrap();
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    packages
        .into_iter()
        .filter(|package| package["publish"].is_null())
        .collect()
}

#[test]
fn every_published_crate_says_what_it_is_and_where_it_comes_from() {
    let packages = published();
    assert!(packages.len() >= 9);
    let mut descriptions = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let text = |key: &str| package[key].as_str().unwrap_or_else(|| panic!("{name} has no {key}"));
        assert_eq!(text("license"), "MIT OR Apache-2.0", "{name}");
        assert_eq!(text("readme"), "README.md", "{name}");
        assert!(text("repository").starts_with("https://"), "{name}");
        assert_eq!(package["rust_version"], packages[0]["rust_version"], "{name}");
        let description = text("description").to_owned();
        assert!(
            !descriptions.contains(&description),
            "{name} has the description of another crate"
        );
        descriptions.push(description);
        let readme = read(&format!("crates/{name}/README.md"));
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}");
        assert!(readme.contains("cargo run "), "the README of {name} has nothing to run");
    }
}

#[test]
fn every_published_crate_carries_both_licences_in_full() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
            // A package has no other folder, so a path to the file at the root would lead nowhere.
            assert_eq!(read(&format!("crates/{name}/{file}")), read(file), "{name}: {file}");
        }
    }
}

/// The features that users may turn on. A name that begins with underscores is private.
fn public_features(package: &Value) -> Vec<String> {
    let names = package["features"].as_object().unwrap().keys();
    names
        .filter(|name| *name != "default" && !name.starts_with("__"))
        .cloned()
        .collect()
}

#[test]
fn the_readme_of_a_crate_names_every_public_feature_and_no_private_one() {
    let mut seen = 0;
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let readme = read(&format!("crates/{name}/README.md"));
        assert!(!readme.contains("`__"), "{name} names a private feature");
        let defaults = package["features"]["default"].as_array().cloned().unwrap_or_default();
        for feature in public_features(&package) {
            seen += 1;
            assert!(
                readme.contains(&format!("`{feature}`")),
                "{name} does not mention {feature}"
            );
            if readme.contains("| feature | default |") {
                let is_default = defaults.contains(&Value::from(feature.as_str()));
                let word = if is_default { "yes" } else { "no" };
                let row = format!("| `{feature}` | {word} |");
                assert!(readme.contains(&row), "{name} has no row {row}");
            }
        }
    }
    assert!(seen >= 8, "only {seen} features found");
}

#[test]
fn docs_rs_shows_every_public_feature_and_no_private_one() {
    let mut seen = 0;
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let targets = package["targets"].as_array().unwrap();
        let is_library = targets.iter().any(|target| target["kind"][0] == "lib");
        let expected = public_features(&package);
        if !is_library || expected.is_empty() {
            continue;
        }
        seen += 1;
        let docs = &package["metadata"]["docs"]["rs"];
        let has_private = package["features"]
            .as_object()
            .unwrap()
            .keys()
            .any(|name| name.starts_with("__"));
        if docs["all-features"] == true {
            assert!(!has_private, "{name} shows private features");
            continue;
        }
        let shown = docs["features"]
            .as_array()
            .unwrap_or_else(|| panic!("{name} shows no features"));
        let mut shown: Vec<String> = shown.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        shown.sort();
        assert_eq!(shown, expected, "{name}");
    }
    assert_eq!(seen, 3);
}

/// The crates that a user of these features of `rowlock` compiles, without the defaults.
fn compiled_with(features: &str) -> Vec<String> {
    let only = ["--package", "rowlock", "--no-default-features", "--features", features];
    let shown = ["--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let tree = cargo_output(&[&["tree", "--locked"], &only[..], &shown[..]].concat()).unwrap();
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    tree.lines().map(name).collect()
}

#[test]
fn who_chooses_one_database_compiles_neither_the_other_nor_tls() {
    let heavy = ["libsqlite3-sys", "sqlx-sqlite", "sqlx-postgres", "rustls"];
    for (features, expected) in [
        ("postgres", &["sqlx-postgres"][..]),
        ("sqlite", &["libsqlite3-sys", "sqlx-sqlite"]),
        ("postgres,tls", &["sqlx-postgres", "rustls"]),
    ] {
        let compiled = compiled_with(features);
        let mut found = heavy.to_vec();
        found.retain(|name| compiled.iter().any(|other| other == name));
        assert_eq!(found, expected, "with {features}");
    }
}

#[test]
fn the_library_depends_on_no_framework() {
    let compiled = compiled_with("postgres,sqlite,tls");
    assert!(compiled.iter().any(|name| name == "sqlx"), "{compiled:?}");
    for name in ["axum", "opentelemetry", "tracing-opentelemetry", "prometheus", "redis"] {
        assert!(!compiled.iter().any(|other| other == name), "rowlock depends on {name}");
    }
}

#[test]
fn binstall_looks_for_the_archives_that_releasing_makes() {
    let cli = published()
        .into_iter()
        .find(|package| package["name"] == "rowlock-cli")
        .unwrap();
    let binstall = &cli["metadata"]["binstall"];
    let url = binstall["pkg-url"].as_str().unwrap();
    let folder = binstall["bin-dir"].as_str().unwrap();
    let shell = |template: &str| {
        template
            .replace("{ version }", "$version")
            .replace("{ target }", "$target")
    };
    let file = shell(url.rsplit('/').next().unwrap());
    let name = file.strip_suffix("{ archive-suffix }").unwrap();
    assert_eq!(shell(folder), format!("{name}/{{ bin }}{{ binary-ext }}"));
    assert_eq!(binstall["pkg-fmt"], "tgz");
    let page = read("RELEASING.md");
    assert!(page.contains(&format!("\nname={name}\n")), "{name}");
    assert!(page.contains(&format!("`{name}.tgz`")), "{name}");
    assert!(
        url.contains("/releases/download/v{ version }/") && page.contains("`v$version`"),
        "{url}"
    );
}

#[test]
fn the_profile_that_releasing_builds_with_exists() {
    let page = read("RELEASING.md");
    let profile = page
        .split("--profile ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    let manifest = read("Cargo.toml");
    assert!(
        manifest.contains(&format!("\n[profile.{profile}]\n")),
        "no profile {profile}"
    );
}
