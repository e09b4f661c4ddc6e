//! Imports between the files of a crate: paths in code, resolved through re-exports.
//!
//! The parser handles only `use` trees, `crate::`, `super::` and `self::` paths, and paths that
//! begin with a module declared in the same file. A method call names no file, so an `impl` of a
//! parent's type in a child counts only as the child's import of that type.

use crate::scan::{Source, is_word};
use std::collections::BTreeMap;

/// File `from` names an item that is defined in file `to`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Import {
    /// From the root of the workspace.
    pub(crate) from: String,
    /// Line of the first mention, from 1.
    pub(crate) line: usize,
    pub(crate) to: String,
}

/// The imports between the files below `folder` (`crate/src`), one for each pair, without tests.
///
/// `mod child;` is no import, and neither is `pub use child::X` of a file's own descendant: an
/// import of a re-exported item is resolved to the file that defines it. Every other mention
/// counts, including those of a parent by its child and of a child by its parent.
pub(crate) fn imports(sources: &[Source], folder: &str) -> Vec<Import> {
    let shipped = |s: &&Source| s.path.starts_with(&format!("{folder}/")) && !s.is_test_file();
    let files: Vec<File> =
        sources.iter().filter(shipped).map(|source| File::new(source, folder)).collect();
    let modules = modules(&files);
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for file in &files {
        for mention in &file.mentions {
            let Some(target) = resolve(&mention.path, &modules, 0) else {
                continue;
            };
            let own = target.path == file.path;
            let lent = mention.reexport && target.module.starts_with(&file.module);
            if !own && !lent {
                let key = (file.path.clone(), target.path.clone());
                found.entry(key).or_insert(mention.line);
            }
        }
    }
    let import = |((from, to), line)| Import { from, line, to };
    found.into_iter().map(import).collect()
}

/// The file of each module. A command beside a library names its items by the name of the crate, so
/// `crate::` is the library there.
fn modules(files: &[File]) -> BTreeMap<&[String], &File> {
    let main = files.iter().filter(|file| file.path.ends_with("/src/main.rs"));
    let rest = files.iter().filter(|file| !file.path.ends_with("/src/main.rs"));
    main.chain(rest).map(|file| (&*file.module, file)).collect()
}

/// One file as a module.
struct File {
    path: String,
    /// `qp::state` as a list; the crate's root is empty.
    module: Vec<String>,
    mentions: Vec<Mention>,
}

/// A path in code, from the crate's root.
struct Mention {
    line: usize,
    path: Vec<String>,
    /// The name that a `use` gives it in its file.
    name: Option<String>,
    /// A `use` with a visibility.
    reexport: bool,
}

/// The file that defines the item at `path`: that of the longest prefix that is a module, or, if
/// that module imports the item by a `use`, the source of that import.
fn resolve<'a>(
    path: &[String],
    modules: &BTreeMap<&[String], &'a File>,
    depth: usize,
) -> Option<&'a File> {
    let (len, file) =
        (0..=path.len()).rev().find_map(|len| Some((len, *modules.get(&path[..len])?)))?;
    let Some(item) = path.get(len).filter(|_| depth < 8) else {
        return Some(file);
    };
    match file.mentions.iter().find(|m| m.name.as_ref() == Some(item) && m.path != path) {
        Some(import) => resolve(&import.path, modules, depth + 1),
        None => Some(file),
    }
}

impl File {
    fn new(source: &Source, folder: &str) -> Self {
        let inside = &source.path[folder.len() + 1..];
        let mut module: Vec<String> =
            inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let lines: Vec<&str> = source.code_lines(true).map(|(_, line)| line).collect();
        let tokens = tokens(&lines);
        let (children, inline) = (Vec::new(), Vec::new());
        let mut reader = Reader { tokens: &tokens, at: 0, module: &module, children, inline };
        reader.children = reader.declared();
        let mentions = reader.mentions();
        Self { path: source.path.clone(), module, mentions }
    }
}

/// Words, `::` and single signs, with their lines.
fn tokens<'a>(lines: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let bytes = line.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let len = if is_word(bytes[at]) {
                bytes[at..].iter().position(|b| !is_word(*b)).unwrap_or(bytes.len() - at)
            } else if bytes[at..].starts_with(b"::") {
                2
            } else {
                1
            };
            if !bytes[at].is_ascii_whitespace() {
                found.push((number, line.get(at..at + len).unwrap_or("?")));
            }
            at += len;
        }
    }
    found
}

