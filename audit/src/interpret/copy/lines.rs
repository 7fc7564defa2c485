//! The data of COPY as lines of cells.
//!
//! Source: PostgreSQL manual, COPY, «Text Format» and «CSV Format».

use crate::sql::plan::CopyFormat;

/// The cells of every line; `None` in a cell is NULL. `None`: the data are not well-formed, or not modelled.
pub fn lines(text: &str, format: &CopyFormat, width: usize) -> Option<Vec<Vec<Option<String>>>> {
    let mut rows = match format.csv {
        true => csv(text, format)?,
        false => plain(text, format, width)?,
    };
    if format.header && !rows.is_empty() {
        rows.remove(0);
    }
    Some(rows)
}

fn plain(text: &str, format: &CopyFormat, width: usize) -> Option<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    if text.is_empty() {
        return Some(rows);
    }
    let text = text.strip_suffix('\n').unwrap_or(text);
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line == "\\." {
            break;
        }
        if width == 0 {
            rows.push(Vec::new());
            continue;
        }
        let mut row = Vec::new();
        for cell in cells(line, format.delimiter as char) {
            row.push(match cell == format.null {
                true => None,
                false => Some(unescape(cell)?),
            });
        }
        rows.push(row);
    }
    Some(rows)
}

/// Cuts a line at its delimiters; one behind a backslash is data.
fn cells(line: &str, delimiter: char) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (place, character) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == delimiter {
            found.push(&line[start..place]);
            start = place + character.len_utf8();
        }
    }
    found.push(&line[start..]);
    found
}

/// Backslash sequences; `None` where bytes are given that make no character by themselves.
fn unescape(cell: &str) -> Option<String> {
    if !cell.contains('\\') {
        return Some(cell.to_owned());
    }
    let mut result = String::with_capacity(cell.len());
    let mut characters = cell.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        let Some(next) = characters.next() else {
            result.push('\\');
            break;
        };
        match next {
            'b' => result.push('\u{8}'),
            'f' => result.push('\u{c}'),
            'n' => result.push('\n'),
            'r' => result.push('\r'),
            't' => result.push('\t'),
            'v' => result.push('\u{b}'),
            '0'..='7' => {
                let mut code = next.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = characters.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    characters.next();
                }
                result.push(ascii(code & 0xff)?);
            }
            'x' => {
                let mut code = None;
                for _ in 0..2 {
                    let Some(digit) = characters.peek().and_then(|c| c.to_digit(16)) else {
                        break;
                    };
                    code = Some(code.unwrap_or(0) * 16 + digit);
                    characters.next();
                }
                match code {
                    Some(code) => result.push(ascii(code)?),
                    None => result.push('x'),
                }
            }
            other => result.push(other),
        }
    }
    Some(result)
}

fn ascii(code: u32) -> Option<char> {
    char::from_u32(code).filter(|c| c.is_ascii() && *c != '\0')
}

fn csv(text: &str, format: &CopyFormat) -> Option<Vec<Vec<Option<String>>>> {
    let (quote, escape) = (format.quote as char, format.escape as char);
    let delimiter = format.delimiter as char;
    let mut rows = Vec::new();
    let mut characters = text.chars().peekable();
    while characters.peek().is_some() {
        let mut row = Vec::new();
        let mut whole = String::new();
        let ends = loop {
            let (mut cell, mut quoted) = (String::new(), false);
            let end = loop {
                match characters.next() {
                    None => break None,
                    Some('\r') if characters.peek() == Some(&'\n') => {}
                    Some('\n') => break Some('\n'),
                    Some(c) if c == delimiter => break Some(c),
                    Some(c) if c == quote => {
                        quoted = true;
                        loop {
                            let c = characters.next()?;
                            let next = characters.peek().copied();
                            if c == escape && next.is_some_and(|n| n == quote || n == escape) {
                                cell.extend(characters.next());
                            } else if c == quote {
                                break;
                            } else {
                                cell.push(c);
                            }
                        }
                    }
                    Some(c) => cell.push(c),
                }
            };
            if row.is_empty() && !quoted {
                whole.clone_from(&cell);
            }
            row.push((quoted || cell != format.null).then_some(cell));
            match end {
                Some(c) if c != '\n' => {}
                other => break other,
            }
        };
        if row.len() == 1 && whole == "\\." {
            break;
        }
        rows.push(row);
        if ends.is_none() {
            break;
        }
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(csv: bool) -> CopyFormat {
        CopyFormat {
            csv,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            ..CopyFormat::default()
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn text_is_read_as_the_manual_says() {
        let read = lines("1\ta\\tb\\\\c\n\\N\t\\101\\x42\n3\t\n\\.\n", &format(false), 2);
        let expected = vec![
            vec![some("1"), some("a\tb\\c")],
            vec![None, some("AB")],
            vec![some("3"), some("")],
        ];
        assert_eq!(read, Some(expected));
        assert_eq!(
            lines("a\\\tb\n", &format(false), 1),
            Some(vec![vec![some("a\tb")]])
        );
        assert_eq!(lines("", &format(false), 1), Some(Vec::new()));
        assert_eq!(lines("\n", &format(false), 1), Some(vec![vec![some("")]]));
    }

    #[test]
    fn csv_is_read_as_the_manual_says() {
        let read = lines("1,\"a,\"\"b\"\"\nc\"\r\n,\"\"\n2,x", &format(true), 2);
        let expected = vec![
            vec![some("1"), some("a,\"b\"\nc")],
            vec![None, some("")],
            vec![some("2"), some("x")],
        ];
        assert_eq!(read, Some(expected));
        assert_eq!(lines("1,\"open", &format(true), 2), None);
        let header = CopyFormat {
            header: true,
            ..format(true)
        };
        assert_eq!(lines("a\n1\n", &header, 1), Some(vec![vec![some("1")]]));
    }
}
