//! `cargo run --release -p model -- [--large] [--paths]`: searches the sound model and every broken one, and prints
//! what it found.
//!
//! Exits with 1 when a rule of the sound model is broken, when the model does not reach a state that it must reach, or
//! when a mistake is not caught by its rule. `--paths` prints the counterexample of each mistake.

use std::{process::ExitCode, time::Instant};

use model::{Bounds, Bug, Protocol, REACHED, Rule, search, shortest};

fn main() -> ExitCode {
    let (mut sizes, mut paths) = (vec![Bounds::usual()], false);
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--large" => sizes = Bounds::large().to_vec(),
            "--paths" => paths = true,
            other => {
                eprintln!("model does not take `{other}`; it takes `--large` and `--paths`");
                return ExitCode::from(2);
            }
        }
    }
    let sound = sizes.into_iter().filter(|bounds| !sound(*bounds)).count() == 0;
    let began = Instant::now();
    println!("{:<20} {:<64} verdict", "mistake", "rule it breaks");
    let caught = Bug::ALL.iter().filter(|bug| caught(**bug, paths)).count();
    let all = Bug::ALL.len();
    println!("{caught} of {all} caught, {:.1} s", began.elapsed().as_secs_f64());
    match sound && caught == all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints the search of the sound model. Returns whether it is sound.
fn sound(bounds: Bounds) -> bool {
    println!("{bounds:?}");
    let found = search(Protocol::sound(bounds));
    let seconds = found.took.as_secs_f64();
    let whole = if found.closed { "all of them" } else { "NOT ALL OF THEM" };
    println!("{} states, {whole}; {seconds:.1} s\n", found.states);
    for rule in Rule::ALL {
        let breach = found.broken.iter().find(|(broken, _)| *broken == rule);
        println!(
            "always     {:<64} {}",
            rule.name(),
            if breach.is_some() { "BROKEN" } else { "holds" }
        );
        breach.into_iter().for_each(|(_, path)| print_path(path));
    }
    for name in REACHED {
        let missed = found.missed.contains(&name);
        println!(
            "sometimes  {name:<64} {}",
            if missed { "NOT REACHED" } else { "reached" }
        );
    }
    println!();
    found.is_sound()
}

/// Prints the counterexample of one mistake. Returns whether it breaks the rule that it names.
fn caught(bug: Bug, paths: bool) -> bool {
    let (rules, path) = shortest(Protocol::broken(bug)).unwrap_or_default();
    let caught = rules == [bug.breaks()];
    let verdict = match (caught, rules.as_slice()) {
        (true, _) => format!("caught in {} steps", path.len()),
        (false, []) => "NOT CAUGHT".to_owned(),
        (false, others) => format!("BROKE {others:?} in {} steps", path.len()),
    };
    println!("{:<20} {:<64} {verdict}", format!("{bug:?}"), bug.breaks().name());
    if paths || !caught {
        print_path(&path);
    }
    caught
}

fn print_path(path: &[String]) {
    for (no, step) in (1..).zip(path) {
        println!("  {no:>3}. {step}");
    }
}
