//! A lab of two hosts and a cable.

use super::args::UpArgs;
use super::error::LabError;
use super::namespace::Making;
use super::report::{UpHost, UpReport};
use super::{CABLE_HOSTS, DEVICE, mark, namespace};
use spanwire_io::net::{Host, LabConfig, NetError, Netlink, TwoHosts, format_mac};

/// Makes the lab; its name has been checked.
///
/// # Errors
/// As [`super::up`].
pub(super) fn up(args: &UpArgs) -> Result<UpReport, LabError> {
    let name = args.lab.name.as_str();
    let refused = |source: NetError| LabError::from_up(name, source);
    let config = LabConfig {
        ifname: DEVICE.to_owned(),
        mtu: args.mtu,
        v4: args.prefix,
        v6: args.prefix6,
        queues: args.queues,
        pfifo: (args.queue_limit > 0).then_some(args.queue_limit),
    };
    let [name_a, name_b] = CABLE_HOSTS.map(|host| namespace(name, host));
    let a = Making::new(&name_a).map_err(refused)?;
    let b = Making::new(&name_b).map_err(refused)?;
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
        mtu: args.mtu,
        hosts: vec![up_host(host_a, name_a, &hosts.a), up_host(host_b, name_b, &hosts.b)],
        switch: None,
    })
}

fn up_host(name: &str, namespace: String, host: &Host) -> UpHost {
    UpHost {
        host: name.to_owned(),
        namespace,
        device: host.ifname.clone(),
        mac: format_mac(&host.mac),
        v4: host.v4,
        v6: host.v6,
    }
}
