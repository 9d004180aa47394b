//! What the run ran on; neither a host name nor a path.

use std::process::Command;

use crate::bench::Bench;

/// The text of machine.txt.
pub(crate) async fn describe(bench: &Bench) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mut lines = vec![
        format!("date: {}", jiff::Zoned::now().date()),
        format!("cpu: {} ({} cores)", model(&cpu), cores()),
        format!("memory: {}", memory_gb(&memory)),
        format!("kernel: {}", said("uname", &["-sr"])),
        format!("rustc: {}", said("rustc", &["--version"])),
        format!("node: {}", said("node", &["--version"])),
        format!("commit: {}{}", said("git", &["rev-parse", "HEAD"]), changed()),
    ];
    let ask = |sql: &'static str| async move {
        let answer = bench.server.ask(sql).await;
        answer.unwrap_or_else(|error| format!("unknown ({error})"))
    };
    lines.push(format!("postgresql: {}", ask("show server_version").await));
    // Paths and ports say nothing about speed.
    let settings = "select string_agg(name || ' = ' || current_setting(name), E'\\n  ' order by name) from pg_settings \
                    where source not in ('default', 'override', 'client') \
                    and name !~ '(directory|directories|_file|port|listen_addresses|TimeZone|timezone|^lc_|log_|text_search)'";
    lines.push(format!("postgresql settings:\n  {}", ask(settings).await));
    let durable = "select string_agg(name || ' = ' || setting, ', ' order by name) from pg_settings \
                   where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'autovacuum')";
    lines.push(format!("postgresql durability: {}", ask(durable).await));
    lines.push("clients and server share the machine; connections are TCP on loopback".to_owned());
    lines.push(format!(
        "whole run: {:.0} minutes after the builds",
        bench.progress.elapsed().as_secs_f64() / 60.0
    ));
    lines.join("\n") + "\n"
}

fn model(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
}

fn memory_gb(meminfo: &str) -> String {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kb.map_or_else(|| "unknown".to_owned(), |kb| format!("{:.0} GB", kb / 1024.0 / 1024.0))
}

fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().ok();
    let text = output
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .unwrap_or_default();
    if text.trim().is_empty() {
        "unknown".to_owned()
    } else {
        text.trim().to_owned()
    }
}

/// A tree that differs from its commit is not that commit.
fn changed() -> &'static str {
    let status = said("git", &["status", "--porcelain", "--untracked-files=no"]);
    if status == "unknown" { "" } else { " with changes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_proc() {
        assert_eq!(model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"), "A CPU @ 2 GHz");
        assert_eq!(model(""), "unknown");
        assert_eq!(memory_gb("MemTotal:       24687104 kB\n"), "24 GB");
    }
}
