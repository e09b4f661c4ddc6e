//! Roles of switches.

use serde::{Deserialize, Serialize};

/// The role of a switch in its network. Settings may differ by role:
/// [`Setup::roles`](crate::Setup::roles).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// None of the others.
    #[default]
    Other,
    /// In a fat tree, joined to hosts (ToR).
    Edge,
    /// In a fat tree, joined to the edge switches of its pod.
    Aggregation,
    /// The top of a fat tree.
    Core,
    /// In a leaf-spine network, joined to hosts.
    Leaf,
    /// The top of a leaf-spine network.
    Spine,
    /// Between the top of a datacenter and other datacenters.
    Border,
}
