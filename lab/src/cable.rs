//! A lab of two hosts and a cable.

use crate::error::LabError;
use crate::names::{CABLE_HOSTS, DEVICE, mark, namespace};
use crate::namespace::NewNamespace;
use crate::report::{LabHost, UpReport};
use crate::spec::Spec;
use spanwire_io::net::{Host, LabConfig, NetError, Netlink, TwoHosts, format_mac};

/// Creates the lab; its name has been checked.
///
/// # Errors
/// As [`super::up`].
pub(crate) fn up(spec: &Spec) -> Result<UpReport, LabError> {
    let name = spec.name.as_str();
    let refused = |source: NetError| LabError::from_up(name, source);
    let config = LabConfig {
        ifname: DEVICE.to_owned(),
        mtu: spec.mtu,
        v4: spec.prefix,
        v6: spec.prefix6,
        queues: spec.queues,
        pfifo: (spec.queue_limit > 0).then_some(spec.queue_limit),
    };
    let [name_a, name_b] = CABLE_HOSTS.map(|host| namespace(name, host));
    let a = NewNamespace::new(&name_a).map_err(refused)?;
    let b = NewNamespace::new(&name_b).map_err(refused)?;
    let hosts = TwoHosts::join(a.handle()?, b.handle()?, &config).map_err(refused)?;
    for host in [&hosts.a, &hosts.b] {
        Netlink::open_in(&host.ns)
            .and_then(|mut netlink| netlink.set_alias(DEVICE, &mark(name)))
            .map_err(refused)?;
    }
    a.keep();
    b.keep();
    let [host_a, host_b] = CABLE_HOSTS;
    Ok(UpReport {
        name: name.to_owned(),
        mtu: spec.mtu,
        hosts: vec![up_host(host_a, name_a, &hosts.a), up_host(host_b, name_b, &hosts.b)],
        switch: None,
    })
}

fn up_host(name: &str, namespace: String, host: &Host) -> LabHost {
    LabHost {
        host: name.to_owned(),
        namespace,
        device: host.ifname.clone(),
        mac: format_mac(&host.mac),
        v4: host.v4,
        v6: host.v6,
    }
}
