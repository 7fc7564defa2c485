//! The known name that somebody most likely meant.
//!
//! In: a word with a typing error, and the words that exist. Out: the nearest one, if it is near at all.

/// The known word with the fewest edits; `None` when even that is more than a third of the word away.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance: insertions, deletions and replacements of characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_meant() {
        let known = ["listen", "upstream", "journal"];
        assert_eq!(nearest("listn", known), Some("listen"));
        assert_eq!(nearest("jornal", known), Some("journal"));
        assert_eq!(nearest("telephone", known), None);
    }

    #[test]
    fn distances_are_levenshteins() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