struct Reader<'a> {
    tokens: &'a [(usize, &'a str)],
    at: usize,
    module: &'a [String],
    /// Modules that the file declares.
    children: Vec<&'a str>,
    /// Modules with a body that the position is in, with the depth of their braces.
    inline: Vec<(&'a str, usize)>,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).map_or("", |(_, token)| token)
    }

    fn declared(&self) -> Vec<&'a str> {
        let words = self.tokens.windows(3);
        words.filter(|w| w[0].1 == "mod" && w[2].1 == ";").map(|w| w[1].1).collect()
    }

    fn mentions(&mut self) -> Vec<Mention> {
        let mut found = Vec::new();
        let mut visible = false;
        let mut before = "";
        let mut depth = 0;
        while self.at < self.tokens.len() {
            let token = self.peek(0);
            match token {
                "mod" if self.peek(2) == "{" => self.inline.push((self.peek(1), depth)),
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    self.inline.pop_if(|(_, outer)| *outer == depth);
                }
                "#" if self.is_test_attribute() => self.skip_item(),
                "pub" => {
                    visible = true;
                    self.at += 1;
                    self.skip_group();
                    before = "pub";
                    continue;
                }
                "use" => {
                    self.at += 1;
                    self.tree(&[], visible, &mut found);
                }
                _ if before != "::" && self.peek(1) == "::" => {
                    let line = self.tokens[self.at].0;
                    let path = self.path();
                    let path = self.absolute(&path);
                    found.extend(path.map(|path| Mention {
                        line,
                        path,
                        name: None,
                        reexport: false,
                    }));
                }
                _ => {}
            }
            visible = false;
            before = self.peek(0);
            self.at += 1;
        }
        found
    }

    /// `#[cfg(test)]`: the following code does not ship.
    fn is_test_attribute(&self) -> bool {
        (1..=5).map(|ahead| self.peek(ahead)).eq(["[", "cfg", "(", "test", ")"])
    }

    /// Skips to the end of the item after an attribute: its `;` or its closing brace.
    fn skip_item(&mut self) {
        let mut depth = 0;
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "{" | "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                "}" => {
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                ";" if depth == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// `(crate)`, `(in crate::qp)`: after a `pub`.
    fn skip_group(&mut self) {
        if self.peek(0) == "(" && matches!(self.peek(1), "crate" | "super" | "self" | "in") {
            while !matches!(self.peek(0), ")" | "") {
                self.at += 1;
            }
            self.at += 1;
        }
    }

    /// The words of `a::b::C`; the position afterwards is that of the last word.
    fn path(&mut self) -> Vec<&'a str> {
        let mut words = vec![self.peek(0)];
        while self.peek(1) == "::" && self.peek(2).bytes().next().is_some_and(is_word) {
            self.at += 2;
            words.push(self.peek(0));
        }
        words
    }

    /// One tree of a `use`, up to its `;`, `,` or `}`.
    fn tree(&mut self, prefix: &[&'a str], reexport: bool, found: &mut Vec<Mention>) {
        let line = self.tokens.get(self.at).map_or(0, |(line, _)| *line);
        let mut path = prefix.to_vec();
        loop {
            match self.peek(0) {
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(0), "}" | ";" | "") {
                        self.tree(&path, reexport, found);
                        if self.peek(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "::" | "*" => {}
                "as" => {
                    let name = self.peek(1).to_owned();
                    self.at += 2;
                    return self.add(line, &path, Some(name), reexport, found);
                }
                ";" | "," | "}" | "" => {
                    let name = path.last().map(|name| (*name).to_owned());
                    return self.add(line, &path, name, reexport, found);
                }
                word => path.push(word),
            }
            self.at += 1;
        }
    }

    fn add(
        &self,
        line: usize,
        path: &[&str],
        name: Option<String>,
        reexport: bool,
        found: &mut Vec<Mention>,
    ) {
        // `use a::{self}` names the module itself.
        let path = if path.len() > 1 && path.last() == Some(&"self") {
            &path[..path.len() - 1]
        } else {
            path
        };
        if let Some(path) = self.absolute(path) {
            found.push(Mention { line, path, name, reexport });
        }
    }

    /// The path from the crate's root; `None` for an item of another crate or of no module.
    fn absolute(&self, path: &[&str]) -> Option<Vec<String>> {
        let mut base = self.module.to_vec();
        let inline = self.inline.iter().map(|(name, _)| (*name).to_owned());
        let mut rest = path;
        match rest.first().copied()? {
            "crate" => (base, rest) = (Vec::new(), &rest[1..]),
            "self" => {
                base.extend(inline);
                rest = &rest[1..];
            }
            "super" => {
                base.extend(inline);
                while rest.first() == Some(&"super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            word if self.children.contains(&word) => {}
            _ => return None,
        }
        base.extend(rest.iter().map(|word| (*word).to_owned()));
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(name, text)| Source::new(&format!("x/src/{name}"), text)).collect();
        let short = |path: &str| path.trim_start_matches("x/src/").to_owned();
        let found = imports(&sources, "x/src").into_iter();
        found.map(|i| format!("{}:{} {}", short(&i.from), i.line, short(&i.to))).collect()
    }

    #[test]
    fn imports__uses_and_paths_of_every_form() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
            ("a.rs", "mod c;\nuse crate::b::{self, B as Other, deep::D};\nstruct A;\n"),
            ("a/c.rs", "use super::super::b::B;\nfn f() -> super::A { x }\n"),
            ("b.rs", "pub(crate) mod deep;\nfn g() { let x = deep::D::new(); }\nstruct B;\n"),
            ("b/deep.rs", "fn h(x: &crate::A) {}\n// use crate::b::B;\n"),
        ];
        assert_eq!(
            of(&files),
            [
                "a.rs:2 b.rs",
                "a.rs:2 b/deep.rs",
                "a/c.rs:2 a.rs",
                "a/c.rs:1 b.rs",
                "b.rs:2 b/deep.rs",
                "b/deep.rs:1 a.rs",
            ]
        );
    }

    #[test]
    fn imports__reexports_lead_on_and_are_none_of_the_parent() {
        let files = [
            ("lib.rs", "mod qp;\nmod user;\n"),
            ("qp/mod.rs", "mod state;\nmod flow;\npub(crate) use state::State;\nuse flow::Flow;\n"),
            ("qp/state.rs", "pub(in crate::qp) struct State;\n"),
            ("qp/flow.rs", "use super::State;\npub(crate) struct Flow;\n"),
            ("user.rs", "use crate::qp::{State};\nuse spanwire_base::qp::X;\nuse std::fmt;\n"),
        ];
        assert_eq!(
            of(&files),
            ["qp/flow.rs:1 qp/state.rs", "qp/mod.rs:4 qp/flow.rs", "user.rs:1 qp/state.rs"]
        );
    }

    #[test]
    fn imports__the_root_is_the_library_if_there_is_one() {
        let shared = ("a.rs", "use crate::X;\nstruct A;\n");
        let library = ("lib.rs", "mod a;\npub struct X;\n");
        let command = ("main.rs", "mod b;\nuse b::B;\nuse x::X;\nfn main() {}\n");
        let part = ("b.rs", "pub struct B;\n");
        assert_eq!(of(&[shared, library, command, part]), ["a.rs:1 lib.rs", "main.rs:2 b.rs"]);
        assert_eq!(of(&[("main.rs", "mod a;\nstruct X;\n"), shared]), ["a.rs:1 main.rs"]);
    }

    #[test]
    fn imports__modules_with_a_body_are_part_of_their_file() {
        let files = [
            ("lib.rs", "mod a;\npub struct X;\n"),
            ("a.rs", "const C: u8 = 1;\nmod one {\nuse super::C;\nfn f() {}\n}\nmod two {\n}\n"),
        ];
        assert_eq!(of(&files), [] as [&str; 0]);
        let after = ("a.rs", "mod one {\nmod in_one {}\nuse super::super::X;\n}\nuse super::X;\n");
        assert_eq!(of(&[files[0], after]), ["a.rs:3 lib.rs"]);
        let after = ("a.rs", "mod one {\nmod in_one {}\n}\nuse super::X;\n");
        assert_eq!(of(&[files[0], after]), ["a.rs:4 lib.rs"]);
    }

    #[test]
    fn imports__tests_do_not_count() {
        let files = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nuse a::A;\n#[cfg(test)]\nmod testing;\nfn f() {}\n"),
            ("a.rs", "struct A;\n#[cfg(test)]\nmod tests {\nuse crate::f;\n}\n"),
            ("testing.rs", "use crate::a::A;\n"),
            ("a/tests.rs", "use super::A;\n"),
        ];
        assert_eq!(of(&files), [] as [&str; 0]);
    }
}
