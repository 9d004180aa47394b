//! The sound protocol: no rule is broken within bounds, and the model gets to what it is about.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use model::{
    Bounds, Protocol, REACHED, Rule, search,
    world::{Seen, World},
};
use stateright::{Expectation, Model};

/// How many there are. A model that shrinks or grows shows something else than before, and must say so.
const STATES: usize = 484_888;

#[test]
fn no_rule_is_broken_and_every_place_is_reached() {
    let found = search(Protocol::sound(Bounds::usual()));
    assert!(found.closed);
    assert_eq!(found.broken, []);
    assert_eq!(found.missed, [""; 0]);
    assert_eq!(found.states, STATES);
}

#[test]
fn every_rule_and_every_place_is_asked_of_every_state() {
    let properties = Protocol::sound(Bounds::usual()).properties();
    let named = |expectation: Expectation| -> Vec<&str> {
        let of_it = properties.iter().filter(|property| property.expectation == expectation);
        of_it.map(|property| property.name).collect()
    };
    assert_eq!(named(Expectation::Always), Rule::ALL.map(Rule::name));
    assert_eq!(named(Expectation::Sometimes), REACHED);
    assert_eq!(named(Expectation::Eventually), [""; 0]);
}

#[test]
fn no_state_follows_itself_so_every_path_comes_to_rest() {
    let protocol = Protocol::sound(Bounds::usual());
    // Whether all that follows a state was walked; one met again before that closes a circle.
    let mut walked: HashMap<u64, bool> = HashMap::new();
    let mut path = Vec::new();
    for first in protocol.init_states() {
        walked.insert(mark(&first), false);
        path.push((mark(&first), protocol.next_states(&first)));
    }
    while let Some((world, following)) = path.last_mut() {
        let Some(next) = following.pop() else {
            walked.insert(*world, true);
            path.pop();
            continue;
        };
        let met = mark(&next);
        match walked.get(&met) {
            Some(through) => assert!(through, "a circle through {next:#?}"),
            None => {
                walked.insert(met, false);
                path.push((met, protocol.next_states(&next)));
            }
        }
    }
    assert_eq!(walked.len(), STATES);
}

#[test]
fn folding_loses_no_state_and_makes_none_up() {
    let folded = Protocol::sound(Bounds::least());
    let apart = reachable(Protocol {
        folded: false,
        ..folded
    });
    let one = reachable(folded);
    assert!(apart.len() > 2 * one.len(), "{} and {}", apart.len(), one.len());
    let (apart, one) = (made_one(apart), made_one(one));
    assert_eq!((apart.len(), apart.difference(&one).count()), (one.len(), 0));
}

/// What the last step let be seen is left out: where a step changes nothing but numbers, it is missing from the folded.
fn made_one(worlds: Vec<World>) -> HashSet<u64> {
    let folded = worlds.into_iter().map(|mut world| {
        world.seen = Seen::Nothing;
        world.fold();
        mark(&world)
    });
    folded.collect()
}

fn reachable(protocol: Protocol) -> Vec<World> {
    let mut met = HashSet::new();
    let mut worlds = protocol.init_states();
    met.extend(worlds.iter().map(mark));
    let mut no = 0;
    while let Some(world) = worlds.get(no) {
        let following = protocol.next_states(world);
        worlds.extend(following.into_iter().filter(|next| met.insert(mark(next))));
        no += 1;
    }
    worlds
}

/// Represents a world; a world itself is too large to keep as many as there are.
fn mark(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}
