//! Each mistake is caught, by the rule that it breaks.

use model::{Bounds, Bug, Protocol, Rule, search, shortest};

#[test]
fn each_mistake_breaks_its_rule_first_and_no_other_beside_it() {
    let mut wrong = Vec::new();
    for bug in Bug::ALL {
        match shortest(Protocol::broken(*bug)) {
            None => wrong.push(format!("{bug:?} breaks nothing")),
            Some((rules, path)) => {
                if rules != [bug.breaks()] {
                    wrong.push(format!(
                        "{bug:?} should break {:?}, broke {rules:?}: {path:#?}",
                        bug.breaks()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_mistake_that_breaks_it() {
    for rule in Rule::ALL {
        assert!(Bug::ALL.iter().any(|bug| bug.breaks() == rule), "{rule:?}");
    }
}

#[test]
fn without_a_mistake_the_same_bounds_break_nothing() {
    let found = search(Protocol::sound(Bounds::least()));
    assert_eq!(found.broken, []);
    assert!(found.closed);
}

#[test]
fn a_search_for_the_shortest_breach_ends_when_there_is_none() {
    let mut bounds = Bounds::least();
    bounds.left.pauses = 0;
    assert_eq!(shortest(Protocol::sound(bounds)), None);
}
