//! A queue that is cheap to copy: copies share what neither has changed since.
//!
//! Every world has its own commits, and nearly all of them are the same. A copy costs one pointer per 16 items; the
//! first change after it copies the neighbours of what changes.
//!
//! Always true: a copy never sees what is written to the other.

use std::collections::VecDeque;
use std::sync::Arc;

const BLOCK: usize = 16;

#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// All but the last are full.
    blocks: VecDeque<Arc<Vec<T>>>,
    /// How many of the first block have left.
    gone: usize,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            blocks: VecDeque::new(),
            gone: 0,
            len: 0,
        }
    }
}

impl<T: Clone> Queue<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        let at = at + self.gone;
        self.blocks.get(at / BLOCK)?.get(at % BLOCK)
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let at = at + self.gone;
        Arc::make_mut(self.blocks.get_mut(at / BLOCK)?).get_mut(at % BLOCK)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let blocks = self.blocks.iter().enumerate();
        blocks.flat_map(|(at, block)| match at {
            0 => block[self.gone..].iter(),
            _ => block.iter(),
        })
    }

    pub fn push_back(&mut self, item: T) {
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => Arc::make_mut(block).push(item),
            None => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(item);
                self.blocks.push_back(Arc::new(block));
            }
        }
        self.len += 1;
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.get(0)?.clone();
        self.gone += 1;
        self.len -= 1;
        if self.gone == BLOCK || self.len == 0 {
            self.blocks.pop_front();
            self.gone = 0;
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// It behaves as a plain queue does, and what happens to a copy is not seen by the other.
        #[test]
        fn behaves_like_a_plain_queue(acts in proptest::collection::vec((0u8..8, any::<u16>()), 0..200)) {
            let (mut queue, mut plain) = (Queue::default(), VecDeque::new());
            let mut copies: Vec<(Queue<u16>, VecDeque<u16>)> = Vec::new();
            for (act, value) in acts {
                match act {
                    0..=3 => {
                        queue.push_back(value);
                        plain.push_back(value);
                    }
                    4 | 5 => prop_assert_eq!(queue.pop_front(), plain.pop_front()),
                    6 => {
                        let at = usize::from(value) % (plain.len() + 1);
                        let (mine, theirs) = (queue.get_mut(at), plain.get_mut(at));
                        prop_assert_eq!(mine.is_some(), theirs.is_some());
                        if let (Some(mine), Some(theirs)) = (mine, theirs) {
                            *mine = value;
                            *theirs = value;
                        }
                    }
                    _ => copies.push((queue.clone(), plain.clone())),
                }
                prop_assert_eq!(queue.len(), plain.len());
            }
            copies.push((queue, plain));
            for (queue, plain) in copies {
                prop_assert!(queue.iter().eq(plain.iter()));
                prop_assert!(queue.iter().rev().eq(plain.iter().rev()));
                prop_assert!(queue.get(plain.len()).is_none());
            }
        }
    }
}
