//! The configuration file: TOML, see docs/examples/switch.toml.

use super::agents::take_agents;
use super::keys::{IMPAIRMENT_KEYS, KeyError, LINE_KEYS, PORT_KEYS, read, take_line, take_port};
use crate::toml_text::toml_error;
use spanwire_switch::{ShapedConfig, SwitchConfig};
use toml::{Table, Value};

/// A configuration file.
#[derive(Clone, PartialEq, Debug)]
pub struct SwitchFile {
    ports: Vec<FilePort>,
    config: ShapedConfig,
}

/// A port in the file. Port n of the switch is entry n, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePort {
    /// Its name: 1 to 15 letters, digits, '-' and '_'.
    pub name: String,
    /// Its interface; by default the one of the same name.
    pub device: String,
}

impl SwitchFile {
    /// Parses and validates a configuration.
    ///
    /// # Errors
    /// The first error, with its key, its value and the valid values.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The parser's message includes the line.
        let table: Table = toml::from_str(text).map_err(|e| toml_error(&e))?;
        Self::of(table).map_err(|e| e.to_string())
    }

    /// The ports, in the order of the file.
    #[must_use]
    pub fn ports(&self) -> &[FilePort] {
        &self.ports
    }

    /// The configuration of the switch and of the lines at its ports.
    #[must_use]
    pub fn config(&self) -> &ShapedConfig {
        &self.config
    }

    fn of(mut table: Table) -> Result<Self, KeyError> {
        let tables = match table.remove("port") {
            Some(Value::Table(tables)) => tables,
            Some(_) => return Err(KeyError::new("port", "is no table; write [port.NAME]")),
            None => {
                return Err(KeyError::new("port", "is missing; write [port.NAME] for each port"));
            }
        };
        let mut ports = Vec::new();
        let mut lines = Vec::new();
        let mut switch_ports = Vec::new();
        for (name, value) in tables {
            let at = format!("port.{name}");
            let Value::Table(mut keys) = value else {
                return Err(KeyError::new(at, "is no table; write [port.NAME] above its keys"));
            };
            check_name(&at, &name)?;
            let device = take_device(&at, &name, &mut keys)?;
            let line = take_line(&at, &mut keys)?;
            let mut port = take_port(&at, &mut keys)?;
            check_known(
                &at,
                &keys,
                &[&["device", "queue"], &LINE_KEYS, &IMPAIRMENT_KEYS, &PORT_KEYS],
            )?;
            port.rate = line.rate;
            ports.push(FilePort { name, device });
            lines.push(line);
            switch_ports.push(port);
        }
        check_devices(&ports)?;
        let names: Vec<&str> = ports.iter().map(|port| &*port.name).collect();
        let agents = take_agents(table.remove("agent"), &names)?;
        check_known("", &table, &[&["port", "agent", "budget_bytes"], &SWITCH_KEYS])?;
        let config = take_switch(table)?;
        let switch = SwitchConfig { agents, ports: switch_ports, ..config.switch };
        let config = ShapedConfig { lines, switch, ..config };
        config.validate().map_err(|e| KeyError::from_config(&e, &names))?;
        Ok(Self { ports, config })
    }
}

/// Checks a port's name, which becomes the name of a namespace or an interface and part of command
/// lines.
fn check_name(at: &str, name: &str) -> Result<(), KeyError> {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let fits = (1..=NAME_MAX).contains(&name.len());
    if fits && name.chars().all(clean) && !name.starts_with('-') {
        return Ok(());
    }
    let what = "cannot be the name of a port; use 1 to 15 letters, digits, '-' and '_'";
    Err(KeyError::new(at, what))
}

fn take_device(at: &str, name: &str, keys: &mut Table) -> Result<String, KeyError> {
    match keys.remove("device") {
        None => Ok(name.to_owned()),
        Some(Value::String(device)) if (1..=NAME_MAX).contains(&device.len()) => Ok(device),
        Some(other) => {
            let what = format!("is {other:?}; name an interface, 1 to 15 bytes");
            Err(KeyError::new(format!("{at}.device"), what))
        }
    }
}

