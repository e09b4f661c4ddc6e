//! The grammar of expressions and conditions.
//!
//! A name has letters, digits, `_`, `.`, `:` and `-`, and anything within brackets and braces. A
//! subtraction therefore needs a space before its sign.

use super::tree::{Chain, Function, Node};
use winnow::ascii::{float, multispace0};
use winnow::combinator::{
    alt, delimited, peek, preceded, repeat, separated, separated_foldl1, separated_pair,
};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::token::{one_of, take_till, take_while};

pub(super) type Parsed<T> = winnow::Result<T, EmptyError>;

/// Parses all of `text` by `grammar`.
pub(super) fn parse<T>(text: &str, mut grammar: fn(&mut &str) -> Parsed<T>) -> Result<T, String> {
    grammar.parse(text).map_err(|e| match &text[e.offset()..] {
        "" => format!("`{text}`: it ends too early"),
        rest => format!("`{text}`: unexpected `{rest}`"),
    })
}

/// Alternatives of comparisons.
pub(super) fn alternatives(input: &mut &str) -> Parsed<Vec<Vec<Chain>>> {
    separated(1.., separated::<_, _, Vec<_>, _, _, _, _>(1.., chain, sign("and")), sign("or"))
        .parse_next(input)
}

fn chain(input: &mut &str) -> Parsed<Chain> {
    let compare = alt([sign("<="), sign(">="), sign("<"), sign(">")]).map(str::to_owned);
    let (first, rest) = (sum, repeat(1.., (compare, sum))).parse_next(input)?;
    Ok(Chain { first, rest })
}

/// An expression.
pub(super) fn sum(input: &mut &str) -> Parsed<Node> {
    separated_foldl1(product, alt([sign("+"), sign("-")]), Node::binary).parse_next(input)
}

fn product(input: &mut &str) -> Parsed<Node> {
    separated_foldl1(factor, alt([sign("*"), sign("/")]), Node::binary).parse_next(input)
}

fn factor(input: &mut &str) -> Parsed<Node> {
    let negative = preceded(sign("-"), factor);
    let number = preceded(peek(one_of('0'..='9')), float);
    let arguments = delimited(sign("("), separated(1.., sum, sign(",")), sign(")"));
    let factor = alt((
        negative.map(|node| Node::binary(Node::Number(0.0), "-", node)),
        delimited(sign("("), sum, sign(")")),
        number.map(Node::Number),
        separated_pair(name, ':', name)
            .map(|(run, path)| Node::Metric { runs: braces(run), path: path.to_owned() }),
        (name.verify_map(Function::named), arguments).map(|(f, nodes)| Node::Call(f, nodes)),
    ));
    delimited(multispace0, factor, multispace0).parse_next(input)
}

/// A sign or a word.
fn sign<'i>(text: &'static str) -> impl Parser<&'i str, &'i str, EmptyError> {
    delimited(multispace0, text, multispace0)
}

fn name<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    let plain = take_while(1.., ('a'..='z', 'A'..='Z', '0'..='9', '_', '.', '-')).void();
    let within = |from, to| (from, take_till(0.., to), to).void();
    repeat::<_, _, (), _, _>(1.., alt((plain, within('[', ']'), within('{', '}'))))
        .take()
        .parse_next(input)
}
/// The names that `pattern` stands for: each `{a,b}` is replaced by its alternatives in turn.
fn braces(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let Some((names, after)) = rest.split_once('}') else {
        return vec![pattern.to_owned()];
    };
    let tails = braces(after);
    let one = |name: &str| -> Vec<String> {
        tails.iter().map(|tail| format!("{before}{}{tail}", name.trim())).collect()
    };
    names.split(',').flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum__names_have_points_and_hyphens() {
        let text = |of: &dyn std::fmt::Debug| format!("{of:?}");
        let runs = ["a.x.pacc-timer", "a.y.pacc-timer"].map(str::to_owned).into();
        let metric = Node::Metric { runs, path: "g[name=in ter].p99".to_owned() };
        let product = Node::binary(Node::Number(1e-3), "*", metric);
        let difference = Node::binary(product, "-", Node::Number(2.5));
        let parsed = parse("1e-3*a.{x, y}.pacc-timer:g[name=in ter].p99 -2.5", sum);
        assert_eq!(text(&parsed.expect("an expression")), text(&difference));
        let Chain { first, rest } = parse("max(a:b)<=1", chain).expect("a chain");
        assert!(matches!(first, Node::Call(Function::OfList(_), of) if of.len() == 1));
        assert!(matches!(&rest[..], [(sign, Node::Number(_))] if sign == "<="));
    }

    #[test]
    fn sum__rejects_other_characters() {
        assert!(["1.2.3", "a:b = 1", "µ"].iter().all(|text| parse(text, sum).is_err()));
    }

    #[test]
    fn braces__are_replaced_in_turn() {
        assert_eq!(braces("a.b"), ["a.b"]);
        assert_eq!(braces("{x, y}.{1,2}z"), ["x.1z", "x.2z", "y.1z", "y.2z"]);
    }
}
