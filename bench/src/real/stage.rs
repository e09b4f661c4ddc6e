//! The environment of a sample: labs, processes and the time that is left.

use super::host::Followed;
use super::plan::Plan;
use crate::bed::{Bed, Running};
use crate::sample::Error;
use serde_json::Value;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The environment of one sample.
pub(super) struct Stage<'a> {
    plan: &'a Plan,
    followed: Followed,
    deadline: Option<Instant>,
}

/// A failure that the lateness of the host does not explain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A program is not installed.
    NoTool(String),
    /// Data differ from those that were sent.
    WrongData(String),
}

impl<'a> Stage<'a> {
    pub(super) fn new(plan: &'a Plan, followed: Followed, deadline: Option<Instant>) -> Self {
        Self { plan, followed, deadline }
    }

    /// True if the run is to be short.
    pub(super) fn is_quick(&self) -> bool {
        self.plan.quick
    }

    /// The `spanwire` command.
    pub(super) fn command(&self) -> &Path {
        self.plan.common.path()
    }

    /// The time limit `time` of one step, at most what is left of all.
    pub(super) fn within(&self, time: Duration) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map_or(time, |deadline| time.min(left(deadline)))
    }

    /// The same for sockets, whose time limit must not be zero.
    pub(super) fn socket_limit(&self, time: Duration) -> Option<Duration> {
        Some(self.within(time).max(Duration::from_millis(1)))
    }

    /// Both ends of a TCP connection from host a to `at` on host b, with this limit on every call.
    pub(super) fn connect(
        &self,
        bed: &Bed,
        at: SocketAddr,
        limit: Duration,
    ) -> Result<[TcpStream; 2], Error> {
        let listener = bed.ns("b")?.run(|| TcpListener::bind(at))??;
        let connect = || TcpStream::connect_timeout(&at, self.within(limit));
        let client = bed.ns("a")?.run(connect)??;
        let ends = [client, listener.accept()?.0];
        for end in &ends {
            end.set_nodelay(true)?;
            end.set_read_timeout(self.socket_limit(limit))?;
            end.set_write_timeout(self.socket_limit(limit))?;
        }
        Ok(ends)
    }

    /// An error if no time is left.
    pub(super) fn check_time(&self) -> Result<(), Error> {
        if self.is_over() { Err("no time is left".into()) } else { Ok(()) }
    }

    /// True if no time is left.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Sleeps for `time`, or until no time is left.
    pub(super) fn sleep(&self, time: Duration) {
        thread::sleep(self.within(time));
    }

    /// Hosts a and b, joined by a cable.
    pub(super) fn cable(&self) -> Result<Bed, Error> {
        Bed::cable(self.command(), &name())
    }

    /// A host for each port of a switch.
    pub(super) fn switched(&self, config: &str) -> Result<Bed, Error> {
        let bed = Bed::switched(self.command(), &name(), config)?;
        if let Some(pid) = bed.switch_pid() {
            self.followed.add(pid);
        }
        Ok(bed)
    }

    /// Starts `spanwire perf server` and waits until it serves.
    pub(super) fn server(&self, bed: &Bed, host: &str, more: &[&str]) -> Result<Running, Error> {
        let perf = ["perf", "server", "--dev", "sw0"];
        self.start_until(bed, host, &[&perf[..], more].concat())
    }

    /// Starts a command and waits for the first line of its output.
    pub(super) fn start_until(
        &self,
        bed: &Bed,
        host: &str,
        args: &[&str],
    ) -> Result<Running, Error> {
        bed.spanwire_until(host, args, self.within(START_WITHIN))
    }

    /// Starts `spanwire perf client`.
    pub(super) fn start_client(
        &self,
        bed: &Bed,
        host: &str,
        to: IpAddr,
        more: &[&str],
    ) -> Result<Running, Error> {
        let to = to.to_string();
        let perf = ["perf", "client", "--dev", "sw0", &to, "--json"];
        bed.spanwire(host, &[&perf[..], more].concat())
    }

    /// Runs `spanwire perf client` to its end; its report.
    pub(super) fn client(
        &self,
        bed: &Bed,
        host: &str,
        to: IpAddr,
        more: &[&str],
    ) -> Result<Value, Error> {
        self.report(self.start_client(bed, host, to, more)?)
    }

    /// Waits for the end of a command that prints JSON; its report, if it succeeded.
    pub(super) fn report(&self, running: Running) -> Result<Value, Error> {
        let line = running.command().to_owned();
        let text = running.output(self.within(END_WITHIN))?;
        checked(&text).map_err(|why| match why.downcast::<Fault>() {
            Ok(fault) => Error::from(*fault),
            Err(why) => format!("{line}: {why}").into(),
        })
    }
}

/// The report `text` of a command that has succeeded.
fn checked(text: &str) -> Result<Value, Error> {
    let report: Value = serde_json::from_str(text).map_err(|e| format!("its JSON: {e}"))?;
    if report["transfer"]["sha256_match"] == false {
        return Err(Fault::WrongData("the hashes of both ends differ".to_owned()).into());
    }
    match report["error"].as_str() {
        Some(why) => Err(why.to_owned().into()),
        None if report["ok"] == false => Err(format!("it failed: {report}").into()),
        None => Ok(report),
    }
}

/// A number in a report.
pub(super) fn number(report: &Value, pointer: &str) -> Result<f64, Error> {
    let found = report.pointer(pointer).and_then(Value::as_f64);
    Ok(found.ok_or_else(|| format!("no {pointer} in {report}"))?)
}

/// A counter of a report; those that are zero are not in it.
pub(super) fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

/// A name for a lab.
pub(super) fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("real{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoTool(why) | Self::WrongData(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Fault {}

const START_WITHIN: Duration = Duration::from_secs(15);
/// Beyond any run of a case.
const END_WITHIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within__is_at_most_what_is_left() {
        let plan = crate::testing::options(&["--quick"]).unwrap();
        let second = Duration::from_secs(1);
        let free = Stage::new(&plan, Followed::default(), None);
        assert_eq!((free.within(second), free.is_over()), (second, false));
        let over = Stage::new(&plan, Followed::default(), Some(Instant::now()));
        assert_eq!((over.within(second), over.is_over()), (Duration::ZERO, true));
        assert_eq!(over.socket_limit(second), Some(Duration::from_millis(1)));
        assert!(over.check_time().is_err() && free.check_time().is_ok());
    }

    #[test]
    fn checked__an_error_or_other_data_fail_it() {
        let why = |text: &str| checked(text).unwrap_err();
        assert_eq!(why(r#"{"error": "RETRY_EXC_ERR", "ok": false}"#).to_string(), "RETRY_EXC_ERR");
        assert!(why("").to_string().starts_with("its JSON"));
        assert!(why(r#"{"ok": false}"#).to_string().starts_with("it failed"));
        let wrong = why(r#"{"error": "hash", "transfer": {"sha256_match": false}}"#);
        assert!(matches!(wrong.downcast_ref(), Some(Fault::WrongData(_))));
        assert!(checked(r#"{"ok": true, "error": null}"#).is_ok());
    }

    #[test]
    fn number__errors_name_the_field() {
        let report = serde_json::json!({"perf": [{"gbps": 0.5}], "counters": {"cnps": 3}});
        assert_eq!(number(&report, "/perf/0/gbps").unwrap(), 0.5);
        assert!(number(&report, "/perf/1/gbps").unwrap_err().to_string().contains("/perf/1/gbps"));
        assert_eq!((counter(&report, "cnps"), counter(&report, "none")), (3, 0));
    }
}
