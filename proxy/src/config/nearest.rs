//! The known word that a mistyped one most likely meant.

/// The entry of `known` with the smallest edit distance to `word`, if it is near enough to be a guess.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (distance(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 2 + candidate.len().max(word.len()) / 2)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mistyped_key() {
        let known = ["listen", "upstream", "journal.dir", "journal.bytes_max"];
        assert_eq!(nearest("listten", known.into_iter()), Some("listen"));
        assert_eq!(
            nearest("journal.directory", known.into_iter()),
            Some("journal.dir")
        );
        assert_eq!(nearest("zzzzzzzzzzzzzzzzzzzz", known.into_iter()), None);
    }
}
