// SPDX-License-Identifier: MPL-2.0

//! SNMP traps: a message of SNMPv2c to a network management for each alarm, as `docs/deploy/HIPVMAF-MIB.txt` describes it.
//!
//! Traps are not confirmed, so an alarm is delivered once it is sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Instant;

use rasn::types::{ObjectIdentifier, OctetString};
use rasn_smi::v1::TimeTicks;
use rasn_smi::v2::{ApplicationSyntax, ObjectSyntax, SimpleSyntax};
use rasn_snmp::v2::{Pdu, Trap, VarBind, VarBindValue};
use rasn_snmp::v2c::Message;
use serde::Deserialize;
use serde_json::Value;

use super::settings::read_from_text;

/// Scheme of addresses.
pub const SCHEME: &str = "snmp://";
/// Port of addresses without one.
const PORT: u16 = 162;
/// Version 2c, as messages count it.
const VERSION: u64 = 1;
/// Root of the module's names: a number below netSnmpPlaypen, as hipvmaf has no enterprise number of its own.
const ROOT: &[u32] = &[1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 7686];
const UP_TIME: &[u32] = &[1, 3, 6, 1, 2, 1, 1, 3, 0];
const TRAP_OID: &[u32] = &[1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];
/// Fields of messages in the order of the module's objects.
const FIELDS: [&str; 7] = ["channel", "label", "kind", "state", "severity", "alarm", "text"];
/// States in the order of the module's notifications.
const STATES: [&str; 4] = ["raised", "acknowledged", "cleared", "info"];
/// Bytes of a field; longer ones are cut. A trap must fit into a datagram.
const LONGEST: usize = 255;

/// The receiver of traps, written as `COMMUNITY@HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Manager {
    community: String,
    /// Host and port.
    to: String,
}

read_from_text!(Manager);

impl FromStr for Manager {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (community, place) = text.rsplit_once('@').filter(|(community, _)| !community.is_empty())?;
            let place: hyper::http::uri::Authority = place.parse().ok()?;
            let port = if place.host() == place.as_str() { PORT } else { place.port_u16()? };
            Some(Self { community: community.into(), to: format!("{}:{port}", place.host()) })
        };
        parse().ok_or("a receiver of traps is written as COMMUNITY@HOST or COMMUNITY@HOST:PORT".into())
    }
}

impl Manager {
    /// Returns its address, which [`send`] takes.
    pub fn address(&self) -> String {
        format!("{SCHEME}{}@{}", self.community, self.to)
    }
}

/// Sends a message as a trap. `address`: community, host and port, as in [`Manager`].
pub fn send(address: &str, message: &Value) -> Result<(), String> {
    let Manager { community, to } = address.parse()?;
    let trap = encode(&community, message)?;
    post(&to, &trap).map_err(|error| error.to_string())
}

/// Sends a datagram from a socket of the receiver's family.
fn post(to: &str, datagram: &[u8]) -> io::Result<()> {
    let to = to.to_socket_addrs()?.next().ok_or(io::ErrorKind::HostUnreachable)?;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0))?.send_to(datagram, to).map(|_| ())
}

fn encode(community: &str, message: &Value) -> Result<Vec<u8>, String> {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // It begins anew after 497 days, as the standard says.
    let up_time = TimeTicks((START.elapsed().as_millis() / 10) as u32);
    let state = STATES.iter().position(|state| message["state"] == **state).unwrap_or(STATES.len() - 1);
    let mut bindings = vec![
        binding(UP_TIME, ObjectSyntax::ApplicationWide(ApplicationSyntax::Ticks(up_time)))?,
        binding(TRAP_OID, ObjectSyntax::Simple(SimpleSyntax::ObjectId(name(&[0, 1 + state as u32])?)))?,
    ];
    for (field, number) in FIELDS.iter().zip(1..) {
        let value = match &message[field] {
            // Numbers of alarms exceed the 32 bits that integers have.
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => continue,
        };
        bindings.push(VarBind {
            name: name(&[1, number, 0])?,
            value: VarBindValue::Value(ObjectSyntax::Simple(SimpleSyntax::String(cut(&value)))),
        });
    }
    let pdu = Pdu { request_id: 0, error_status: 0, error_index: 0, variable_bindings: bindings };
    let community = OctetString::from(community.as_bytes().to_vec());
    rasn::ber::encode(&Message { version: VERSION.into(), community, data: Trap(pdu) })
        .map_err(|error| error.to_string())
}

fn binding(name: &[u32], value: ObjectSyntax) -> Result<VarBind, String> {
    Ok(VarBind { name: identifier(name.to_vec())?, value: VarBindValue::Value(value) })
}

/// Returns a name of the module.
fn name(of: &[u32]) -> Result<ObjectIdentifier, String> {
    identifier([ROOT, of].concat())
}

fn identifier(numbers: Vec<u32>) -> Result<ObjectIdentifier, String> {
    ObjectIdentifier::new(numbers).ok_or("a name of the module is invalid".into())
}

/// Cuts a text at the end of a character.
fn cut(text: &str) -> OctetString {
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.as_bytes()[..end].to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn receivers_have_a_community_and_a_host() {
        for (text, address) in
            [("public@nms", "snmp://public@nms:162"), ("s@cret@[::1]:1162", "snmp://s@cret@[::1]:1162")]
        {
            assert_eq!(text.parse::<Manager>().unwrap().address(), address);
        }
        for text in ["nms", "@nms", "public@", "public@nms:port", "public@nms:70000"] {
            assert!(text.parse::<Manager>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_trap_has_the_fields_of_the_message() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let text = "ü".repeat(200);
        let message = json!({
            "channel": "one", "label": "low", "kind": "freeze", "state": "cleared", "severity": "major", "alarm": 1_795_957_200_000_000u64,
            "text": text, "time": 1.5, "stills": {},
        });
        send(&format!("secret@{}", receiver.local_addr().unwrap()), &message).unwrap();
        let mut datagram = [0; 1500];
        let length = receiver.recv(&mut datagram).unwrap();
        let trap: Message<Trap> = rasn::ber::decode(&datagram[..length]).unwrap();
        assert_eq!((trap.version, trap.community), (VERSION.into(), OctetString::from_static(b"secret")));
        let Pdu { variable_bindings: bindings, .. } = trap.data.0;
        assert_eq!(bindings[0].name, identifier(UP_TIME.to_vec()).unwrap());
        let simple = |value| VarBindValue::Value(ObjectSyntax::Simple(value));
        let string = |text: &str| simple(SimpleSyntax::String(text.as_bytes().to_vec().into()));
        let (cleared, of) = (name(&[0, 3]).unwrap(), |number| name(&[1, number, 0]).unwrap());
        let rest: Vec<_> =
            bindings[1..].iter().map(|binding| (binding.name.clone(), binding.value.clone())).collect();
        assert_eq!(
            rest,
            [
                (identifier(TRAP_OID.to_vec()).unwrap(), simple(SimpleSyntax::ObjectId(cleared))),
                (of(1), string("one")),
                (of(2), string("low")),
                (of(3), string("freeze")),
                (of(4), string("cleared")),
                (of(5), string("major")),
                (of(6), string("1795957200000000")),
                // Cut at the end of a character.
                (of(7), string(&text[..254])),
            ]
        );
    }
}
