//! Sizes of each crate in one table, for comparison with other code bases.

use crate::scan::{Source, has_word};
use std::collections::BTreeMap;
use std::fmt::Write;

const HEAD: &str = "\
| crate | files | lines | file p50/p90/max | fn p50/p90/p99/max | comment | test \
| unsafe blocks (files) | asserts /1k (shipped) |
|---|--:|--:|---|---|--:|--:|---|---|
";

const ASSERTS: &[&str] = &[
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
];

/// Counts of one crate.
#[derive(Default)]
struct Counts {
    file_lines: Vec<usize>,
    /// Lines between the braces of functions that ship.
    function_lines: Vec<usize>,
    comment_lines: usize,
    test_lines: usize,
    unsafe_blocks: usize,
    unsafe_files: usize,
    asserts: usize,
    shipped_asserts: usize,
}

/// The table in Markdown: a row for each crate, the largest first, and one for all of them.
pub(crate) fn table(sources: &[Source]) -> String {
    let mut crates: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut all = Counts::default();
    for source in sources {
        crates.entry(source.krate()).or_default().add(source);
        all.add(source);
    }
    let mut rows: Vec<(&str, Counts)> = crates.into_iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.lines()));
    rows.push(("all", all));
    let mut text = HEAD.to_owned();
    for (name, counts) in rows {
        counts.write(name, &mut text);
    }
    text
}

impl Counts {
    fn lines(&self) -> usize {
        self.file_lines.iter().sum()
    }

    fn add(&mut self, source: &Source) {
        let lines = source.text.lines().count();
        let body = if source.is_test_file() { 0 } else { source.body_lines };
        self.file_lines.push(lines);
        self.test_lines += lines - body;
        let functions = source.functions().into_iter().filter(|f| f.line <= body);
        self.function_lines.extend(functions.map(|f| f.lines));
        let mut unsafe_blocks = 0;
        for (at, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
            let only_comment = code.trim().is_empty() && !comment.trim().is_empty();
            self.comment_lines += usize::from(only_comment);
            unsafe_blocks += code.matches("unsafe {").count();
            let asserts = ASSERTS.iter().filter(|name| has_word(code, name)).count();
            self.asserts += asserts;
            self.shipped_asserts += if at < body { asserts } else { 0 };
        }
        self.unsafe_blocks += unsafe_blocks;
        self.unsafe_files += usize::from(unsafe_blocks > 0);
    }

    fn write(mut self, name: &str, text: &mut String) {
        let lines = self.lines();
        self.file_lines.sort_unstable();
        self.function_lines.sort_unstable();
        let (files, functions) = (&self.file_lines, &self.function_lines);
        let percent = |part: usize| (100 * part + lines / 2) / lines.max(1);
        let per_1000 = |count: usize, of: usize| {
            let tenths = (10_000 * count + of / 2) / of.max(1);
            format!("{}.{}", tenths / 10, tenths % 10)
        };
        let shipped = lines - self.test_lines;
        writeln!(
            text,
            "| {name} | {} | {lines} | {}/{}/{} | {}/{}/{}/{} | {}% | {}% | {} ({}) | {} ({}) |",
            files.len(),
            quantile(files, 50),
            quantile(files, 90),
            quantile(files, 100),
            quantile(functions, 50),
            quantile(functions, 90),
            quantile(functions, 99),
            quantile(functions, 100),
            percent(self.comment_lines),
            percent(self.test_lines),
            self.unsafe_blocks,
            self.unsafe_files,
            per_1000(self.asserts, lines),
            per_1000(self.shipped_asserts, shipped),
        )
        .expect("a string takes all");
    }
}

/// The smallest value that `percent` of the sorted values do not exceed; 0 if there are none.
fn quantile(sorted: &[usize], percent: usize) -> usize {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table__counts_are_those_of_the_files() {
        let body =
            "//! Doc.\nfn a() {\n    assert!(x); // why\n    unsafe { y() }\n}\nfn b() {}\n\n";
        let tests =
            "#[cfg(test)]\nmod tests {\n    fn c() {\n        assert_eq!(1, 1);\n    }\n}\n";
        let sources = [
            Source::new("io/src/a.rs", &format!("{body}{tests}")),
            Source::new("io/src/b.rs", "// one\n"),
            Source::new("wire/tests/c.rs", "fn d() {\n    x();\n}\n"),
        ];
        let found = table(&sources);
        let rows: Vec<&str> = found.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| io | 2 | 14 | 1/13/13 | 0/2/2/2 | 14% | 43% | 1 (1) | 142.9 (125.0) |",
                "| wire | 1 | 3 | 3/3/3 | 0/0/0/0 | 0% | 100% | 0 (0) | 0.0 (0.0) |",
                "| all | 3 | 17 | 3/13/13 | 0/2/2/2 | 12% | 53% | 1 (1) | 117.6 (125.0) |",
            ]
        );
        assert_eq!(found.lines().next().map(|l| l.matches('|').count()), Some(10));
    }

    #[test]
    fn quantile__of_few_and_of_many() {
        assert_eq!(quantile(&[], 50), 0);
        assert_eq!(quantile(&[7], 99), 7);
        let many: Vec<usize> = (1..=100).collect();
        assert_eq!([50, 90, 99, 100].map(|p| quantile(&many, p)), [50, 90, 99, 100]);
    }
}
