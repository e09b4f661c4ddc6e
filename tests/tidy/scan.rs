//! A scanner of Rust that separates code, comments and literals, and finds functions.
//!
//! It handles strings, raw strings, characters, lifetimes, nested comments and braces. The rules
//! need no full parser, and a scan takes microseconds a file.

/// One Rust file, split into code and comments.
pub(crate) struct Source {
    /// From the root of the workspace, with `/`.
    pub(crate) path: String,
    /// The unmodified text.
    pub(crate) text: String,
    /// The text with comments and the contents of literals blanked: same length, same lines.
    pub(crate) code: String,
    /// The text with everything but comments blanked: same length, same lines.
    pub(crate) comments: String,
    /// Lines above the `#[cfg(test)]` module at the bottom; all lines if there is none.
    pub(crate) body_lines: usize,
}

/// One function with a body.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of the `fn`, from 1.
    pub(crate) line: usize,
    /// Lines strictly between its braces.
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let body_lines = test_module_line(&code).unwrap_or_else(|| code.lines().count());
        Self { path: path.to_owned(), text: text.to_owned(), code, comments, body_lines }
    }

    /// The crate's folder: the first part of the path.
    pub(crate) fn krate(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// True if nothing in the file ships: a folder `tests`, `benches` or `examples`, a file
    /// `tests.rs` or `testing.rs`.
    pub(crate) fn is_test_file(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.next() == Some("tests")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("/testing.rs")
            || self.path.contains("/tests/")
            || self.path.contains("/benches/")
            || self.path.contains("/examples/")
    }

    /// The code of each line, with its number from 1; without tests if `shipped`.
    pub(crate) fn code_lines(&self, shipped: bool) -> impl Iterator<Item = (usize, &str)> {
        let take = match (shipped, self.is_test_file()) {
            (true, true) => 0,
            (true, false) => self.body_lines,
            (false, _) => usize::MAX,
        };
        (1..).zip(self.code.lines()).take(take)
    }

    /// Every function with a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        functions(&self.code)
    }
}

/// Splits a text into its code and its comments, each with the other blanked.
fn split(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut comments = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (end, kind) = token(bytes, at);
        for (i, byte) in bytes[at..end].iter().enumerate() {
            let edge = i == 0 || at + i + 1 == end;
            let keep = match kind {
                Kind::Code => (true, false),
                Kind::Comment => (false, true),
                Kind::Literal => (edge, false),
            };
            let blank = if *byte == b'\n' { b'\n' } else { b' ' };
            code.push(if keep.0 { *byte } else { blank });
            comments.push(if keep.1 { *byte } else { blank });
        }
        at = end;
    }
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&code), text(&comments))
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The end and the kind of the token that begins at `at`. A word is one token, so that the `r` of
/// `for"` or the `b` of `sub'` does not begin a literal.
fn token(bytes: &[u8], at: usize) -> (usize, Kind) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return (at + len, Kind::Comment);
    }
    if rest.starts_with(b"/*") {
        return (at + block_comment(rest), Kind::Comment);
    }
    if rest[0] == b'"' {
        return (at + quoted(rest, b'"'), Kind::Literal);
    }
    if rest[0] == b'\'' {
        return match char_literal(rest) {
            Some(len) => (at + len, Kind::Literal),
            None => (at + 1, Kind::Code),
        };
    }
    if !is_word(rest[0]) {
        return (at + 1, Kind::Code);
    }
    let len = rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(len);
    if matches!(word, b"r" | b"br" | b"cr")
        && let Some(raw) = raw_string(after)
    {
        return (at + len + raw, Kind::Literal);
    }
    (at + len, Kind::Code)
}

/// The length of a comment `/* .. */`, nested ones included.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a literal in `quote`s, with escapes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal, or `None` for a lifetime.
fn char_literal(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    // One character of any width, then the quote.
    let width = match rest.get(1)? {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// The length of `#*".."#*`, or `None` if something else follows (`r#fn`).
fn raw_string(after: &[u8]) -> Option<usize> {
    let hashes = after.iter().take_while(|b| **b == b'#').count();
    if after.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = hashes + 1;
    let len = after[body..]
        .windows(close.len())
        .position(|w| w == close)
        .map_or(after.len(), |at| body + at + close.len());
    Some(len)
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// True if `word` occurs in `line` as a whole word. A `word` may begin or end with punctuation,
/// which then is its boundary on that side: `f32`, `.unwrap()`, `thread::`.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let (bytes, wanted) = (line.as_bytes(), word.as_bytes());
    let open = |at: Option<&u8>, edge: u8| !is_word(edge) || at.is_none_or(|b| !is_word(*b));
    line.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i));
        open(before, wanted[0]) && open(bytes.get(at + word.len()), wanted[wanted.len() - 1])
    })
}

/// Number of lines above the test module at the bottom.
fn test_module_line(code: &str) -> Option<usize> {
    let lines: Vec<&str> = code.lines().collect();
    let at = lines.iter().rposition(|line| *line == "#[cfg(test)]")?;
    let module = lines[at + 1..].iter().find(|line| !line.starts_with("#["))?;
    let inline = module.contains("mod ") && module.ends_with('{');
    inline.then_some(at)
}