fn check_devices(ports: &[FilePort]) -> Result<(), KeyError> {
    if ports.len() < 2 {
        let what = format!("has {} entries; a switch has at least 2", ports.len());
        return Err(KeyError::new("port", what));
    }
    for (n, port) in ports.iter().enumerate() {
        if let Some(other) = ports[..n].iter().find(|other| other.device == port.device) {
            let what = format!("is {}, which port.{} has already", port.device, other.name);
            return Err(KeyError::new(format!("port.{}.device", port.name), what));
        }
    }
    Ok(())
}

/// Rejects keys of a table that are not known.
fn check_known(at: &str, table: &Table, known: &[&[&str]]) -> Result<(), KeyError> {
    let known = known.concat();
    let unknown = table.keys().find(|key| !known.contains(&key.as_str()));
    let Some(key) = unknown else { return Ok(()) };
    let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
    Err(KeyError::new(at, format!("is not known; known here are {}", known.join(", "))))
}

/// The switch that the keys at the top describe, without ports and lines.
fn take_switch(mut table: Table) -> Result<ShapedConfig, KeyError> {
    let frame_max = i64::from(PORT_FRAME_ROOM);
    let longest = table.entry("max_frame_bytes").or_insert(Value::Integer(frame_max));
    if let Some(bytes) = longest.as_integer().filter(|bytes| *bytes > frame_max) {
        let what = format!("is {bytes}; the ports carry at most {frame_max}");
        return Err(KeyError::new("max_frame_bytes", what));
    }
    let mut shaped: Table = table.remove_entry("budget_bytes").into_iter().collect();
    table.insert("ports".to_owned(), Value::Array(Vec::new()));
    shaped.insert("lines".to_owned(), Value::Array(Vec::new()));
    shaped.insert("switch".to_owned(), Value::Table(table));
    read("", shaped).map_err(|KeyError { key, what }| {
        let key = key.trim_start_matches('.').trim_start_matches("switch.").to_owned();
        KeyError { key, what }
    })
}

/// Keys of the switch itself, at the top level of the file.
const SWITCH_KEYS: [&str; 5] =
    ["buffer_bytes", "max_frame_bytes", "forwarding", "seed", "feedback_flows"];

/// The longest name of an interface, in bytes (`IFNAMSIZ` less its zero).
const NAME_MAX: usize = 15;

