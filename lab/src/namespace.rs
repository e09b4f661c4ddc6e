//! The namespaces of a lab: created all or none, and removed only if a lab created their devices.

use crate::error::LabError;
use crate::names::{DEVICE, mark};
use spanwire_io::net::{NetError, NetErrorKind, NetNs, Netlink};

/// A new named namespace, removed on drop unless the lab is complete.
#[derive(Debug)]
pub(crate) struct NewNamespace {
    name: String,
    keep: bool,
}

/// A namespace of a lab as `down` finds it.
#[derive(Debug)]
pub(crate) struct LabNamespace {
    /// Its name.
    pub(crate) name: String,
    /// `None` for the file of a namespace that was never mounted.
    pub(crate) ns: Option<NetNs>,
    /// The lab's devices in it.
    pub(crate) devices: Vec<String>,
}

impl NewNamespace {
    pub(crate) fn new(name: &str) -> Result<Self, NetError> {
        NetNs::create_named(name)?;
        Ok(Self { name: name.to_owned(), keep: false })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handle(&self) -> Result<NetNs, LabError> {
        NetNs::open_named(&self.name).map_err(|source| LabError::Net {
            doing: format!("use the namespace {} just made", self.name),
            source,
        })
    }

    pub(crate) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for NewNamespace {
    fn drop(&mut self) {
        if !self.keep {
            // The original error is reported, not this one.
            let _ = NetNs::delete_named(&self.name);
        }
    }
}

impl LabNamespace {
    /// Inspects the namespace `name` of `lab`, which may have the devices `expected`; `None` if it
    /// does not exist.
    ///
    /// # Errors
    /// It has another device, so it is not the lab's; permission denied.
    pub(crate) fn inspect(
        lab: &str,
        name: &str,
        expected: &[String],
    ) -> Result<Option<Self>, LabError> {
        let ns = match NetNs::open_named(name) {
            Ok(ns) => ns,
            Err(e) if e.kind() == NetErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == NetErrorKind::Invalid => {
                return Ok(Some(Self { name: name.to_owned(), ns: None, devices: Vec::new() }));
            }
            Err(source) => {
                let doing = format!("remove the lab {lab}");
                return Err(LabError::Net { doing, source });
            }
        };
        let devices = lab_devices(&ns, lab, name, expected)?;
        Ok(Some(Self { name: name.to_owned(), ns: Some(ns), devices }))
    }

    /// Deletes the lab's devices. The kernel deletes both ends of a veth pair at once, so a device
    /// that no longer exists is no error.
    pub(crate) fn delete_devices(&self) -> Result<(), NetError> {
        let Some(ns) = &self.ns else { return Ok(()) };
        let mut netlink = Netlink::open_in(ns)?;
        for device in &self.devices {
            match netlink.delete_link(device) {
                Err(e) if e.kind() != NetErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The devices of the lab in a namespace; an error if it has any other.
fn lab_devices(
    ns: &NetNs,
    lab: &str,
    namespace: &str,
    expected: &[String],
) -> Result<Vec<String>, LabError> {
    let links = Netlink::open_in(ns).and_then(|mut netlink| netlink.links()).map_err(|source| {
        LabError::Net { doing: format!("inspect the namespace {namespace}"), source }
    })?;
    let mut found = Vec::new();
    for link in links {
        // An interrupted `up` leaves a device without alias. A veth of that name is the lab's.
        let is_incomplete = link.alias.is_none() && link.kind.as_deref() == Some("veth");
        let is_automatic = |kind| AUTOMATIC_KINDS.contains(&kind);
        let is_marked = link.alias.as_deref() == Some(mark(lab).as_str());
        if expected.contains(&link.name) && (is_marked || is_incomplete) {
            found.push(link.name);
        } else if !link.loopback && !link.kind.as_deref().is_some_and(is_automatic) {
            return Err(LabError::NotOurs { namespace: namespace.to_owned(), device: link.name });
        }
    }
    Ok(found)
}

/// The devices of a host, for [`LabNamespace::inspect`].
pub(crate) fn host_devices() -> [String; 1] {
    [DEVICE.to_owned()]
}

/// Kinds of devices that the kernel creates in every new namespace if their modules are loaded.
const AUTOMATIC_KINDS: [&str; 9] =
    ["sit", "gre", "gretap", "erspan", "ipip", "ip6tnl", "ip6gre", "vti", "vti6"];
