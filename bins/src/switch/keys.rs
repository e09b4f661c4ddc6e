//! The keys of a port: their structs, and changes at run time.
//!
//! A file has all keys of a port in one table. In code they belong to the port's line, to the
//! line's impairments, or to the switch's port.

use spanwire_host::text::printable_within;
use spanwire_switch::{ConfigError, LineConfig, PortConfig, QueueConfig};
use toml::{Table, Value};

/// Keys of the line, which can be changed while the switch runs.
pub(super) const LINE_KEYS: [&str; 3] = ["rate", "delay", "overhead_bytes"];

/// Keys of the line's impairments, which can be changed while the switch runs.
pub(super) const IMPAIRMENT_KEYS: [&str; 10] = [
    "loss",
    "burst_loss",
    "block_loss",
    "reorder",
    "duplicate",
    "corrupt",
    "jitter",
    "blackhole",
    "down",
    "flap",
];

/// Keys of impairments that are a probability. They accept a plain fraction as well.
const FRACTION_KEYS: [&str; 3] = ["loss", "duplicate", "corrupt"];

/// Keys of the switch's port.
pub(super) const PORT_KEYS: [&str; 7] =
    ["mac", "queues", "class_to_queue", "share", "quantum_bytes", "pfc", "int"];

/// The longest text of an error: the names of all ports, and more. It quotes the file.
const ERROR_CHARS_MAX: usize = 8000;

/// An error of a key or of its value; printable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyError {
    /// The full path of the key: `port.a.rate`.
    pub(super) key: String,
    /// The cause and the valid values.
    pub(super) what: String,
}

impl KeyError {
    pub(super) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        let [key, what] = [key.into(), what.into()].map(|t| printable_within(t, ERROR_CHARS_MAX));
        Self { key, what }
    }

    /// An error of the deserializer in the table at `at`. Its text ends with the rest of the path.
    fn from_toml(at: &str, error: &toml::de::Error) -> Self {
        let text = error.to_string();
        match text.trim_end().rsplit_once("\nin `") {
            Some((what, path)) => Self::new(format!("{at}.{}", path.trim_end_matches('`')), what),
            None => Self::new(at, text.trim_end()),
        }
    }

    /// An error of the switch's configuration, with the file's names of keys. `names` are those of
    /// the ports.
    pub(super) fn from_config(error: &ConfigError, names: &[&str]) -> Self {
        let ConfigError { at, what } = error;
        let at = at.strip_prefix("switch.").unwrap_or(at);
        let at = if at == "agents" { "agent" } else { at };
        Self::new(to_file_keys(at, names), to_file_keys(what, names))
    }
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.what)
    }
}

impl std::error::Error for KeyError {}

/// Replaces the paths of the structs by those of the file: `ports[3]` and `lines[3]` become
/// `port.NAME`, and impairments become keys of the port.
fn to_file_keys(text: &str, names: &[&str]) -> String {
    let mut text = text.replace(".impairments.", ".").replace("agents[", "agent[");
    for (n, name) in names.iter().enumerate() {
        for list in ["ports", "lines"] {
            text = text.replace(&format!("{list}[{n}]"), &format!("port.{name}"));
        }
        // Agents name ports by number.
        text = text.replace(&format!("port {n} "), &format!("port {name} "));
        text = text.replace(&format!("port {n},"), &format!("port {name},"));
    }
    text
}

/// Deserializes a struct from the table at the path `at`.
pub(super) fn read<T: serde::de::DeserializeOwned>(at: &str, table: Table) -> Result<T, KeyError> {
    table.try_into().map_err(|e| KeyError::from_toml(at, &e))
}

/// Removes the keys of a line from `table` and returns the line that they describe.
pub(super) fn take_line(at: &str, table: &mut Table) -> Result<LineConfig, KeyError> {
    let mut line = take(table, &LINE_KEYS);
    let mut impairments = take(table, &IMPAIRMENT_KEYS);
    for key in FRACTION_KEYS {
        if let Some(value) = impairments.get_mut(key) {
            write_fraction(value);
        }
    }
    let impairments = read(at, impairments)?;
    line.remove("impairments");
    Ok(LineConfig { impairments, ..read(at, line)? })
}

