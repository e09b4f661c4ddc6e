//! The labs of the matrix, of which one exists at a time.

use super::case::{Case, Path, Site, Traffic};
use super::four_paths::four_paths;
use super::line::Line;
use super::plan::Plan;
use crate::bed::{Bed, Parts, Servers};
use crate::sample::Error;
use std::net::IpAddr;

/// The lab of the current case.
pub(super) struct Labs<'a> {
    plan: &'a Plan,
    current: Option<(Site, Lab)>,
}

/// A lab, and the parts that it has beyond those of `spanwire lab`, which are removed before it.
pub(super) struct Lab {
    _servers: Option<Servers>,
    _four_paths: Option<Parts>,
    pub(super) bed: Bed,
}

/// The two ends of a flow.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// The sender's host.
    pub(super) from: String,
    /// The receiver's host and address.
    pub(super) to: (String, IpAddr),
}

impl<'a> Labs<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self { plan, current: None }
    }

    /// The lab for `case`, with its lines.
    pub(super) fn prepare(&mut self, case: &Case) -> Result<&Lab, Error> {
        let site = case.site();
        if self.current.as_ref().is_none_or(|(at, _)| *at != site) {
            // Before another is made: its name and addresses are the same.
            self.current = None;
            self.current = Some((site, Lab::new(self.plan, case)?));
        }
        let (_, lab) = self.current.as_ref().expect("made above");
        lab.set(case)?;
        Ok(lab)
    }
}

impl Lab {
    fn new(plan: &Plan, case: &Case) -> Result<Self, Error> {
        let name = format!("unt{}", std::process::id());
        let alone = |bed| Self { _servers: None, _four_paths: None, bed };
        Ok(match (case.site(), case.path) {
            (Site::Cable, _) | (_, Path::Cable) => alone(Bed::cable(plan.common.path(), &name)?),
            (Site::Switch, _) => alone(switched(plan, &name, ["a", "b"].map(str::to_owned))?),
            (Site::Star, _) => {
                let ports = ["a".to_owned()].into_iter().chain((1..=FLOWS_MAX).map(client));
                let bed = switched(plan, &name, ports)?;
                Self { _servers: Some(Servers::new(&bed, FLOWS_MAX)?), ..alone(bed) }
            }
            (Site::FourPaths, Path::Line(line)) => {
                let (bed, parts) = four_paths(plan.common.path(), &name, line)?;
                Self { _four_paths: Some(parts), ..alone(bed) }
            }
        })
    }

    /// Sets the lines of `case`.
    fn set(&self, case: &Case) -> Result<(), Error> {
        let Path::Line(line) = case.path else { return Ok(()) };
        let changes = match (case.site(), case.traffic) {
            (Site::Star, Traffic::Several { flows, far_delay_us }) => {
                let far = far_delay_us.map_or(line, |delay_us| Line { delay_us, ..line });
                let clients = (1..=flows).map(|n| if n == flows { far } else { line });
                star(line, clients)
            }
            (Site::Star, _) => star(line, (0..2).map(|_| line)),
            // The only case of this lab: it was made with its line.
            (Site::FourPaths, _) => return Ok(()),
            _ => [line.changes("a"), line.changes("b")].concat(),
        };
        self.bed.set(&changes)
    }

    /// The ends of the only flow.
    pub(super) fn ends(&self) -> Result<Ends, Error> {
        Ok(Ends { from: "b".to_owned(), to: ("a".to_owned(), self.bed.address("a")?) })
    }

    /// The ends of flow `n` of a star, 1 and up.
    pub(super) fn star_ends(n: u32) -> Ends {
        Ends { from: client(n), to: (Servers::host(n), Servers::address(n)) }
    }
}

/// A lab around a switch with these ports, whose lines are set later.
fn switched(
    plan: &Plan,
    name: &str,
    ports: impl IntoIterator<Item = String>,
) -> Result<Bed, Error> {
    let tables: String = ports.into_iter().map(|port| format!("[port.{port}]\n")).collect();
    Bed::switched(plan.common.path(), name, &format!("seed = 1\n{tables}"))
}

/// The changes for port a with `line`, and for one client with each of `clients`.
fn star(line: Line, clients: impl Iterator<Item = Line>) -> Vec<String> {
    let clients = (1..).zip(clients).flat_map(|(n, line)| line.changes(&client(n)));
    line.changes("a").into_iter().chain(clients).collect()
}

fn client(n: u32) -> String {
    format!("c{n}")
}

/// Clients of a star.
const FLOWS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star__each_port_has_its_line() {
        let line = Line::new(200, 1000);
        let far = Line { delay_us: 19_000, ..line };
        let changes = star(line, [line, far].into_iter());
        let delays: Vec<&String> = changes.iter().filter(|c| c.contains("delay=")).collect();
        assert_eq!(
            delays,
            ["port.a.delay=1000us", "port.c1.delay=1000us", "port.c2.delay=19000us"]
        );
    }

    #[test]
    fn star_ends__are_a_client_and_a_server() {
        let ends = Lab::star_ends(3);
        assert_eq!((&*ends.from, &*ends.to.0), ("c3", "s3"));
        assert_eq!(ends.to.1.to_string(), "10.77.0.103");
    }
}
