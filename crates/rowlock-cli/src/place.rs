//! Where a command acts, and for whom: the database, its schema and the actor, each from the flag, else the
//! environment, else the config file.

use std::{env, ffi::OsString, path::Path, str::FromStr};

use anyhow::Result;
use clap::Args;
use rowlock::Admin;
use sqlx::sqlite::SqliteConnectOptions;

use crate::{config::Config, output::Advice};

/// Below the options of the command itself.
const PLACE: &str = "Database options";

/// Which database.
#[derive(Args)]
pub(crate) struct Place {
    /// postgres://user@host/name (host1,host2 for several servers) or sqlite:PATH; default: the config file
    #[arg(
        long,
        global = true,
        help_heading = PLACE,
        value_name = "URL",
        env = "ROWLOCK_DATABASE",
        hide_env_values = true
    )]
    database: Option<String>,
    /// PostgreSQL schema of the tables; default: the config file, then rowlock
    #[arg(long, global = true, help_heading = PLACE, value_name = "NAME")]
    schema: Option<String>,
    /// Config file with database, schema and actor; default: rowlock.toml, then ~/.config/rowlock/config.toml
    #[arg(
        long,
        global = true,
        help_heading = PLACE,
        value_name = "PATH",
        env = "ROWLOCK_CONFIG",
        hide_env_values = true
    )]
    config: Option<OsString>,
    #[arg(skip)]
    file: Config,
    /// Who is logged in.
    #[arg(skip)]
    user: Option<String>,
}

/// Who acts, for the audit.
#[derive(Args)]
pub(crate) struct Actor {
    /// Who does this, for the audit; default: the config file, then $USER
    #[arg(long, global = true, value_name = "NAME")]
    actor: Option<String>,
}

impl Place {
    /// Reads from the config file what flags and environment leave open.
    pub(crate) fn read_config(&mut self) -> Result<()> {
        let named = self.config.as_deref().filter(|path| !path.is_empty());
        self.file = Config::find(named.map(Path::new))?;
        self.user = env::var("USER").ok().filter(|user| !user.is_empty());
        Ok(())
    }

    pub(crate) fn url(&self) -> Result<&str> {
        let given = self.database.as_deref().filter(|url| !url.is_empty());
        given.or(self.file.database.as_deref()).ok_or_else(|| {
            Advice::usage(
                "no database given",
                "use --database sqlite:app.db or postgres://…, set ROWLOCK_DATABASE, or write database = \"…\" in rowlock.toml",
            )
        })
    }

    /// The URL, if it is on the command line. The demo ignores the environment and the config file.
    pub(crate) fn url_if(&self, named: bool) -> Option<&str> {
        self.database.as_deref().filter(|_| named)
    }

    /// The schema of the config file belongs to the database of the config file, and to no other.
    pub(crate) fn schema(&self) -> &str {
        let elsewhere = self.database.as_deref().is_some_and(|url| !url.is_empty());
        let of_file = self.file.schema.as_deref().filter(|_| !elsewhere);
        self.schema.as_deref().or(of_file).unwrap_or("rowlock")
    }

    pub(crate) fn actor<'a>(&'a self, given: &'a Actor) -> &'a str {
        let given = given.actor.as_deref().or(self.file.actor.as_deref());
        given.or(self.user.as_deref()).unwrap_or("operator")
    }

    /// The database, not connected yet.
    pub(crate) fn admin(&self) -> Result<Admin> {
        Ok(Admin::open(self.url()?, self.schema())?)
    }

    /// The database, with a schema that this binary can use. A missing SQLite file is probably a mistyped name, so it
    /// is not created.
    pub(crate) async fn checked(&self) -> Result<Admin> {
        let admin = self.admin()?;
        let url = self.url()?;
        if url.starts_with("sqlite:")
            && let Ok(options) = SqliteConnectOptions::from_str(url)
            && !options.get_filename().exists()
        {
            let file = options.get_filename().display();
            return Err(Advice::error(
                format!("database file {file} does not exist"),
                format!("rowlock migrate --database {url}   creates it; or correct the path"),
            ));
        }
        admin.check_schema().await?;
        Ok(admin)
    }
}