/// The functions in blanked code.
fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
            continue;
        }
        let end = word_end(bytes, at);
        if &bytes[at..end] == b"fn"
            && let Some(function) = function_at(code, end, line)
        {
            found.push(function);
        }
        at = end;
    }
    found
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    let len = bytes[at..].iter().position(|b| !is_word(*b));
    len.map_or(bytes.len(), |len| at + len)
}

/// The function whose `fn` ends at `at`; `None` for a type `fn(..)` or one without a body.
fn function_at(code: &str, at: usize, line: usize) -> Option<Function> {
    let bytes = code.as_bytes();
    let start = at + bytes[at..].iter().position(|b| !b.is_ascii_whitespace())?;
    if !is_word(bytes[start]) {
        return None;
    }
    let name = code[start..word_end(bytes, start)].to_owned();
    let mut nested = 0;
    let open = start
        + bytes[start..].iter().position(|b| {
            match b {
                b'(' | b'[' => nested += 1,
                b')' | b']' => nested -= 1,
                _ => {}
            }
            nested == 0 && matches!(b, b'{' | b';')
        })?;
    if bytes[open] == b';' {
        return None;
    }
    let mut depth = 0;
    let len = bytes[open..].iter().position(|b| {
        match b {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let breaks = bytes[open..open + len].iter().filter(|b| **b == b'\n');
    let lines = breaks.count().saturating_sub(1);
    Some(Function { name, line, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, code: &str) {
        let (got, comments) = split(text);
        assert_eq!(got, code);
        assert_eq!((got.len(), comments.len()), (text.len(), text.len()));
    }

    #[test]
    fn split__comments_of_every_kind() {
        check("a // b\nc", "a     \nc");
        check("a /* b\n c */ d", "a     \n      d");
        check("/* a /* b */ c */ d", "                  d");
        check("/// \"a\nb", "      \nb");
        let (_, comments) = split("a // b\nc /* d */");
        assert_eq!(comments, "  // b\n  /* d */");
    }

    #[test]
    fn split__strings_with_escapes_and_line_ends() {
        check(r#"f("// {", x)"#, r#"f("    ", x)"#);
        check(r#"f("\"{", x)"#, r#"f("   ", x)"#);
        check(r#"f("\\", "}")"#, r#"f("  ", " ")"#);
        check("\"a\nb\" c", "\" \n \" c");
        check(r#"b"{" c"{""#, r#"b" " c" ""#);
    }

    #[test]
    fn split__raw_strings_and_raw_names() {
        check(r##"r"\" {"##, r##"r  " {"##);
        check(r##"r#"a"b"# {"##, r##"r      # {"##);
        check("r#fn()", "r#fn()");
        check("for \"{\"", "for \" \"");
    }

    #[test]
    fn split__characters_and_lifetimes() {
        check("'{' 'a", "' ' 'a");
        check(r"'\'' '\\' x", r"'  ' '  ' x");
        check("fn f<'a>(x: &'a str) -> char { 'b' }", "fn f<'a>(x: &'a str) -> char { ' ' }");
        check("'\u{e9}' {", "'  ' {");
        check("b'{' }", "b' ' }");
    }

    #[test]
    fn has_word__is_bounded_where_the_word_ends_in_letters() {
        assert!(has_word("let x: f32 = 1", "f32"));
        assert!(!has_word("let x = f32x4()", "f32"));
        assert!(!has_word("as_f32()", "f32"));
        assert!(has_word("std::thread::spawn", "thread::"));
        assert!(!has_word("mythread::spawn", "thread::"));
        assert!(has_word("x.unwrap();", ".unwrap()"));
        assert!(!has_word("x.unwrap_or(1)", ".unwrap()"));
    }

    #[test]
    fn source__cuts_the_test_module_at_the_bottom() {
        let inline = Source::new("base/src/a.rs", "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(inline.body_lines, 2);
        let outside = Source::new("base/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests;\n");
        assert_eq!(outside.body_lines, 3);
        let text = "#[cfg(test)]\n#[expect(x)]\nmod tests {}\nfn b() {\n";
        assert_eq!(Source::new("base/src/a.rs", text).body_lines, 4);
    }

    #[test]
    fn source__knows_test_files() {
        let is = |path| Source::new(path, "").is_test_file();
        assert!(is("tests/tidy.rs") && is("io/src/pipe/tests.rs") && is("wire/tests/a.rs"));
        assert!(!is("io/src/pipe.rs") && !is("wire/src/contests.rs"));
    }

    #[test]
    fn functions__are_measured_between_their_braces() {
        let text = "fn a() {}\nfn b(\n) -> [u8; { 2 }]\nwhere T: X {\n  1;\n  2;\n}\n";
        let found = functions(&Source::new("a.rs", text).code);
        let of = |name: &str, line, lines| Function { name: name.to_owned(), line, lines };
        assert_eq!(found, [of("a", 1, 0), of("b", 2, 2)]);
    }

    #[test]
    fn functions__nested_ones_are_found_and_types_and_declarations_are_not() {
        let text = "trait T { fn a(&self); }\ntype F = fn(u8) -> u8;\nfn b() {\n  fn c() {\n    \
                    let x = \"}\";\n    let y = '}';\n  }\n}\n";
        let found = functions(&Source::new("a.rs", text).code);
        let shape: Vec<_> = found.iter().map(|f| (&*f.name, f.line, f.lines)).collect();
        assert_eq!(shape, [("b", 3, 4), ("c", 4, 2)]);
    }
}
