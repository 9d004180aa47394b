//! Where a command acts, and for whom: the database, its schema and the actor, each from the flag, else the environment,
//! else the config file.

use std::{env, ffi::OsString, path::Path, str::FromStr};

use anyhow::Result;
use clap::Args;
use rowlock::Admin;
use sqlx::sqlite::SqliteConnectOptions;

use crate::{config::Config, output::Advice};

/// Below the options of the command itself.
const PLACE: &str = "Where it acts";

/// Which database.
#[derive(Args)]
pub(crate) struct Place {
    /// postgres://user@host/name, with host1,host2 where there are several, or sqlite:path; else what the config file says
    #[arg(
        long,
        global = true,
        help_heading = PLACE,
        value_name = "URL",
        env = "ROWLOCK_DATABASE",
        hide_env_values = true
    )]
    database: Option<String>,
    /// The PostgreSQL schema that holds the jobs; else what the config file says, else rowlock
    #[arg(long, global = true, help_heading = PLACE, value_name = "NAME")]
    schema: Option<String>,
    /// A file with database, schema and actor; else rowlock.toml in this folder, or rowlock/config.toml under ~/.config
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

/// Who acts.
#[derive(Args)]
pub(crate) struct Actor {
    /// Who decided it, for the audit; else what the config file says, else $USER
    #[arg(long, global = true, value_name = "NAME")]
    actor: Option<String>,
}

impl Place {
    /// Looks up what flags and environment leave open.
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
                "--database sqlite:app.db or postgres://…, or set ROWLOCK_DATABASE, or write database = \"…\" in rowlock.toml",
            )
        })
    }

    /// The URL, if it was `named` by hand. What the environment or a file names is good enough to look at, but not to run
    /// a demo on.
    pub(crate) fn url_if(&self, named: bool) -> Option<&str> {
        self.database.as_deref().filter(|_| named)
    }

    /// The file's is that of the file's database, and of no other.
    pub(crate) fn schema(&self) -> &str {
        let elsewhere = self.database.as_deref().is_some_and(|url| !url.is_empty());
        let of_file = self.file.schema.as_deref().filter(|_| !elsewhere);
        self.schema.as_deref().or(of_file).unwrap_or("rowlock")
    }

    pub(crate) fn actor<'a>(&'a self, given: &'a Actor) -> &'a str {
        let given = given.actor.as_deref().or(self.file.actor.as_deref());
        given.or(self.user.as_deref()).unwrap_or("operator")
    }

    /// The database, not looked at yet.
    pub(crate) fn admin(&self) -> Result<Admin> {
        Ok(Admin::open(self.url()?, self.schema())?)
    }

    /// The database, with a schema that this binary can use. A SQLite file that is not there is a mistyped name, and is
    /// not created by looking at it.
    pub(crate) async fn checked(&self) -> Result<Admin> {
        let admin = self.admin()?;
        let url = self.url()?;
        if url.starts_with("sqlite:")
            && let Ok(options) = SqliteConnectOptions::from_str(url)
            && !options.get_filename().exists()
        {
            let file = options.get_filename().display();
            return Err(Advice::error(
                format!("there is no file {file}"),
                format!("rowlock migrate --database {url}   creates it; or check the path"),
            ));
        }
        admin.check_schema().await?;
        Ok(admin)
    }
}
