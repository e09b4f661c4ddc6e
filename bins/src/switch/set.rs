//! Changes of a running switch: all of a request, or none.

use super::keys::{Change, KeyError, Target};
use super::report::line_text;
use spanwire_base::{PortId, Time};
use spanwire_switch::{AgentConfig, LineConfig, QueueConfig, Shaped};

/// Applies `changes` to a switch whose port n has the name `names[n]`. Returns the new state of the
/// changed parts as text.
///
/// # Errors
/// The first invalid change; the switch is unchanged then.
pub(super) fn set(
    shaped: &mut Shaped,
    now: Time,
    names: &[String],
    changes: &[String],
) -> Result<String, KeyError> {
    let mut wanted = Vec::new();
    for text in changes {
        if let Some(hold) = hold(text) {
            wanted.push(hold?);
            continue;
        }
        let change = Change::parse(text)?;
        let port = port_of(&change.port, names)?;
        plan(shaped, port, &change, &mut wanted)?;
    }
    let mut done = Vec::new();
    for part in &wanted {
        match part.apply(shaped, now) {
            Ok(before) => done.push(before),
            Err(error) => {
                for before in done.into_iter().rev() {
                    let undone = before.apply(shaped, now);
                    debug_assert!(undone.is_ok(), "it was so a moment ago: {undone:?}");
                }
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(KeyError::from_config(&error, &names));
            }
        }
    }
    Ok(wanted.iter().map(|part| part.to_text(names)).collect())
}

/// A part of the switch with its new configuration.
#[derive(Clone, PartialEq, Debug)]
enum Part {
    Line(PortId, LineConfig),
    Queue(PortId, usize, QueueConfig),
    /// Whether an agent's thresholds are frozen, by its place in the file.
    Hold(usize, bool),
}

/// The change `agent.N.hold=true` or `false`; `None` if it is of a port.
fn hold(text: &str) -> Option<Result<Part, KeyError>> {
    let (key, value) = text.strip_prefix("agent.")?.split_once('=')?;
    let at = format!("agent.{key}");
    let Some((Ok(n), "hold")) = key.split_once('.').map(|(n, key)| (n.parse(), key)) else {
        let what = "cannot change while the switch runs; known here is agent.N.hold";
        return Some(Err(KeyError::new(at, what)));
    };
    let value = value.trim().parse();
    let what = format!("is {:?}; choose true or false", text.rsplit('=').next().unwrap_or(""));
    Some(value.map(|hold| Part::Hold(n, hold)).map_err(|_| KeyError::new(at, what)))
}

/// Adds a change to `wanted`. Changes of the same part are merged, so that it is set only once.
fn plan(
    shaped: &Shaped,
    port: PortId,
    change: &Change,
    wanted: &mut Vec<Part>,
) -> Result<(), KeyError> {
    match change.target {
        Target::Line => {
            let planned = wanted.iter_mut().find_map(|part| match part {
                Part::Line(id, line) if *id == port => Some(line),
                _ => None,
            });
            match planned {
                Some(line) => *line = change.apply_to_line(line)?,
                None => {
                    let line = shaped.line(port).expect("a name is a port").config();
                    wanted.push(Part::Line(port, change.apply_to_line(line)?));
                }
            }
        }
        Target::Queue(n) => {
            let planned = wanted.iter_mut().find_map(|part| match part {
                Part::Queue(id, m, queue) if (*id, *m) == (port, n) => Some(queue),
                _ => None,
            });
            match planned {
                Some(queue) => *queue = change.apply_to_queue(queue)?,
                None => {
                    let queues = &shaped.switch().config().ports[port.index()].queues;
                    let is_there =
                        n < queues.len() && !(change.is_only_queue() && queues.len() > 1);
                    let queue = queues.get(n).filter(|_| is_there);
                    let queue = queue.ok_or_else(|| change.no_such_queue(queues.len()))?;
                    wanted.push(Part::Queue(port, n, change.apply_to_queue(queue)?));
                }
            }
        }
    }
    Ok(())
}

impl Part {
    /// Sets the part in the switch; returns its previous configuration.
    fn apply(&self, shaped: &mut Shaped, now: Time) -> Result<Self, spanwire_switch::ConfigError> {
        match self {
            Self::Line(port, line) => {
                let before = shaped.line(*port).expect("planned").config().clone();
                shaped.set_line(*port, line.clone())?;
                Ok(Self::Line(*port, before))
            }
            Self::Queue(port, n, queue) => {
                let before = shaped.switch().config().ports[port.index()].queues[*n];
                shaped.switch_mut().set_queue(now, *port, *n, *queue)?;
                Ok(Self::Queue(*port, *n, before))
            }
            Self::Hold(n, hold) => {
                let agents = &shaped.switch().config().agents;
                let before = matches!(agents.get(*n), Some(AgentConfig::Ecn(ecn)) if ecn.hold);
                shaped.switch_mut().set_agent_hold(*n, *hold)?;
                Ok(Self::Hold(*n, before))
            }
        }
    }

    fn to_text(&self, names: &[String]) -> String {
        match self {
            Self::Line(port, line) => format!("{}: {}\n", names[port.index()], line_text(line)),
            Self::Queue(port, n, queue) => {
                let queue = serde_json::to_string(queue).unwrap_or_default();
                format!("{}: queue {n}: {queue}\n", names[port.index()])
            }
            Self::Hold(n, hold) => format!("agent {n}: hold {hold}\n"),
        }
    }
}

