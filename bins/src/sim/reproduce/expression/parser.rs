//! The grammar of expressions and conditions.

use super::super::lexer::{Token, tokens};
use super::tree::{Chain, Compare, Function, Node};

/// Parses all of `text` by `of`.
pub(super) fn parse<T>(
    text: &str,
    of: impl Fn(&mut Parser) -> Result<T, String>,
) -> Result<T, String> {
    let explain = |e: String| format!("`{text}`: {e}");
    let mut parser = Parser { tokens: tokens(text).map_err(explain)?, next: 0 };
    let parsed = of(&mut parser).map_err(explain)?;
    match parser.peek() {
        None => Ok(parsed),
        Some(token) => Err(explain(format!("unexpected {token}"))),
    }
}

/// A parser by recursive descent.
pub(super) struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    pub(super) fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    /// Takes the next token if it is `sign`.
    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let is = self.peek().is_some_and(|token| token.is(sign));
        self.next += usize::from(is);
        is
    }

    pub(super) fn alternatives(&mut self) -> Result<Vec<Vec<Chain>>, String> {
        let mut all = vec![vec![self.chain()?]];
        loop {
            if self.takes("or") {
                all.push(vec![self.chain()?]);
            } else if self.takes("and") {
                let chain = self.chain()?;
                if let Some(last) = all.last_mut() {
                    last.push(chain);
                }
            } else {
                return Ok(all);
            }
        }
    }

    pub(super) fn chain(&mut self) -> Result<Chain, String> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(compare) = self.compare() {
            rest.push((compare, self.sum()?));
        }
        if rest.is_empty() { Err("no comparison".to_owned()) } else { Ok(Chain { first, rest }) }
    }

    pub(super) fn compare(&mut self) -> Option<Compare> {
        let all = [
            ("<", Compare::Less),
            ("<=", Compare::LessOrEqual),
            (">", Compare::Greater),
            (">=", Compare::GreaterOrEqual),
        ];
        all.into_iter().find(|(sign, _)| self.takes(sign)).map(|(_, compare)| compare)
    }

    pub(super) fn sum(&mut self) -> Result<Node, String> {
        let mut node = self.product()?;
        while let Some(op) = ['+', '-'].into_iter().find(|op| self.takes(&op.to_string())) {
            node = Node::Binary(op, Box::new(node), Box::new(self.product()?));
        }
        Ok(node)
    }

    pub(super) fn product(&mut self) -> Result<Node, String> {
        let mut node = self.factor()?;
        while let Some(op) = ['*', '/'].into_iter().find(|op| self.takes(&op.to_string())) {
            node = Node::Binary(op, Box::new(node), Box::new(self.factor()?));
        }
        Ok(node)
    }

    pub(super) fn factor(&mut self) -> Result<Node, String> {
        if self.takes("-") {
            let zero = Box::new(Node::Number(0.0));
            return Ok(Node::Binary('-', zero, Box::new(self.factor()?)));
        }
        if self.takes("(") {
            let node = self.sum()?;
            return self.closes().map(|()| node);
        }
        match self.take() {
            Some(Token::Number(n)) => Ok(Node::Number(n)),
            Some(Token::Metric { run, path }) => Ok(Node::Metric { runs: braces(&run), path }),
            Some(Token::Word(name)) => self.call(&name),
            Some(token) => Err(format!("unexpected {token}")),
            None => Err("it ends too early".to_owned()),
        }
    }

    pub(super) fn call(&mut self, name: &str) -> Result<Node, String> {
        let Some((_, function)) = Function::ALL.iter().find(|(known, _)| *known == name) else {
            return Err(format!("{name} is neither a function nor a metric, RUN:PATH"));
        };
        if !self.takes("(") {
            return Err(format!("no arguments of {name}"));
        }
        let mut arguments = vec![self.sum()?];
        while self.takes(",") {
            arguments.push(self.sum()?);
        }
        self.closes().map(|()| Node::Call(*function, arguments))
    }

    pub(super) fn closes(&mut self) -> Result<(), String> {
        if self.takes(")") { Ok(()) } else { Err("no closing parenthesis".to_owned()) }
    }
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
    fn braces__are_replaced_in_turn() {
        assert_eq!(braces("a.b"), ["a.b"]);
        assert_eq!(braces("{x, y}.{1,2}z"), ["x.1z", "x.2z", "y.1z", "y.2z"]);
    }
}