/// Removes the keys of a switch port from `table` and returns the port that they describe. `queue`
/// is short for `queues` with one entry.
pub(super) fn take_port(at: &str, table: &mut Table) -> Result<PortConfig, KeyError> {
    if let Some(queue) = table.remove("queue") {
        if table.contains_key("queues") {
            return Err(KeyError::new(at, "has queue and queues; put all into queues"));
        }
        // Deserialized separately, so that errors have the path of `queue`.
        let Value::Table(queue) = queue else {
            return Err(KeyError::new(
                format!("{at}.queue"),
                "is no table; write [port.NAME.queue]",
            ));
        };
        let queue = read(&format!("{at}.queue"), queue)?;
        return Ok(PortConfig { queues: vec![queue], ..read(at, take(table, &PORT_KEYS))? });
    }
    read(at, take(table, &PORT_KEYS))
}

/// Converts a plain fraction to text with a unit: `0.01` becomes `10000000ppb`.
fn write_fraction(value: &mut Value) {
    if let Value::Float(fraction) = value
        && (0.0..=1.0).contains(fraction)
    {
        *value = Value::String(format!("{:.0}ppb", *fraction * 1e9));
    }
}

fn take(table: &mut Table, keys: &[&str]) -> Table {
    keys.iter().filter_map(|key| table.remove_entry(*key)).collect()
}

/// One change of a running switch: `port.NAME.KEY=VALUE`. KEY may be a path into a table, such as
/// `reorder.probability`, or into a queue, such as `queue.limit_bytes` or `queues.1.limit_bytes`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Change {
    /// The port's name.
    pub(super) port: String,
    /// The part of the port that is changed.
    pub(super) target: Target,
    /// The path of that part, for errors.
    at: String,
    path: Vec<String>,
    value: Value,
}

/// The part of a port that a change applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The port's line.
    Line,
    /// One of the port's queues.
    Queue(usize),
}

impl Change {
    /// Parses a change. The value is TOML if it parses as such, else text, so that `500Mbit` needs
    /// no quotes.
    pub(super) fn parse(text: &str) -> Result<Self, KeyError> {
        let form = || KeyError::new(text, "is no change; write port.NAME.KEY=VALUE");
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let key = key.trim();
        let words: Vec<&str> = key.split('.').collect();
        let ["port", port, path @ ..] = words.as_slice() else { return Err(form()) };
        let Some(first) = path.first() else { return Err(form()) };
        let (target, at, path) = match path {
            ["queue", path @ ..] if !path.is_empty() => {
                (Target::Queue(0), ".queue".to_owned(), path)
            }
            ["queues", n, path @ ..] if !path.is_empty() && n.parse::<usize>().is_ok() => {
                let number = n.parse().unwrap_or(usize::MAX);
                (Target::Queue(number), format!(".queues.{n}"), path)
            }
            path => (Target::Line, String::new(), path),
        };
        if target == Target::Line {
            check_changeable(key, first)?;
        }
        Ok(Self {
            port: (*port).to_owned(),
            target,
            at: format!("port.{port}{at}"),
            path: path.iter().map(|word| (*word).to_owned()).collect(),
            value: value_of(value.trim()),
        })
    }

    /// The line with this change applied. The value `none` resets a key to its default.
    pub(super) fn apply_to_line(&self, line: &LineConfig) -> Result<LineConfig, KeyError> {
        let mut table = self.table_of(line)?;
        if let Some(Value::Table(impairments)) = table.remove("impairments") {
            table.extend(impairments);
        }
        self.insert_into(&mut table)?;
        take_line(&self.at, &mut table)
    }

    /// The queue with this change applied.
    pub(super) fn apply_to_queue(&self, queue: &QueueConfig) -> Result<QueueConfig, KeyError> {
        let mut table = self.table_of(queue)?;
        self.insert_into(&mut table)?;
        read(&self.at, table)
    }

    /// The error for a queue that does not exist in a port with `count` queues.
    pub(super) fn no_such_queue(&self, count: usize) -> KeyError {
        KeyError::new(&self.at, format!("does not exist; there are {count} queues, from queues.0"))
    }

