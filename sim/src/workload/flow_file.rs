//! Files of flows in htsim's text form.

use super::Flow;
use spanwire_base::Time;
use std::fmt;

/// The flows of a file and the number of its nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFile {
    /// `Nodes N`, the exclusive bound of host numbers.
    pub nodes: u32,
    /// The flows, in the file's order.
    pub flows: Vec<Flow>,
}

/// The reason why a file of flows is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowFileError {
    /// A line has none of the known forms.
    Line(usize),
    /// A flow names a host beyond `Nodes`, goes to its own source, or has no bytes.
    Flow(usize),
    /// `Nodes` is missing before the first flow.
    NoNodes,
    /// The number of flows differs from `Connections`.
    Count {
        /// The number stated.
        stated: u64,
        /// The number of flows found.
        found: u64,
    },
}

impl FlowFile {
    /// Reads `Nodes N`, `Connections M` and lines of `src->dst id N start US size BYTES`. Starts
    /// are microseconds, with or without decimals; `#` begins a comment.
    ///
    /// # Errors
    /// See [`FlowFileError`].
    pub fn parse(text: &str) -> Result<Self, FlowFileError> {
        let (mut nodes, mut stated) = (None, None);
        let mut flows = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let bad = FlowFileError::Line(number);
            let fields: Vec<&str> = line.split_whitespace().collect();
            match fields[..] {
                [] => {}
                ["Nodes", n] => nodes = Some(n.parse().map_err(|_| bad)?),
                ["Connections", n] => stated = Some(n.parse::<u64>().map_err(|_| bad)?),
                [ends, ref rest @ ..] => {
                    let nodes = nodes.ok_or(FlowFileError::NoNodes)?;
                    let flow = flow(ends, rest).ok_or(bad)?;
                    let inside = flow.src < nodes && flow.dst < nodes;
                    if !inside || flow.src == flow.dst || flow.bytes == 0 {
                        return Err(FlowFileError::Flow(number));
                    }
                    flows.push(flow);
                }
            }
        }
        let found = spanwire_base::u64_from(flows.len());
        match stated {
            Some(stated) if stated != found => Err(FlowFileError::Count { stated, found }),
            _ => Ok(Self { nodes: nodes.ok_or(FlowFileError::NoNodes)?, flows }),
        }
    }

    /// Formats the flows in the same form.
    #[must_use]
    pub fn show(&self) -> String {
        let mut text = format!("Nodes {}\nConnections {}\n", self.nodes, self.flows.len());
        for (id, flow) in (1..).zip(&self.flows) {
            let ps = flow.start.as_ps();
            let (us, rest) = (ps / PS_PER_US, ps % PS_PER_US);
            let Flow { src, dst, bytes, .. } = flow;
            text += &format!("{src}->{dst} id {id} start {us}.{rest:06} size {bytes}\n");
        }
        text
    }
}

/// Parses a flow from `src->dst` and pairs of a name and a value. `id`, triggers and priorities are
/// ignored; start and size are required.
fn flow(ends: &str, rest: &[&str]) -> Option<Flow> {
    let (src, dst) = ends.split_once("->")?;
    let value = |name: &str| {
        let pairs = rest.chunks_exact(2);
        pairs.clone().find(|pair| pair[0] == name).map(|pair| pair[1])
    };
    if !rest.len().is_multiple_of(2) {
        return None;
    }
    let start = Time::from_ps(microseconds(value("start")?)?);
    let bytes = value("size")?.parse().ok()?;
    Some(Flow::new(src.parse().ok()?, dst.parse().ok()?, start, bytes))
}

/// Microseconds with up to six decimals, in picoseconds.
fn microseconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 6 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let rest: u64 = format!("{decimals:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(PS_PER_US)?.checked_add(rest)
}

impl fmt::Display for FlowFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(n) => write!(
                f,
                "line {n} is not `src->dst id N start US size BYTES`, `Nodes N` or `Connections N`"
            ),
            Self::Flow(n) => {
                write!(f, "line {n}: ends must differ and be below Nodes, size above 0")
            }
            Self::NoNodes => f.write_str("`Nodes N` is missing before the first flow"),
            Self::Count { stated, found } => {
                write!(f, "Connections says {stated}, but there are {found} flows")
            }
        }
    }
}

impl std::error::Error for FlowFileError {}

const PS_PER_US: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Nodes 4\nConnections 2\n1->0 id 1 start 0 size 1000\n\
                        3->2 id 2 start 12.345 size 5\n";

    #[test]
    fn parse__reads_flows_and_show_writes_them() {
        let file = FlowFile::parse(TEXT).unwrap();
        assert_eq!(file.nodes, 4);
        let later = Time::from_ns(12_345);
        assert_eq!(file.flows, [Flow::new(1, 0, Time::ZERO, 1000), Flow::new(3, 2, later, 5)]);
        assert_eq!(FlowFile::parse(&file.show()), Ok(file));
    }

    #[test]
    fn parse__says_which_line_is_wrong() {
        let of = |from: &str, to: &str| FlowFile::parse(&TEXT.replace(from, to)).unwrap_err();
        assert_eq!(of("1->0", "1-0"), FlowFileError::Line(3));
        assert_eq!(of("start 0 ", ""), FlowFileError::Line(3));
        assert_eq!(of("12.345", "12.3450000"), FlowFileError::Line(4));
        assert_eq!(of("12.345", "-1"), FlowFileError::Line(4));
        assert_eq!(of("3->2", "3->4"), FlowFileError::Flow(4));
        assert_eq!(of("3->2", "2->2"), FlowFileError::Flow(4));
        assert_eq!(of("size 5", "size 0"), FlowFileError::Flow(4));
        assert_eq!(of("Nodes 4", ""), FlowFileError::NoNodes);
        assert_eq!(
            of("Connections 2", "Connections 3"),
            FlowFileError::Count { stated: 3, found: 2 }
        );
    }
}
