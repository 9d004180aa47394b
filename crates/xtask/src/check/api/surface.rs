//! The public items of a crate, one line for each, in the order of their paths.
//!
//! An item that is exported in two places is described under the shortest of its paths; the other path says `use`.
//! Hidden items are missing, because rustdoc leaves them out. Of the traits that the compiler implements by itself,
//! only `Send` and `Sync` are listed.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde_json::Value;

use super::types::{bounds, is, params, path, signature, ty, wheres};

/// Every line, sorted, each once.
pub(super) fn lines(json: &Value) -> Vec<String> {
    let mut surface = Surface {
        index: &json["index"],
        known: HashMap::new(),
        lines: BTreeSet::new(),
    };
    surface.walk(&json["root"]);
    surface.lines.into_iter().map(|(.., line)| line).collect()
}

struct Surface<'a> {
    index: &'a Value,
    /// Where an item is described, by its id.
    known: HashMap<u64, String>,
    /// By path, and what it implements behind what it is.
    lines: BTreeSet<(String, bool, String)>,
}

impl<'a> Surface<'a> {
    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(id.as_u64()?.to_string())
    }

    fn items(&self, ids: &'a Value) -> Vec<&'a Value> {
        let ids = ids.as_array().into_iter().flatten();
        ids.filter_map(|id| self.item(id)).collect()
    }

    fn add(&mut self, path: &str, line: String) {
        self.lines.insert((path.to_owned(), line.starts_with("impl"), line));
    }

    /// Level by level, so that the shortest path of an item comes first.
    fn walk(&mut self, root: &Value) {
        let mut modules = VecDeque::new();
        let Some(module) = self.item(root) else { return };
        modules.push_back((name(module).to_owned(), module));
        while let Some((at, module)) = modules.pop_front() {
            self.add(&at, format!("mod {at}"));
            let mut items = self.items(&module["inner"]["module"]["items"]);
            // Items before imports: where both name one thing, the item is the thing.
            items.sort_by_key(|item| item["inner"].get("use").is_some());
            for item in items {
                match item["inner"].get("use") {
                    Some(import) => self.import(&at, import, &mut modules),
                    None => self.named(format!("{at}::{}", name(item)), item, &mut modules),
                }
            }
        }
    }

    fn import(&mut self, at: &str, import: &'a Value, modules: &mut VecDeque<(String, &'a Value)>) {
        let here = format!("{at}::{}", import["name"].as_str().unwrap_or_default());
        match self.item(&import["id"]) {
            Some(module) if is(&import["is_glob"]) => {
                for item in self.items(&module["inner"]["module"]["items"]) {
                    self.named(format!("{at}::{}", name(item)), item, modules);
                }
            }
            Some(item) => self.named(here, item, modules),
            None => {
                let source = import["source"].as_str().unwrap_or_default();
                self.add(&here, format!("use {here} = {source}"));
            }
        }
    }

    /// An item under one of its paths.
    fn named(&mut self, at: String, item: &'a Value, modules: &mut VecDeque<(String, &'a Value)>) {
        let Some(id) = item["id"].as_u64() else { return };
        if let Some(known) = self.known.get(&id) {
            let line = format!("use {at} = {known}");
            return self.add(&at, line);
        }
        self.known.insert(id, at.clone());
        match item["inner"].get("module") {
            Some(_) => modules.push_back((at, item)),
            None => self.describe(&at, item),
        }
    }

    fn describe(&mut self, at: &str, item: &'a Value) {
        let Some((kind, of)) = item["inner"].as_object().and_then(|inner| inner.iter().next()) else {
            return;
        };
        let marks = marks(item);
        let generics = &of["generics"];
        let (params, wheres) = (params(generics), wheres(generics));
        match kind.as_str() {
            "struct" | "union" => {
                self.add(
                    at,
                    format!(
                        "{marks}{kind} {at}{params}{}{wheres}",
                        tuple(self, &of["kind"]["tuple"])
                    ),
                );
                self.fields(at, &of["kind"]["plain"]["fields"]);
                self.fields(at, &of["fields"]);
                self.impls(at, &of["impls"]);
            }
            "enum" => {
                self.add(at, format!("{marks}enum {at}{params}{wheres}"));
                for variant in self.items(&of["variants"]) {
                    self.variant(at, variant);
                }
                self.impls(at, &of["impls"]);
            }
            "trait" => {
                let supers = bounds(&of["bounds"]);
                let supers = if supers.is_empty() {
                    supers
                } else {
                    format!(": {supers}")
                };
                self.add(at, format!("{marks}trait {at}{params}{supers}{wheres}"));
                for item in self.items(&of["items"]) {
                    self.member(at, item, "");
                }
                self.impls(at, &of["implementations"]);
            }
            "function" => self.add(at, function(at, item, "")),
            "type_alias" => self.add(at, format!("type {at}{params}{wheres} = {}", ty(&of["type"]))),
            "constant" => self.add(at, format!("const {at}: {}", ty(&of["type"]))),
            "static" => self.add(at, format!("static {at}: {}", ty(&of["type"]))),
            "proc_macro" => self.add(at, format!("{} macro {at}", of["kind"].as_str().unwrap_or_default())),
            other => self.add(at, format!("{other} {at}")),
        }
    }

    fn fields(&mut self, at: &str, ids: &'a Value) {
        for field in self.items(ids) {
            let here = format!("{at}.{}", name(field));
            self.add(&here, format!("field {here}: {}", ty(&field["inner"]["struct_field"])));
        }
    }

    fn variant(&mut self, at: &str, variant: &'a Value) {
        let here = format!("{at}::{}", name(variant));
        let kind = &variant["inner"]["variant"]["kind"];
        self.add(
            &here,
            format!("{}variant {here}{}", marks(variant), tuple(self, &kind["tuple"])),
        );
        self.fields(&here, &kind["struct"]["fields"]);
    }

    fn impls(&mut self, at: &str, ids: &'a Value) {
        for item in self.items(ids) {
            let of = &item["inner"]["impl"];
            if !of["blanket_impl"].is_null() {
                continue;
            }
            let (params, wheres) = (params(&of["generics"]), wheres(&of["generics"]));
            let not = if is(&of["is_negative"]) { "!" } else { "" };
            if !of["trait"].is_object() {
                let within = match params.is_empty() && wheres.is_empty() && !ty(&of["for"]).contains('<') {
                    true => String::new(),
                    false => format!(" in impl{params} {}{wheres}", ty(&of["for"])),
                };
                for item in self.items(&of["items"]) {
                    self.member(at, item, &within);
                }
                continue;
            }
            let of_trait = path(&of["trait"]);
            if of_trait == "StructuralPartialEq" {
                continue;
            }
            if is(&of["is_synthetic"]) {
                if ["Send", "Sync"].contains(&of_trait.as_str()) {
                    self.add(at, format!("impl {not}{of_trait} for {at}"));
                }
                continue;
            }
            let head = format!("impl{params} {not}{of_trait} for {}", ty(&of["for"]));
            for item in self.items(&of["items"]) {
                if item["inner"].get("assoc_type").is_some() {
                    self.member(at, item, &format!(" in {head}"));
                }
            }
            self.add(at, format!("{head}{wheres}"));
        }
    }

    /// Something in a trait or an impl.
    fn member(&mut self, at: &str, item: &Value, within: &str) {
        let here = format!("{at}::{}", name(item));
        let inner = &item["inner"];
        if let Some(of) = inner.get("assoc_type") {
            let limits = bounds(&of["bounds"]);
            let limits = if limits.is_empty() {
                limits
            } else {
                format!(": {limits}")
            };
            let value = if of["type"].is_object() {
                format!(" = {}", ty(&of["type"]))
            } else {
                String::new()
            };
            self.add(
                &here,
                format!("type {here}{}{limits}{value}{within}", params(&of["generics"])),
            );
        } else if let Some(of) = inner.get("assoc_const") {
            let value = of["value"]
                .as_str()
                .map_or(String::new(), |value| format!(" = {value}"));
            self.add(&here, format!("const {here}: {}{value}{within}", ty(&of["type"])));
        } else if inner.get("function").is_some() {
            self.add(&here, function(&here, item, within));
        }
    }
}

