//! A growing array that is cheap to copy: copies share what neither has changed since.
//!
//! The store is copied whenever things may have happened in more than one way. A copy costs one pointer per
//! 4,096 places; the first change after it copies the 64 neighbours of the place that changes.
//!
//! Always true: a copy never sees what is written to the other.

use std::sync::Arc;

const LEAF: usize = 64;
const MIDDLE: usize = 64;
const ROOT: usize = LEAF * MIDDLE;

// In place, so that there is one look-up less on the way to them.
type Leaf<T> = [T; LEAF];

/// Groups are `None` while nothing but default values is in them.
type Middle<T> = [Option<Arc<Leaf<T>>>; MIDDLE];

#[derive(Clone, Debug)]
pub struct Forest<T> {
    roots: Vec<Option<Arc<Middle<T>>>>,
}

impl<T> Default for Forest<T> {
    fn default() -> Forest<T> {
        Forest { roots: Vec::new() }
    }
}

impl<T: Clone + Default> Forest<T> {
    pub fn get(&self, at: usize) -> Option<&T> {
        let middle = self.roots.get(at / ROOT)?.as_ref()?;
        let leaf = middle[at % ROOT / LEAF].as_ref()?;
        Some(&leaf[at % LEAF])
    }

    /// The place, made if it was not there.
    pub fn get_mut(&mut self, at: usize) -> &mut T {
        if at / ROOT >= self.roots.len() {
            self.roots.resize_with(at / ROOT + 1, || None);
        }
        let middle = self.roots[at / ROOT].get_or_insert_with(|| Arc::new(std::array::from_fn(|_| None)));
        let leaf = Arc::make_mut(middle)[at % ROOT / LEAF]
            .get_or_insert_with(|| Arc::new(std::array::from_fn(|_| T::default())));
        &mut Arc::make_mut(leaf)[at % LEAF]
    }

    /// Every place that exists, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let middles = self.roots.iter().enumerate();
        let middles = middles.filter_map(|(r, m)| m.as_ref().map(|m| (r * ROOT, m)));
        let leaves = middles.flat_map(|(from, m)| {
            let leaves = m.iter().enumerate();
            leaves.filter_map(move |(l, leaf)| leaf.as_ref().map(|leaf| (from + l * LEAF, leaf)))
        });
        leaves.flat_map(|(from, leaf)| leaf.iter().enumerate().map(move |(c, cell)| (from + c, cell)))
    }

    /// Gives back the memory around a place, if nothing is there that `is_empty` would miss.
    pub fn trim(&mut self, at: usize, is_empty: impl Fn(&T) -> bool) {
        let Some(Some(middle)) = self.roots.get_mut(at / ROOT) else {
            return;
        };
        let place = at % ROOT / LEAF;
        let unused = middle[place]
            .as_ref()
            .is_some_and(|leaf| leaf.iter().all(is_empty));
        if !unused {
            return;
        }
        let middle = Arc::make_mut(middle);
        middle[place] = None;
        if middle.iter().all(Option::is_none) {
            self.roots[at / ROOT] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_do_not_see_each_other() {
        let mut one: Forest<u32> = Forest::default();
        for at in [0, 63, 64, 5_000, 70_000] {
            *one.get_mut(at) = at as u32 + 1;
        }
        let mut two = one.clone();
        *two.get_mut(64) = 7;
        *one.get_mut(5_000) = 8;
        assert_eq!((one.get(64), two.get(64)), (Some(&65), Some(&7)));
        assert_eq!((one.get(5_000), two.get(5_000)), (Some(&8), Some(&5_001)));
        assert_eq!((one.get(1), one.get(200_000)), (Some(&0), None));
        let kept: Vec<usize> = one.iter().filter(|(_, v)| **v != 0).map(|(at, _)| at).collect();
        assert_eq!(kept, [0, 63, 64, 5_000, 70_000]);
    }

    #[test]
    fn what_is_emptied_is_given_back() {
        let mut forest: Forest<u32> = Forest::default();
        *forest.get_mut(9_000) = 1;
        forest.trim(9_000, |v| *v == 0);
        assert_eq!(forest.get(9_000), Some(&1));
        *forest.get_mut(9_000) = 0;
        forest.trim(9_000, |v| *v == 0);
        assert_eq!(forest.get(9_000), None);
        assert_eq!(forest.iter().count(), 0);
    }
}
