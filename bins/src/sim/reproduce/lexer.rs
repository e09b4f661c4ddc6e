//! Tokens of expressions.

use std::fmt;

/// A token.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    Number(f64),
    /// A function, `and` or `or`.
    Word(String),
    /// `RUN:PATH`
    Metric {
        run: String,
        path: String,
    },
    /// An operator, a parenthesis or a comma.
    Sign(&'static str),
}

impl Token {
    /// True for the sign or the word `text`.
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Self::Sign(sign) => *sign == text,
            Self::Word(word) => word == text,
            Self::Number(_) | Self::Metric { .. } => false,
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Word(word) => write!(f, "{word}"),
            Self::Metric { run, path } => write!(f, "{run}:{path}"),
            Self::Sign(sign) => write!(f, "{sign}"),
        }
    }
}

/// The tokens of `text`.
///
/// # Errors
/// A character begins no token, or a number is none.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let taken = if first.is_ascii_digit() {
            let n = number_len(rest);
            let number = rest[..n].parse().map_err(|_| format!("{} is no number", &rest[..n]))?;
            all.push(Token::Number(number));
            n
        } else if first.is_ascii_alphabetic() || first == '{' {
            let n = word_len(rest);
            all.push(match rest[..n].split_once(':') {
                Some((run, path)) => Token::Metric { run: run.to_owned(), path: path.to_owned() },
                None => Token::Word(rest[..n].to_owned()),
            });
            n
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("unexpected {first}"))?;
            all.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[taken..].trim_start();
    }
    Ok(all)
}

/// Digits, a point, and an exponent.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_of_number = |i: usize| match bytes[i] {
        b'0'..=b'9' | b'.' | b'e' => true,
        b'-' => bytes[i - 1] == b'e',
        _ => false,
    };
    (1..bytes.len()).find(|i| !is_of_number(*i)).unwrap_or(bytes.len())
}

/// A name has letters, digits, `_`, `.`, `:` and `-`, and anything within brackets and braces. A
/// subtraction therefore needs a space before its sign.
fn word_len(text: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth > 0 || c.is_ascii_alphanumeric() || "_.:-".contains(c) => {}
            _ => return at,
        }
    }
    text.len()
}

/// A sign that begins with another one is before it.
const SIGNS: [&str; 11] = ["<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", ","];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens__names_have_points_and_hyphens() {
        let metric =
            |run: &str, path: &str| Token::Metric { run: run.to_owned(), path: path.to_owned() };
        assert_eq!(
            tokens("1e-3*a.{x, y}.pacc-timer:g[name=in ter].p99 -2.5").expect("they are tokens"),
            [
                Token::Number(1e-3),
                Token::Sign("*"),
                metric("a.{x, y}.pacc-timer", "g[name=in ter].p99"),
                Token::Sign("-"),
                Token::Number(2.5),
            ]
        );
        assert_eq!(
            tokens("max(a:b)<=1").expect("they are tokens")[..3],
            [Token::Word("max".to_owned()), Token::Sign("("), metric("a", "b")]
        );
    }

    #[test]
    fn tokens__rejects_others() {
        assert!(tokens("1.2.3").is_err() && tokens("a = 1").is_err() && tokens("µ").is_err());
    }
}
