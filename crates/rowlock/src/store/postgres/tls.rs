//! TLS is a cargo feature: options that require TLS are refused in a build without it, before any connection.
//!
//! The driver would refuse too, but only with the first connection, and without naming the missing feature.

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::error::{Error, Result};

/// Returns these options, unless they require what this build does not have.
pub fn checked(options: PgConnectOptions) -> Result<PgConnectOptions> {
    match refused(options.get_ssl_mode(), sqlx_core::net::tls::available()) {
        Some(problem) => Err(Error::Config(problem)),
        None => Ok(options),
    }
}

fn refused(mode: PgSslMode, available: bool) -> Option<String> {
    let word = match mode {
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
        PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer => return None,
    };
    (!available).then(|| {
        format!(
            "sslmode={word} needs TLS, and this program was built without TLS; turn on the feature tls of rowlock, or \
             a TLS feature of sqlx"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_needs_tls_is_refused_by_the_name_of_the_feature_where_there_is_none() {
        for mode in [PgSslMode::Require, PgSslMode::VerifyCa, PgSslMode::VerifyFull] {
            let problem = refused(mode, false).unwrap();
            assert!(problem.contains("the feature tls of rowlock"), "{problem}");
            assert_eq!(refused(mode, true), None);
        }
        for mode in [PgSslMode::Disable, PgSslMode::Allow, PgSslMode::Prefer] {
            assert_eq!(refused(mode, false), None);
        }
    }

    #[test]
    fn a_url_is_refused_when_it_is_opened_and_only_in_a_build_without_tls() {
        for url in [
            "postgres://a/db?sslmode=require",
            "postgres://a,b/db?sslmode=verify-full",
        ] {
            let opened = crate::store::postgres::Hosts::parse(url).map(drop);
            assert_eq!(opened.is_ok(), sqlx_core::net::tls::available(), "{url}: {opened:?}");
        }
        assert!(crate::store::postgres::Hosts::parse("postgres://a/db?sslmode=prefer").is_ok());
    }
}
