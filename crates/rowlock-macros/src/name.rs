//! Names: what may be one, and the kind that a type's own name gives.

use syn::{Error, Ident, Result, ext::IdentExt};

/// The rule of `rowlock`'s `check_name`.
pub(crate) fn fits_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    (1..=100).contains(&name.len()) && name.chars().all(fits)
}

/// The kind of a type that was not given one.
pub(crate) fn kind_of(ident: &Ident) -> Result<String> {
    let kind = kebab(&ident.unraw().to_string());
    if fits_name(&kind) {
        return Ok(kind);
    }
    let problem = format!(
        "the type's name gives the kind {kind:?}, which is not a valid name (1 to 100 of a-z, A-Z, 0-9 and -_.:/); \
         set one with #[job(kind = \"…\")]"
    );
    Err(Error::new_spanned(ident, problem))
}

/// `SendHTTPRequest` is `send-http-request`: a capital starts a word unless it continues a run of capitals.
fn kebab(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut kebab = String::with_capacity(name.len() + 4);
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        let in_run = before.is_some_and(char::is_uppercase);
        let ends_run = chars.get(i + 1).is_some_and(|next| next.is_lowercase());
        let starts_word = c == '_' || (c.is_uppercase() && (!in_run || ends_run));
        if starts_word && !kebab.is_empty() && !kebab.ends_with('-') {
            kebab.push('-');
        }
        if c != '_' {
            kebab.extend(c.to_lowercase());
        }
    }
    kebab.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_kebab_case_of_the_types_name() {
        for (name, kind) in [
            ("Charge", "charge"),
            ("ReserveInventory", "reserve-inventory"),
            ("SendHTTPRequest", "send-http-request"),
            ("ParseXML", "parse-xml"),
            ("S3Upload", "s3-upload"),
            ("Sha256Sum", "sha256-sum"),
            ("OrderV2", "order-v2"),
            ("send_receipt", "send-receipt"),
            ("_Old__Charge_", "old-charge"),
            ("r#async", "async"),
        ] {
            let ident: Ident = syn::parse_str(name).unwrap();
            assert_eq!(kind_of(&ident).unwrap(), kind, "{name}");
        }
    }
}
