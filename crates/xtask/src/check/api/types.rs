//! Types, generics and signatures as rustdoc's JSON has them, printed as Rust.
//!
//! Of a path only the last name is printed: how an item is imported where it is used is no part of the API.

use serde_json::Value;

/// A type.
pub(super) fn ty(value: &Value) -> String {
    let Some((kind, of)) = value.as_object().and_then(|object| object.iter().next()) else {
        return "_".into();
    };
    match kind.as_str() {
        "resolved_path" => path(of),
        "generic" | "primitive" => word(of).to_owned(),
        "tuple" => match list(of, ty).as_slice() {
            [one] => format!("({one},)"),
            all => format!("({})", all.join(", ")),
        },
        "slice" => format!("[{}]", ty(of)),
        "array" => format!("[{}; {}]", ty(&of["type"]), word(&of["len"])),
        "borrowed_ref" => {
            let lifetime = of["lifetime"].as_str().map_or(String::new(), |name| format!("{name} "));
            format!("&{lifetime}{}{}", mutable(of), ty(&of["type"]))
        }
        "raw_pointer" => format!(
            "*{}{}",
            if is(&of["is_mutable"]) { "mut " } else { "const " },
            ty(&of["type"])
        ),
        "impl_trait" => format!("impl {}", bounds(of)),
        "dyn_trait" => {
            let mut all = list(&of["traits"], |one| format!("{}{}", binder(one), path(&one["trait"])));
            all.extend(of["lifetime"].as_str().map(str::to_owned));
            format!("dyn {}", all.join(" + "))
        }
        "qualified_path" => {
            let through = match of["trait"]["path"].as_str() {
                Some(name) if !name.is_empty() => format!("<{} as {}>", ty(&of["self_type"]), path(&of["trait"])),
                _ => ty(&of["self_type"]),
            };
            format!("{through}::{}{}", word(&of["name"]), args(&of["args"]))
        }
        "function_pointer" => format!("{}fn{}", binder(of), signature(&of["sig"])),
        other => format!("<{other}>"),
    }
}

/// A path with its arguments.
pub(super) fn path(value: &Value) -> String {
    let name = word(&value["path"]).rsplit("::").next().unwrap_or_default();
    format!("{name}{}", args(&value["args"]))
}

/// `(inputs) -> output` of a function.
pub(super) fn signature(sig: &Value) -> String {
    let inputs = list(&sig["inputs"], |input| match (word(&input[0]), ty(&input[1])) {
        ("self", of) if of == "Self" => "self".to_owned(),
        ("self", of) => match of.strip_suffix("Self").filter(|before| before.starts_with('&')) {
            Some(before) => format!("{before}self"),
            None => format!("self: {of}"),
        },
        ("" | "_", of) => of,
        (name, of) => format!("{name}: {of}"),
    });
    format!("({}){}", inputs.join(", "), output(sig))
}

/// `<'a, T: Bound>`, without the parameters that `impl Trait` in an argument adds.
pub(super) fn params(generics: &Value) -> String {
    let params = generics["params"].as_array().into_iter().flatten();
    let named: Vec<String> = params
        .filter(|param| !is(&param["kind"]["type"]["is_synthetic"]))
        .map(param)
        .collect();
    angles(&named)
}

/// ` where …`, or nothing.
pub(super) fn wheres(generics: &Value) -> String {
    let all = list(&generics["where_predicates"], |one| {
        let (kind, of) = one.as_object().and_then(|object| object.iter().next()).unzip();
        match (kind.map(String::as_str), of) {
            (Some("bound_predicate"), Some(of)) => {
                format!("{}{}: {}", binder(of), ty(&of["type"]), bounds(&of["bounds"]))
            }
            (Some("lifetime_predicate"), Some(of)) => {
                format!(
                    "{}: {}",
                    word(&of["lifetime"]),
                    list(&of["outlives"], |one| word(one).to_owned()).join(" + ")
                )
            }
            (Some("eq_predicate"), Some(of)) => format!("{} = {}", ty(&of["lhs"]), term(&of["rhs"])),
            _ => String::new(),
        }
    });
    match all.is_empty() {
        true => String::new(),
        false => format!(" where {}", all.join(", ")),
    }
}

/// `A + B`.
pub(super) fn bounds(value: &Value) -> String {
    list(value, |bound| {
        if let Some(of) = bound.get("trait_bound") {
            let maybe = if of["modifier"] == "maybe" { "?" } else { "" };
            return format!("{maybe}{}{}", binder(of), path(&of["trait"]));
        }
        match bound.get("use") {
            Some(of) => {
                let captured = list(of, |one| {
                    one.as_str()
                        .or(one["lifetime"].as_str())
                        .or(one["param"].as_str())
                        .unwrap_or("_")
                        .to_owned()
                });
                format!("use<{}>", captured.join(", "))
            }
            None => word(&bound["outlives"]).to_owned(),
        }
    })
    .join(" + ")
}

