//! Settings of switches by role, and congestion marks by the rate of each port.

use super::Setup;
use crate::topology::Role;
use spanwire_base::Rate;
use spanwire_switch::{PortConfig, QueueConfig};

/// Settings of the switches of one role.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RoleSetup {
    /// Settings of their ports; `None`: [`Setup::port`]. Rate, address and PFC headroom of each
    /// port follow from its link, as with [`Setup::port`].
    pub port: Option<PortConfig>,
    /// The buffer that the ports of each share; `None`: [`Setup::buffer_bytes`].
    pub buffer_bytes: Option<u64>,
}

impl Setup {
    /// The settings of a port of `rate` of a switch with this role. Marking thresholds are scaled
    /// if [`Setup::marks_at`] is set.
    #[must_use]
    pub fn port_of(&self, role: Role, rate: Rate) -> PortConfig {
        let own = self.roles.get(&role).and_then(|of_role| of_role.port.as_ref());
        let mut port = own.unwrap_or(&self.port).clone();
        if let Some(at) = self.marks_at {
            port.queues.iter_mut().for_each(|queue| scale(queue, rate, at));
        }
        port
    }

    /// The shared buffer of a switch with this role, in bytes.
    #[must_use]
    pub fn buffer_of(&self, role: Role) -> u64 {
        let own = self.roles.get(&role).and_then(|of_role| of_role.buffer_bytes);
        own.unwrap_or(self.buffer_bytes)
    }

    /// The settings of ports of all roles, before scaling.
    pub(super) fn port_configs(&self) -> impl Iterator<Item = &PortConfig> {
        let of_roles = self.roles.values().filter_map(|of_role| of_role.port.as_ref());
        std::iter::once(&self.port).chain(of_roles)
    }
}

/// Scales the marking thresholds of a queue from rate `at` to `rate`.
fn scale(queue: &mut QueueConfig, rate: Rate, at: Rate) {
    let scaled = |bytes: &mut u64| {
        let all = u128::from(*bytes) * u128::from(rate.as_bps()) / u128::from(at.as_bps());
        *bytes = u64::try_from(all).unwrap_or(u64::MAX).max(1);
    };
    if let Some(ecn) = &mut queue.ecn {
        [&mut ecn.kmin_bytes, &mut ecn.kmax_bytes].into_iter().for_each(scaled);
    }
    if let Some(phantom) = &mut queue.phantom {
        let bytes = [&mut phantom.size_bytes, &mut phantom.kmin_bytes, &mut phantom.kmax_bytes];
        bytes.into_iter().for_each(scaled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_switch::{EcnConfig, PhantomConfig, Prob, Ratio};

    const GBPS_25: Rate = Rate::from_gbps(25);
    const GBPS_100: Rate = Rate::from_gbps(100);

    /// Marks between 100 and 400 bytes.
    fn marked() -> PortConfig {
        let ecn = Some(EcnConfig::red(100, 400, Prob::ONE));
        PortConfig { queues: vec![QueueConfig { ecn, ..Default::default() }], ..Default::default() }
    }

    fn thresholds(setup: &Setup, role: Role, rate: Rate) -> Option<(u64, u64)> {
        setup.port_of(role, rate).queues[0].ecn.map(|e| (e.kmin_bytes, e.kmax_bytes))
    }

    #[test]
    fn port_of__thresholds_scale_with_the_port_only_if_set() {
        let mut setup = Setup { port: marked(), ..Setup::default() };
        assert_eq!(thresholds(&setup, Role::Edge, GBPS_100), Some((100, 400)));
        setup.marks_at = Some(GBPS_25);
        assert_eq!(thresholds(&setup, Role::Edge, GBPS_25), Some((100, 400)));
        assert_eq!(thresholds(&setup, Role::Edge, GBPS_100), Some((400, 1600)));
        let slow = Rate::from_bps(1_000);
        assert_eq!(thresholds(&setup, Role::Edge, slow), Some((1, 1)), "never below a byte");
    }

    #[test]
    fn port_of__phantom_queues_scale_in_all_their_sizes() {
        let mut setup = Setup { marks_at: Some(GBPS_25), ..Setup::default() };
        setup.port.queues[0].phantom = Some(PhantomConfig {
            drain: Ratio::new(9, 10).unwrap(),
            size_bytes: 1000,
            kmin_bytes: 20,
            kmax_bytes: 600,
            pmax: Prob::ONE,
            with_physical: false,
        });
        let phantom = setup.port_of(Role::Core, GBPS_100).queues[0].phantom.unwrap();
        let sizes = (phantom.size_bytes, phantom.kmin_bytes, phantom.kmax_bytes);
        assert_eq!(sizes, (4000, 80, 2400));
    }

    #[test]
    fn port_of__a_role_has_its_own_port_and_buffer() {
        let mut setup = Setup::default();
        let own = RoleSetup { port: Some(marked()), buffer_bytes: Some(1 << 20) };
        setup.roles.insert(Role::Border, own);
        assert_eq!(thresholds(&setup, Role::Border, GBPS_25), Some((100, 400)));
        assert_eq!(thresholds(&setup, Role::Spine, GBPS_25), None);
        assert_eq!(setup.buffer_of(Role::Border), 1 << 20);
        assert_eq!(setup.buffer_of(Role::Spine), setup.buffer_bytes);
        assert_eq!(setup.traffic_class() & 3, 2, "a role's queue marks, so packets are ECT");
    }
}
