//! Classifies an IP address as public, internal or special (SSRF guard).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// On the public internet.
    Public,
    /// On this machine, or in a private network.
    Inside,
    /// Neither: link-local (the cloud metadata services with their credentials), multicast, unspecified, reserved, or a range
    /// that embeds another address.
    Special,
}

impl AddressClass {
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => v4(address),
            IpAddr::V6(address) => v6(address),
        }
    }
}

const fn v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [10 | 127, ..] | [192, 168, ..] | [172, 16..=31, ..] | [100, 64..=127, ..] => AddressClass::Inside,
        // This network, link-local, protocol assignments, documentation, the 6to4 relay, benchmarks, multicast, reserved.
        [0, ..]
        | [169, 254, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => AddressClass::Special,
        _ => AddressClass::Public,
    }
}

const fn v6(address: Ipv6Addr) -> AddressClass {
    if address.is_loopback() {
        return AddressClass::Inside;
    }
    match address.segments() {
        [0xfc00..=0xfdff, ..] => AddressClass::Inside,
        // Protocol assignments with Teredo, documentation, 6to4.
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => {
            AddressClass::Special
        }
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        // Everything else: unspecified, v4 in v6 (mapped, compatible, NAT64), link-local, site-local, multicast.
        _ => AddressClass::Special,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_the_edges_of_every_range() {
        for (expected, addresses) in [
            (
                AddressClass::Public,
                "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 \
                 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 \
                 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2001:200:: 2001:4860:4860::8888 2a00::1 \
                 2003::1",
            ),
            (
                AddressClass::Inside,
                "10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.1 127.255.255.255 172.16.0.0 \
                 172.31.255.255 192.168.0.0 192.168.255.255 ::1 fc00:: fdff::1",
            ),
            (
                AddressClass::Special,
                "0.0.0.0 0.255.255.255 169.254.0.0 169.254.169.254 192.0.0.8 192.0.0.170 192.0.2.1 192.88.99.1 \
                 198.18.0.0 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.0 \
                 255.255.255.255 :: ::2 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1 \
                 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::1 100::1 2001::1 2001:10::1 2001:20::1 2001:db8::1 \
                 2002:7f00:1:: 3fff::1 fe80::1 febf::1 fec0::1 ff02::1 4000::1 5f00::1 e000::1",
            ),
        ] {
            for address in addresses.split_whitespace() {
                assert_eq!(AddressClass::of(address.parse().unwrap()), expected, "{address}");
            }
        }
    }
}
