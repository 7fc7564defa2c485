//! Small text matters that the types' readers share.

/// isspace of the C locale.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Without leading and trailing white space.
pub fn trim_space(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8))
}

/// Without trailing blanks, as bpchar is compared and cast.
pub fn trim_blanks(text: &str) -> &str {
    text.trim_end_matches(' ')
}

/// How many characters; bytes that continue a character are not counted.
pub fn char_count(text: &str) -> usize {
    text.chars().count()
}

/// The byte position of character number `index`, or the end.
pub fn byte_of_char(text: &str, index: usize) -> usize {
    text.char_indices().nth(index).map_or(text.len(), |(at, _)| at)
}
