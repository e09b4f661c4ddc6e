//! The arguments of commands with several workers.

use crate::exit::usage;
use spanwire_host::cores::{CoreList, assign};
use spanwire_host::fabric::Error;

/// Workers, and the cores that they have.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WorkerArgs {
    /// Workers: each is a thread with an engine, a queue of the interface (the next ones after
    /// --queue) and a core of its own, and shares nothing with the others [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: Option<u32>,
    /// Cores of the workers, such as 0,2,4-7 [default: the first ones that are usable; a single
    /// worker has none of its own]
    #[arg(long, value_name = "LIST", alias = "core", value_parser = CoreList::parse)]
    cores: Option<CoreList>,
    /// Let workers share cores if there are fewer
    #[arg(long)]
    oversubscribe: bool,
}

impl WorkerArgs {
    /// The number of workers.
    pub(crate) fn count(&self) -> u32 {
        self.workers.unwrap_or(1)
    }

    /// True if the number was given.
    pub(crate) fn is_given(&self) -> bool {
        self.workers.is_some()
    }

    /// The core of each worker.
    ///
    /// # Errors
    /// There are fewer cores.
    pub(crate) fn assign(&self) -> Result<Vec<Option<usize>>, Error> {
        assign(self.count(), self.cores.as_ref(), self.oversubscribe).map_err(usage)
    }
}
