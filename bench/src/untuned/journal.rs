//! The samples of a run in a file, so that an interrupted run continues.

use super::algorithm::Algorithm;
use super::measure::Reading;
use super::plan::Plan;
use super::report::Outcome;
use crate::sample::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// JSON lines: what the samples have in common, then a sample a line.
#[derive(Debug, Default)]
pub(super) struct Journal {
    file: Option<File>,
    /// Outcomes by case and algorithm, in the order of their rounds.
    outcomes: BTreeMap<(String, String), Vec<Outcome>>,
}

/// The options that all samples of one file share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Header {
    seconds: f64,
    quick: bool,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    case: String,
    algorithm: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reading: Option<Reading>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Journal {
    /// Reads the samples of the file that `plan` names, which is made if it does not exist.
    ///
    /// # Errors
    /// It is not such a file, or its samples had another duration.
    pub(super) fn open(plan: &Plan) -> Result<Self, Error> {
        let Some(path) = &plan.resume else { return Ok(Self::default()) };
        let header = Header { seconds: plan.seconds, quick: plan.quick };
        Self::read(path, &header).map_err(|why| format!("{}: {why}", path.display()).into())
    }

    fn read(path: &Path, header: &Header) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Err(why) if why.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // The end of a line that was cut off belongs to no sample.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = whole.lines();
        let is_new = match lines.next().map(serde_json::from_str::<Header>) {
            None => true,
            Some(Ok(found)) if found == *header => false,
            Some(Ok(found)) => {
                let Header { seconds, quick } = found;
                let what = format!("its samples have --seconds {seconds} and quick={quick}");
                return Err(format!("{what}; use the same options, or another file").into());
            }
            Some(Err(why)) => return Err(format!("line 1: {why}").into()),
        };
        let mut outcomes: BTreeMap<_, Vec<Outcome>> = BTreeMap::new();
        for (at, line) in lines.enumerate() {
            let line: Line =
                serde_json::from_str(line).map_err(|why| format!("line {}: {why}", at + 2))?;
            let outcome = line.reading.ok_or_else(|| line.error.unwrap_or_default());
            outcomes.entry((line.case, line.algorithm)).or_default().push(outcome);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(u64::try_from(whole.len())?)?;
        if is_new {
            writeln!(file, "{}", serde_json::to_string(header)?)?;
        }
        Ok(Self { file: Some(file), outcomes })
    }

    /// The outcomes of a case and an algorithm that are in the file, `most` at most.
    pub(super) fn take(&mut self, case: &str, algorithm: Algorithm, most: u32) -> Vec<Outcome> {
        let key = (case.to_owned(), algorithm.name().to_owned());
        let mut outcomes = self.outcomes.remove(&key).unwrap_or_default();
        outcomes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        outcomes
    }

    /// Adds an outcome.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(
        &mut self,
        case: &str,
        algorithm: Algorithm,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = Line {
            case: case.to_owned(),
            algorithm: algorithm.name().to_owned(),
            reading: outcome.as_ref().ok().cloned(),
            error: outcome.as_ref().err().cloned(),
        };
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::Folder;
    use std::path::PathBuf;

    fn folder(name: &str) -> Folder {
        Folder::new(&format!("spanwire-journal-{name}-{}", std::process::id())).unwrap()
    }

    fn header() -> Header {
        Header { seconds: 4.0, quick: false }
    }

    fn reading(mbps: f64) -> Outcome {
        Ok(Reading { mbps: vec![mbps], ..Reading::default() })
    }

    #[test]
    fn read__continues_after_the_last_whole_line() {
        let folder = folder("continues");
        let path = &PathBuf::from(folder.join("samples"));
        let mut journal = Journal::read(path, &header()).unwrap();
        for mbps in [1.0, 2.0] {
            journal.add("veth", Algorithm::Auto, &reading(mbps)).unwrap();
        }
        journal.add("veth", Algorithm::None, &Err("no route".to_owned())).unwrap();
        drop(journal);
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, format!("{text}{{\"case\": \"ve")).unwrap();
        let mut journal = Journal::read(path, &header()).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), text, "the rest is gone");
        assert_eq!(journal.take("veth", Algorithm::Auto, 5), [reading(1.0), reading(2.0)]);
        assert_eq!(journal.take("veth", Algorithm::None, 5), [Err("no route".to_owned())]);
        assert_eq!(journal.take("50M/50ms", Algorithm::Auto, 5), []);
        journal.add("veth", Algorithm::Auto, &reading(3.0)).unwrap();
        let mut journal = Journal::read(path, &header()).unwrap();
        assert_eq!(journal.take("veth", Algorithm::Auto, 1), [reading(1.0)]);
    }

    #[test]
    fn read__other_samples_are_refused() {
        let folder = folder("refused");
        let path = &PathBuf::from(folder.join("samples"));
        drop(Journal::read(path, &header()).unwrap());
        let other = Header { seconds: 2.0, ..header() };
        let why = Journal::read(path, &other).unwrap_err().to_string();
        assert!(why.contains("--seconds 4") && why.contains("another file"), "{why}");
        fs::write(path, "path,algorithm\n").unwrap();
        let why = Journal::read(path, &header()).unwrap_err().to_string();
        assert!(why.starts_with("line 1"), "{why}");
    }
}