    /// True if the change names the port's only queue (`queue` instead of `queues.N`).
    pub(super) fn is_only_queue(&self) -> bool {
        self.at.ends_with(".queue")
    }

    fn table_of<T: serde::Serialize>(&self, part: &T) -> Result<Table, KeyError> {
        Table::try_from(part).map_err(|e| KeyError::new(&self.at, e.to_string()))
    }

    fn insert_into(&self, table: &mut Table) -> Result<(), KeyError> {
        let (last, tables) = self.path.split_last().expect("parse has seen one key");
        let mut target = table;
        for key in tables {
            let entry = target.entry(key.as_str()).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = entry else {
                let key = format!("{}.{}", self.at, self.path.join("."));
                return Err(KeyError::new(key, format!("{} has no keys", tables.join("."))));
            };
            target = inner;
        }
        if self.value.as_str() == Some("none") {
            target.remove(last);
        } else {
            target.insert(last.clone(), self.value.clone());
        }
        Ok(())
    }
}

/// Rejects keys of a port that do not belong to its line.
fn check_changeable(key: &str, first: &str) -> Result<(), KeyError> {
    if LINE_KEYS.contains(&first) || IMPAIRMENT_KEYS.contains(&first) {
        return Ok(());
    }
    if PORT_KEYS.contains(&first) || matches!(first, "queue" | "device") {
        let what = "cannot be changed while the switch runs; change the file and start it again";
        return Err(KeyError::new(key, what));
    }
    let known = [&LINE_KEYS[..], &IMPAIRMENT_KEYS[..]].concat().join(", ");
    let what = format!("is not known; what can be changed is {known}, and queue.KEY");
    Err(KeyError::new(key, what))
}