fn function(at: &str, item: &Value, within: &str) -> String {
    let of = &item["inner"]["function"];
    let word = |flag: &str, word: &'static str| if is(&of["header"][flag]) { word } else { "" };
    let generics = &of["generics"];
    format!(
        "{}{}{}{}fn {at}{}{}{}{within}",
        marks(item),
        word("is_const", "const "),
        word("is_async", "async "),
        word("is_unsafe", "unsafe "),
        params(generics),
        signature(&of["sig"]),
        wheres(generics)
    )
}

/// `(A, _)`: a private field is `_`.
fn tuple(surface: &Surface<'_>, ids: &Value) -> String {
    let Some(ids) = ids.as_array() else {
        return String::new();
    };
    let field = |id: &Value| {
        surface
            .item(id)
            .map_or("_".to_owned(), |item| ty(&item["inner"]["struct_field"]))
    };
    format!("({})", ids.iter().map(field).collect::<Vec<_>>().join(", "))
}

/// Attributes that callers have to know.
fn marks(item: &Value) -> String {
    let attrs = item["attrs"].as_array().into_iter().flatten();
    let marks = attrs.filter_map(|attr| match (attr.as_str(), attr.get("must_use")) {
        (Some("non_exhaustive"), _) => Some("#[non_exhaustive] "),
        (Some("must_use"), _) | (_, Some(_)) => Some("#[must_use] "),
        _ => None,
    });
    marks.collect()
}

fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_is_described_once_and_named_wherever_it_is_exported() {
        let json = json!({"root": 0, "index": {
            "0": {"id": 0, "name": "lib", "attrs": [], "inner": {"module": {"items": [1, 2]}}},
            "1": {"id": 1, "name": "deep", "attrs": [], "inner": {"module": {"items": [3]}}},
            "2": {"id": 2, "name": null, "attrs": [], "inner": {"use": {"source": "deep::Id", "name": "Id", "id": 3, "is_glob": false}}},
            "3": {"id": 3, "name": "Id", "attrs": ["non_exhaustive"], "inner": {"struct": {
                "kind": {"tuple": [null]}, "generics": {"params": [], "where_predicates": []}, "impls": []}}},
        }});
        let expected = [
            "mod lib",
            "#[non_exhaustive] struct lib::Id(_)",
            "mod lib::deep",
            "use lib::deep::Id = lib::Id",
        ];
        assert_eq!(lines(&json), expected);
    }
}