fn param(param: &Value) -> String {
    let (name, kind) = (word(&param["name"]), &param["kind"]);
    let with = |bounds: String| {
        if bounds.is_empty() {
            name.to_owned()
        } else {
            format!("{name}: {bounds}")
        }
    };
    if let Some(of) = kind.get("lifetime") {
        return with(list(&of["outlives"], |one| word(one).to_owned()).join(" + "));
    }
    if let Some(of) = kind.get("const") {
        return format!("const {name}: {}", ty(&of["type"]));
    }
    let of = &kind["type"];
    let default = if of["default"].is_object() {
        format!(" = {}", ty(&of["default"]))
    } else {
        String::new()
    };
    with(bounds(&of["bounds"])) + &default
}

fn args(value: &Value) -> String {
    if let Some(of) = value.get("parenthesized") {
        return format!("({}){}", list(&of["inputs"], ty).join(", "), output(of));
    }
    let of = &value["angle_bracketed"];
    let mut all = list(&of["args"], |arg| match arg {
        Value::String(infer) => infer.replace("infer", "_"),
        arg => match (arg["lifetime"].as_str(), arg.get("type"), arg.get("const")) {
            (Some(name), ..) => name.to_owned(),
            (_, Some(of), _) => ty(of),
            (_, _, Some(of)) => word(&of["expr"]).to_owned(),
            _ => "_".to_owned(),
        },
    });
    all.extend(list(&of["constraints"], |one| {
        let name = format!("{}{}", word(&one["name"]), args(&one["args"]));
        match one["binding"].get("equality") {
            Some(of) => format!("{name} = {}", term(of)),
            None => format!("{name}: {}", bounds(&one["binding"]["constraint"])),
        }
    }));
    angles(&all)
}

fn term(value: &Value) -> String {
    match value.get("type") {
        Some(of) => ty(of),
        None => word(&value["constant"]["expr"]).to_owned(),
    }
}

fn output(sig: &Value) -> String {
    match sig["output"].is_object() {
        true => format!(" -> {}", ty(&sig["output"])),
        false => String::new(),
    }
}

/// `for<'a> `, or nothing.
fn binder(of: &Value) -> String {
    match list(&of["generic_params"], param).as_slice() {
        [] => String::new(),
        all => format!("for<{}> ", all.join(", ")),
    }
}

fn angles(all: &[String]) -> String {
    match all {
        [] => String::new(),
        all => format!("<{}>", all.join(", ")),
    }
}

fn mutable(of: &Value) -> &'static str {
    if is(&of["is_mutable"]) { "mut " } else { "" }
}

fn list(value: &Value, each: impl Fn(&Value) -> String) -> Vec<String> {
    value.as_array().into_iter().flatten().map(each).collect()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A flag that is set.
pub(super) fn is(value: &Value) -> bool {
    value.as_bool().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_prints_as_rust() {
        let generic = json!({"generic": "DB"});
        let angled = json!({"angle_bracketed": {"args": [{"lifetime": "'c"}, {"type": generic}], "constraints": []}});
        let named = json!({"resolved_path": {"path": "crate::enqueue::Enqueue", "id": 1, "args": angled}});
        assert_eq!(ty(&named), "Enqueue<'c, DB>");
        let borrowed = json!({"borrowed_ref": {"lifetime": "'c", "is_mutable": true, "type": {"slice": named}}});
        assert_eq!(ty(&borrowed), "&'c mut [Enqueue<'c, DB>]");
        let bound =
            json!({"trait_bound": {"trait": {"path": "Into", "args": null}, "generic_params": [], "modifier": "none"}});
        assert_eq!(
            ty(&json!({"impl_trait": [bound, {"outlives": "'c"}]})),
            "impl Into + 'c"
        );
        assert_eq!(ty(&json!({"tuple": [{"primitive": "u8"}]})), "(u8,)");
    }

    #[test]
    fn a_receiver_prints_as_it_is_written() {
        let borrowed = json!({"borrowed_ref": {"lifetime": null, "is_mutable": true, "type": {"generic": "Self"}}});
        let sig =
            json!({"inputs": [["self", borrowed], ["id", {"primitive": "i64"}]], "output": {"primitive": "bool"}});
        assert_eq!(signature(&sig), "(&mut self, id: i64) -> bool");
    }
}