fn value_of(text: &str) -> Value {
    let read = toml::from_str::<Table>(&format!("value = {text}"));
    let value = read.ok().filter(|table| table.len() == 1).and_then(|mut t| t.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::{Dur, Rate};
    use spanwire_switch::Prob;

    fn line(text: &str) -> LineConfig {
        take_line("port.a", &mut toml::from_str(text).expect("TOML")).expect("a line")
    }

    /// The lists of keys must match the fields of the structs, so that none is forgotten.
    #[test]
    fn keys__are_the_fields_of_the_structs() {
        let fields = |value: serde_json::Value| {
            let object = value.as_object().expect("a struct").clone();
            let mut names: Vec<String> = object.into_iter().map(|(name, _)| name).collect();
            names.sort();
            names
        };
        let sorted = |keys: &[&str]| {
            let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            keys.sort();
            keys
        };
        let config = LineConfig::default();
        let impairments = serde_json::to_value(&config.impairments).expect("plain data");
        assert_eq!(fields(impairments), sorted(&IMPAIRMENT_KEYS));
        let line = serde_json::to_value(&config).expect("plain data");
        assert_eq!(fields(line), sorted(&[&LINE_KEYS[..], &["impairments"]].concat()));
        let port = serde_json::to_value(PortConfig::default()).expect("plain data");
        assert_eq!(fields(port), sorted(&[&PORT_KEYS[..], &["rate"]].concat()));
    }

    #[test]
    fn take_line__keys_of_line_and_impairments_side_by_side() {
        let line = line("rate = '1Gbit'\ndelay = '2ms'\nloss = '1%'\njitter = '5us'");
        assert_eq!(line.rate, Some(Rate::from_gbps(1)));
        assert_eq!(line.delay, Dur::from_ms(2));
        assert_eq!(line.impairments.loss, Prob::from_ppm(10_000));
        assert_eq!(line.impairments.jitter, Dur::from_us(5));
    }

    #[test]
    fn take_line__a_probability_may_be_a_fraction() {
        for (text, ppm) in [("loss = 0.01", 10_000), ("loss = 1.0", 1_000_000), ("loss = 0.0", 0)] {
            assert_eq!(line(text).impairments.loss, Prob::from_ppm(ppm), "{text}");
        }
        for text in ["loss = 1.01", "loss = -0.5", "loss = nan", "loss = 1"] {
            let mut table = toml::from_str(text).expect("TOML");
            let error = take_line("port.a", &mut table).expect_err(text);
            assert_eq!(error.key, "port.a.loss", "{error}");
        }
    }

    #[test]
    fn take_line__errors_name_key_value_and_expected_format() {
        for (text, key, words) in [
            ("rate = '5G'", "port.a.rate", vec!["5G", "25Gbit"]),
            ("delay = 3", "port.a.delay", vec!["3", "2ms"]),
            ("loss = '200%'", "port.a.loss", vec!["200%", "probability"]),
            ("reorder = {probability = '1%'}", "port.a.reorder", vec!["extra_delay"]),
            ("burst_loss = {enter = 7}", "port.a.burst_loss.enter", vec!["7", "0.1%"]),
        ] {
            let mut table = toml::from_str(text).expect("TOML");
            let error = take_line("port.a", &mut table).expect_err(text);
            assert_eq!(error.key, key, "{error}");
            for word in words {
                assert!(error.what.contains(word), "{word} in {error}");
            }
        }
    }

    #[test]
    fn take_port__one_queue_needs_no_list() {
        let mut table = toml::from_str("[queue]\nlimit_bytes = '3MB'").expect("TOML");
        let port = take_port("port.a", &mut table).expect("a port");
        assert_eq!(port.queues.len(), 1);
        assert_eq!(port.queues[0].limit_bytes, 3_000_000);
        for (text, key) in [
            ("queue = {limit = 5}", "port.a.queue"),
            ("queue = 5", "port.a.queue"),
            ("queues = []\nqueue = {}", "port.a"),
            ("queues = [{limit_bytes = -1}]", "port.a.queues.limit_bytes"),
        ] {
            let mut table = toml::from_str(text).expect("TOML");
            assert_eq!(take_port("port.a", &mut table).expect_err(text).key, key, "{text}");
        }
    }

    #[test]
    fn change__sets_nested_keys_and_resets() {
        let old = line("rate = '1Gbit'\nloss = '1%'");
        let apply = |text: &str| Change::parse(text).expect(text).apply_to_line(&old);
        let new = apply("port.a.rate=500Mbit").expect("fine");
        assert_eq!(new.rate, Some(Rate::from_bps(500_000_000)));
        assert_eq!(new.impairments, old.impairments);
        let new = apply("port.a.loss = \"2%\"").expect("fine");
        assert_eq!((new.impairments.loss, new.rate), (Prob::from_ppm(20_000), old.rate));
        assert_eq!(apply("port.a.loss=none").expect("fine").impairments.loss, Prob::ZERO);
        assert_eq!(apply("port.a.rate=none").expect("fine").rate, None);
        let text = "port.a.reorder={probability='1%', extra_delay='1ms'}";
        let new = apply(text).expect("fine");
        let old = new.clone();
        let new =
            Change::parse("port.a.reorder.extra_delay=3ms").expect("fine").apply_to_line(&old);
        let reorder = new.expect("fine").impairments.reorder.expect("set");
        assert_eq!(
            (reorder.extra_delay, reorder.probability),
            (Dur::from_ms(3), Prob::from_ppm(10_000))
        );
    }

    #[test]
    fn change__errors_list_changeable_keys() {
        for (text, words) in [
            ("rate=5", "write port.NAME.KEY=VALUE"),
            ("port.a=5", "write port.NAME.KEY=VALUE"),
            ("port.a.rate", "write port.NAME.KEY=VALUE"),
            ("port.a.los=1%", "loss"),
            ("port.a.queues=[]", "start it again"),
            ("port.a.device=x", "start it again"),
        ] {
            let error = Change::parse(text).expect_err(text).to_string();
            assert!(error.contains(words), "{error}");
        }
        let line = LineConfig::default();
        for text in ["port.a.rate=fast", "port.a.rate.x=1", "port.a.reorder.probability=1%"] {
            let change = Change::parse(text).expect("well formed");
            let error = change.apply_to_line(&line).expect_err(text).to_string();
            assert!(error.starts_with("port.a."), "{error}");
        }
    }

    #[test]
    fn to_file_keys__ports_have_names() {
        let names = ["left", "right"];
        let text = to_file_keys("lines[1].impairments.flap and ports[0].pfc", &names);
        assert_eq!(text, "port.right.flap and port.left.pfc");
    }
}
