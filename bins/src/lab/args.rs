//! The command line of `spanwire lab`.

use clap::{Args, Subcommand};
use spanwire_io::net::IpPrefix;
use std::ffi::OsString;
use std::path::PathBuf;

/// The arguments of `spanwire lab`.
#[derive(Debug, Clone, Args)]
pub struct LabArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The subcommands of `spanwire lab`.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// Make two hosts joined by a cable, or hosts around a switch
    Up(UpArgs),
    /// Remove the hosts, and their cable or switch
    Down(NameArgs),
    /// Run a command on one of the hosts
    Exec(ExecArgs),
    /// Show the hosts: addresses, link state, counters, XDP, processes. Fails if the lab is not up
    Status(NameArgs),
}

/// The arguments of `spanwire lab up`.
#[derive(Debug, Clone, Args)]
pub struct UpArgs {
    /// The lab's name and the output format.
    #[command(flatten)]
    pub lab: NameArgs,
    /// Join the hosts by `spanwire switch` with this configuration, one host for each of its ports
    #[arg(long, value_name = "FILE")]
    pub switch: Option<PathBuf>,
    /// Largest IP packet in bytes, 1280 to 65535
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    pub mtu: u32,
    /// IPv4 network; the hosts get its first addresses
    #[arg(long, default_value = "10.77.0.0/24", value_name = "ADDR/LEN")]
    pub prefix: IpPrefix,
    /// IPv6 network; the hosts get its first addresses
    #[arg(long, default_value = "fd77::/64", value_name = "ADDR/LEN")]
    pub prefix6: IpPrefix,
    /// Receive and transmit queues of each end, 1 to 64
    #[arg(long, default_value_t = 1, value_name = "COUNT", conflicts_with = "switch")]
    pub queues: u32,
    /// Length of each end's transmit queue (pfifo); 0 for none, so that a full peer drops
    #[arg(long, default_value_t = 1000, value_name = "PACKETS")]
    pub queue_limit: u32,
}

/// The arguments of `spanwire lab down` and `status`.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Name of the lab: letters, digits, '-' and '_', at most 32
    #[arg(long, default_value = "sw")]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `spanwire lab exec`.
#[derive(Debug, Clone, Args)]
pub struct ExecArgs {
    /// Name of the lab
    #[arg(long, default_value = "sw")]
    pub name: String,
    /// Host to run the command on: a or b, the name of a port of the switch, or "switch"
    pub host: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}
