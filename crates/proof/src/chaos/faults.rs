//! The injector: several series of faults at the same time, each with its own seed. Each deals its faults from a
//! shuffled deck, so that every kind comes in every run.

pub mod file;
pub mod line;
pub mod people;
pub mod process;
pub mod server;
pub mod wire;

/// A deck of faults that never runs out.
pub struct Deck<T: Copy> {
    cards: Vec<T>,
    left: Vec<T>,
}

impl<T: Copy> Deck<T> {
    /// Each card as often as it says.
    pub fn new(cards: &[(T, usize)]) -> Deck<T> {
        let cards = cards
            .iter()
            .flat_map(|(card, times)| std::iter::repeat_n(*card, *times));
        Deck {
            cards: cards.collect(),
            left: Vec::new(),
        }
    }

    /// The next one; all come before any comes again more often than its share.
    pub fn deal(&mut self, random: &mut fastrand::Rng) -> Option<T> {
        if self.left.is_empty() {
            self.left.clone_from(&self.cards);
            random.shuffle(&mut self.left);
        }
        self.left.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_comes_as_often_as_it_says_and_a_seed_repeats_them() {
        let deal = |seed| {
            let (mut deck, mut random) = (Deck::new(&[('a', 3), ('b', 1)]), fastrand::Rng::with_seed(seed));
            (0..8).filter_map(|_| deck.deal(&mut random)).collect::<String>()
        };
        for half in [&deal(7)[..4], &deal(7)[4..]] {
            assert_eq!(half.matches('a').count(), 3);
            assert_eq!(half.matches('b').count(), 1);
        }
        assert_eq!(deal(7), deal(7));
    }
}