fn port_of(name: &str, names: &[String]) -> Result<PortId, KeyError> {
    let found = names.iter().position(|known| known == name);
    let id = found.and_then(|n| u8::try_from(n).ok()).and_then(PortId::new);
    id.ok_or_else(|| {
        let known = names.join(", ");
        KeyError::new(format!("port.{name}"), format!("does not exist; the ports are {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::SwitchFile;
    use super::*;

    fn switch() -> (Shaped, Vec<String>) {
        let text = "[port.a]\nrate = '1Gbit'\ndelay = '1ms'\n[port.b]\nrate = '1Gbit'\n\
                    queues = [{}, {priority = 1}]\n";
        let file = SwitchFile::parse(text).expect("valid");
        let names = file.ports().iter().map(|port| port.name.clone()).collect();
        (Shaped::new(file.config().clone()).expect("valid"), names)
    }

    fn try_set(shaped: &mut Shaped, names: &[String], changes: &[&str]) -> Result<String, String> {
        let changes: Vec<String> = changes.iter().map(|text| (*text).to_owned()).collect();
        set(shaped, Time::ZERO, names, &changes).map_err(|e| e.to_string())
    }

    fn state(shaped: &Shaped) -> String {
        let lines: Vec<_> = (0..2)
            .map(|n| shaped.line(PortId::new(n).expect("a port")).expect("there").config())
            .collect();
        format!("{:?} {lines:?}", shaped.switch().config())
    }

    #[test]
    fn set__several_changes_of_one_line_and_of_a_queue() {
        let (mut shaped, names) = switch();
        let changes = [
            "port.a.rate=500Mbit",
            "port.a.loss=0.01",
            "port.b.queues.1.limit_bytes=2MB",
            "port.b.queues.1.weight=3",
            "port.a.queue.ecn={kmin_bytes='100kB', kmax_bytes='200kB'}",
        ];
        let text = try_set(&mut shaped, &names, &changes).expect("fine");
        assert!(text.starts_with("a: 500Mbit, delay 1ms, loss 1%\nb: queue 1: {"), "{text}");
        let ports = &shaped.switch().config().ports;
        let queue = ports[1].queues[1];
        assert_eq!((queue.limit_bytes, queue.weight, queue.priority), (2_000_000, 3, 1));
        assert_eq!(ports[0].queues[0].ecn.expect("set").kmax_bytes, 200_000);
        assert_eq!(
            ports[0].rate.expect("set").as_bps(),
            500_000_000,
            "the port has its line's rate"
        );
    }

    #[test]
    fn set__an_invalid_change_rolls_back_the_others() {
        let (mut shaped, names) = switch();
        let before = state(&shaped);
        let changes = ["port.a.loss=5%", "port.b.queues.0.limit_bytes=2MB", "port.b.delay=600s"];
        let error = try_set(&mut shaped, &names, &changes).expect_err("75 GB do not fit");
        assert!(error.contains("budget_bytes") && error.contains("port.b"), "{error}");
        assert_eq!(state(&shaped), before);
    }

    #[test]
    fn set__an_agent_s_thresholds_are_frozen_and_released() {
        let text = "[port.a]\nrate = '1Gbit'\n\
                    queue.ecn = {kmin_bytes = '9kB', kmax_bytes = '9kB'}\n\
                    [port.b]\nrate = '1Gbit'\n[[agent]]\nkind = 'ecn'\nports = ['a']\n";
        let file = SwitchFile::parse(text).expect("valid");
        let names: Vec<String> = file.ports().iter().map(|port| port.name.clone()).collect();
        let mut shaped = Shaped::new(file.config().clone()).expect("valid");
        let is_held = |shaped: &Shaped| match &shaped.switch().config().agents[0] {
            AgentConfig::Ecn(ecn) => ecn.hold,
            other => panic!("{other:?}"),
        };
        let text = try_set(&mut shaped, &names, &["agent.0.hold=true"]).expect("fine");
        assert!(text == "agent 0: hold true\n" && is_held(&shaped), "{text}");
        for (change, words) in [
            ("agent.1.hold=false", &["agent[1]", "does not exist"][..]),
            ("agent.0.hold=no", &["agent.0.hold", "\"no\"", "true or false"]),
            ("agent.0.rtt=1ms", &["agent.0.rtt", "agent.N.hold"]),
        ] {
            let error = try_set(&mut shaped, &names, &["agent.0.hold=false", change]);
            let error = error.expect_err(change);
            assert!(is_held(&shaped), "none is made");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        try_set(&mut shaped, &names, &["agent.0.hold=false"]).expect("fine");
        assert!(!is_held(&shaped));
    }

    #[test]
    fn set__errors_list_valid_names() {
        let (mut shaped, names) = switch();
        for (change, words) in [
            ("port.c.loss=1%", &["port.c", "a, b"][..]),
            ("port.b.queues.2.weight=1", &["port.b.queues.2", "2 queues"]),
            ("port.b.queue.weight=1", &["port.b.queue", "2 queues", "queues.0"]),
            ("port.b.queues.1.weigth=1", &["port.b.queues.1", "weigth", "weight"]),
            ("port.b.queues.1.weight=0", &["port.b.queues[1].weight", "1 to 1000"]),
            ("port.b.queues.x.weight=0", &["port.b.queues", "start it again"]),
        ] {
            let error = try_set(&mut shaped, &names, &[change]).expect_err(change);
            for word in words {
                assert!(error.contains(word), "{word:?} in {error:?}");
            }
        }
    }
}
