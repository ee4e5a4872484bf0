//! Host names with dangerous addresses: internal addresses, this machine, another address at the second lookup, or a
//! redirect.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::{Server, Setup, connect, get, hello};

/// Addresses that an allowlist entry for a host name does not cover.
const REFUSED_ADDRESSES: [&str; 15] = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "203.0.113.7",
    "0.0.0.0",
    "224.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "169.254.169.254",
    "fe80::1",
];

#[tokio::test(flavor = "multi_thread")]
async fn host_name_of_an_internal_address_is_refused() {
    let setup = Setup::open(
        "agents: { main: [{ host: 'out.example' }, { host: 'in.example', private: true }, { host: 'web.example', scheme: 'http' }] }",
    )
    .await;
    for address in REFUSED_ADDRESSES {
        setup.network.name("out.example", &[address]);
        let answer = setup.exchange(connect("out.example:443")).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("address_refused"),
            "{address}: {answer}"
        );
        assert!(!answer.contains(address), "{answer}");
    }
    // One refused address is enough, whatever other addresses the name has.
    setup.network.name("web.example", &["93.184.216.34 10.0.0.1"]);
    assert_eq!(setup.refused(get("http://web.example/")).await, (403, "address_refused".to_owned()));
    // The own network does not include the address of cloud metadata servers.
    for address in ["169.254.169.254", "::ffff:10.0.0.1", "64:ff9b::a00:1", "0.0.0.0", "224.0.0.1"] {
        setup.network.name("in.example", &[address]);
        assert_eq!(
            setup.refused(connect("in.example:443")).await,
            (403, "address_refused".to_owned()),
            "{address}"
        );
    }
    // This machine by its public address.
    setup.network.own.lock().unwrap().push("93.184.216.34".parse().unwrap());
    setup.network.name("out.example", &["93.184.216.34"]);
    assert_eq!(setup.refused(connect("out.example:443")).await, (403, "address_refused".to_owned()));
    assert_eq!(setup.network.connected_addresses(), [""; 0]);
    let all = REFUSED_ADDRESSES.len() + 7;
    for end in setup.ended(all).await {
        assert_eq!(
            end,
            json!({ "event": "ended", "outcome": "refused", "code": "address_refused", "sent": 0, "received": 0 })
        );
    }
    let log = format!("{:?}", setup.entries());
    assert!(REFUSED_ADDRESSES.iter().all(|address| !log.contains(&format!("\"{address}\""))), "{log}");
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_name_is_resolved_and_checked_for_each_connection() {
    let server = Server::echo().await;
    let setup = Setup::open("agents: { main: [{ host: 'flip.example' }] }").await;
    setup.network.route("93.184.216.34:443", server.address);
    // The first answer is for the connection; a proxy with a second lookup would get the second.
    setup.network.name("flip.example", &["93.184.216.34", "127.0.0.1"]);
    let mut tunnel = setup.tunnel("flip.example:443").await;
    tunnel.write_all(&hello(Some("flip.example"))).await.unwrap();
    assert_eq!(*setup.network.resolved.lock().unwrap(), ["flip.example"]);
    drop(tunnel);
    assert_eq!(setup.refused(connect("flip.example:443")).await, (403, "address_refused".to_owned()));
    assert_eq!(setup.network.connected_addresses(), ["93.184.216.34:443"]);
    setup.ended(2).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_to_an_internal_address_is_refused() {
    let inside = Server::echo().await;
    let location = format!("http://127.0.0.1:{}/secret", inside.port());
    let server =
        Server::http(&format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"))
            .await;
    let setup = Setup::open("agents: { main: [{ host: 'web.example', scheme: 'http' }] }").await;
    setup.network.name("web.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:80", server.address);
    let answer = setup.exchange(get("http://web.example/")).await;
    assert!(answer.starts_with("HTTP/1.1 302 "), "{answer}");
    // The client follows the redirect itself, through the same proxy.
    assert_eq!(setup.refused(get(&location)).await, (403, "denied".to_owned()));
    assert_eq!(
        setup.refused(connect(&format!("127.0.0.1:{}", inside.port()))).await,
        (403, "denied".to_owned())
    );
    assert_eq!(inside.received(), "");
    setup.close().await;
}