/// Longest frame of a port in bytes without FCS. It fits a UMEM chunk of 4096 bytes with headroom.
pub const PORT_FRAME_ROOM: u32 = 3840;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::{Dur, Rate};

    const TWO: &str = "[port.h2]\nrate = '1Gbit'\ndelay = '1ms'\n[port.h1]\ndevice = 'eth1'\n";

    fn error(text: &str) -> String {
        SwitchFile::parse(text).expect_err(text)
    }

    #[test]
    fn parse__ports_in_the_order_of_the_file() {
        let file = SwitchFile::parse(TWO).expect("valid");
        let ports: Vec<_> = file.ports().iter().map(|p| (&*p.name, &*p.device)).collect();
        assert_eq!(ports, [("h2", "h2"), ("h1", "eth1")]);
        let config = file.config();
        assert_eq!(config.lines[0].delay, Dur::from_ms(1));
        assert_eq!(config.switch.ports[0].rate, Some(Rate::from_gbps(1)));
        assert_eq!(config.switch.ports[1].rate, None);
        assert_eq!(config.switch.max_frame_bytes, PORT_FRAME_ROOM);
        assert!(config.switch.forwarding.learning && config.switch.forwarding.flood);
    }

    #[test]
    fn parse__the_example_in_the_documentation() {
        let text = include_str!("../../../docs/examples/switch.toml");
        let file = SwitchFile::parse(text).expect("valid");
        assert!(file.ports().len() >= 2);
    }

    #[test]
    fn parse__every_key_at_the_top_is_read() {
        let top = "buffer_bytes = '20MB'\nmax_frame_bytes = 1600\nseed = 7\nbudget_bytes = '90MB'\n\
                   [forwarding]\nageing = '10s'\n";
        let file = SwitchFile::parse(&format!("{top}{TWO}")).expect("valid");
        let ShapedConfig { switch, budget_bytes, .. } = file.config();
        assert_eq!((switch.buffer_bytes, switch.max_frame_bytes), (20_000_000, 1600));
        assert_eq!((switch.seed, *budget_bytes), (7, 90_000_000));
        assert_eq!(switch.forwarding.ageing, Dur::from_secs(10));
    }

    #[test]
    fn parse__errors_name_key_value_and_range() {
        for (text, words) in [
            ("", &["port", "[port.NAME]"][..]),
            ("port = 5", &["port:", "no table"]),
            ("[port.a]", &["port:", "1 entries", "at least 2"]),
            ("[port.a]\nrat = '1Gbit'\n[port.b]", &["port.a.rat:", "not known", "rate, delay"]),
            ("bufer = 1\n[port.a]\n[port.b]", &["bufer:", "buffer_bytes"]),
            ("[port.a]\nrate = '9'\n[port.b]", &["port.a.rate:", "\"9\"", "25Gbit"]),
            ("[port.'a b']\n[port.b]", &["port.a b:", "letters"]),
            ("[port.a]\ndevice = 'x'\n[port.x]", &["port.x.device:", "port.a has"]),
            ("[port.a]\ndevice = 7\n[port.x]", &["port.a.device:", "7", "1 to 15"]),
            ("max_frame_bytes = 9000\n[port.a]\n[port.b]", &["max_frame_bytes:", "9000", "3840"]),
            ("max_frame_bytes = 1\n[port.a]\n[port.b]", &["max_frame_bytes:", "choose 64"]),
            ("buffer_bytes = 1\n[port.a]\n[port.b]", &["buffer_bytes:", "64000"]),
            ("budget_bytes = 'x'\n[port.a]\n[port.b]", &["budget_bytes:", "\"x\"", "bytes"]),
            ("seed = -1\n[port.a]\n[port.b]", &["seed:", "-1"]),
            ("[port.a]\nqueue = {weight = 0}\n[port.b]", &["port.a.queues[0].weight:", "1000"]),
            ("[port.a]\npfc = {}\n[port.b]", &["port.a.pfc:", "rate"]),
            ("[port.a\n", &["line 1"]),
            ("[port.a]\n[port.b]\n[port.a]", &["line 3", "duplicate"]),
            ("[forwarding]\nrouts = 1\n[port.a]\n[port.b]", &["forwarding:", "routs", "routes"]),
        ] {
            let error = error(text);
            for word in words {
                assert!(error.contains(word), "{word:?} in {error:?}");
            }
        }
    }

    #[test]
    fn parse__errors_have_no_control_characters_of_the_file() {
        let evil = r"x\u001b[2J\r\nerror: forged";
        for text in [
            format!("\"{evil}\" = 1\n{TWO}"),
            format!("[port.\"{evil}\"]\n[port.b]"),
            format!("[port.a]\n\"{evil}\" = 1\n[port.b]"),
            format!("[port.a]\nrate = \"{evil}\"\n[port.b]"),
            format!("[port.a]\ndevice = \"{}\"\n[port.b]\ndevice = \"{0}\"", r"x\u001b\r\n"),
            format!("[port.a]\nqueue.ecn = {{\"{evil}\" = 1}}\n[port.b]"),
            format!("{TWO}[[agent]]\nkind = \"{evil}\""),
            format!("{TWO}[[agent]]\nkind = 'pacc'\nports = [\"{evil}\"]"),
            format!("{TWO}[[agent]]\nkind = 'pacc'\nports = ['h1']\n\"{evil}\" = 1"),
            format!("{TWO}[[agent]]\nkind = 'ecn'\nports = ['h1']\nmodel = \"/{evil}\""),
        ] {
            let error = error(&text);
            assert!(!error.chars().any(char::is_control), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn parse__budget_error_shows_the_arithmetic() {
        let delay = |ms: u32| {
            let port = format!("rate = '1Gbit'\ndelay = '{ms}ms'\n");
            SwitchFile::parse(&format!("[port.a]\n{port}[port.b]\n{port}"))
        };
        delay(100).expect("100 ms at 1 Gbit/s fit, both ways");
        let error = delay(300).expect_err("75 MB do not fit");
        for word in ["budget_bytes", "port.a 1Gbit x 300ms = 37500000", "75000000"] {
            assert!(error.contains(word), "{word:?} in {error:?}");
        }
    }
}
