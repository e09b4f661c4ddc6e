//! The labs of the matrix, of which one exists at a time.

use super::Plan;
use super::case::{Case, Path, Site, Traffic};
use super::line::Line;
use crate::bed::Bed;
use crate::sample::Error;
use spanwire_io::net::NetNs;
use std::net::IpAddr;
use std::process::Command;

/// The lab of the current case.
pub(super) struct Labs<'a> {
    plan: &'a Plan,
    current: Option<(Site, Lab)>,
}

/// A lab, and the hosts that it has beyond those of `spanwire lab`.
pub(super) struct Lab {
    /// Namespaces of servers at a star's common port, removed before the lab.
    servers: Vec<String>,
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
            self.current = Some((site, Lab::new(self.plan, site)?));
        }
        let (_, lab) = self.current.as_ref().expect("made above");
        lab.set(case)?;
        Ok(lab)
    }
}

impl Lab {
    fn new(plan: &Plan, site: Site) -> Result<Self, Error> {
        let name = format!("unt{}", std::process::id());
        let ports = match site {
            Site::Cable => {
                return Ok(Self { servers: Vec::new(), bed: Bed::cable(&plan.spanwire, &name)? });
            }
            Site::Switch => vec!["a".to_owned(), "b".to_owned()],
            Site::Star => ["a".to_owned()].into_iter().chain((1..=FLOWS_MAX).map(client)).collect(),
            Site::FourPaths => return Err("four paths: not measured by this command yet".into()),
        };
        let tables: Vec<String> = ports.iter().map(|port| format!("[port.{port}]\n")).collect();
        let config = format!("seed = 1\n{}", tables.concat());
        let bed = Bed::switched(&plan.spanwire, &name, &config)?;
        let mut lab = Self { servers: Vec::new(), bed };
        if site == Site::Star {
            (1..=FLOWS_MAX).try_for_each(|n| lab.add_server(n))?;
        }
        Ok(lab)
    }

    /// Adds a host with the name `sN` at port a: a macvlan of that host's interface.
    fn add_server(&mut self, n: u32) -> Result<(), Error> {
        let (name, link) = (format!("{}-{}", self.bed.name(), server(n)), format!("m{n}"));
        NetNs::create_named(&name)?;
        self.servers.push(name.clone());
        let host = format!("{}-a", self.bed.name());
        let kind = ["type", "macvlan", "mode", "private"];
        ip(&[&["-n", &host, "link", "add", "link", "sw0", "name", &link][..], &kind].concat())?;
        ip(&["-n", &host, "link", "set", &link, "netns", &name])?;
        ip(&["-n", &name, "link", "set", &link, "name", "sw0"])?;
        ip(&["-n", &name, "addr", "add", &format!("{}/24", server_address(n)), "dev", "sw0"])?;
        ip(&["-n", &name, "link", "set", "sw0", "up"])
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
            _ => [line.changes("a"), line.changes("b")].concat(),
        };
        self.bed.set(&changes)
    }

    /// The ends of the only flow.
    pub(super) fn ends(&self) -> Result<Ends, Error> {
        Ok(Ends { from: "b".to_owned(), to: ("a".to_owned(), self.bed.address("a")?) })
    }

    /// The ends of flow `n` of a star, 1 and up.
    pub(super) fn star_ends(n: u32) -> Result<Ends, Error> {
        Ok(Ends { from: client(n), to: (server(n), server_address(n).parse()?) })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.servers {
            if let Err(e) = NetNs::delete_named(name) {
                eprintln!("the namespace {name} remains: {e}");
            }
        }
    }
}

/// The changes for port a with `line`, and for one client with each of `clients`.
fn star(line: Line, clients: impl Iterator<Item = Line>) -> Vec<String> {
    let clients = (1..).zip(clients).flat_map(|(n, line)| line.changes(&client(n)));
    line.changes("a").into_iter().chain(clients).collect()
}

fn client(n: u32) -> String {
    format!("c{n}")
}

fn server(n: u32) -> String {
    format!("s{n}")
}

/// Beyond the addresses of the lab's own hosts.
fn server_address(n: u32) -> String {
    format!("10.77.0.{}", 100 + n)
}

fn ip(args: &[&str]) -> Result<(), Error> {
    let line = format!("ip {}", args.join(" "));
    let done = Command::new("ip")
        .args(args)
        .output()
        .map_err(|e| format!("{line}: {e}; apt-get install iproute2 installs it"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&done.stderr).trim()).into()),
    }
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
        let ends = Lab::star_ends(3).unwrap();
        assert_eq!((&*ends.from, &*ends.to.0), ("c3", "s3"));
        assert_eq!(ends.to.1.to_string(), "10.77.0.103");
    }
}
